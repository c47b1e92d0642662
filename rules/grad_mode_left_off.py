from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for backward in trace.told(Backward):
        if backward.edge.requires_grad is not NO:
            continue
        for cut in backward.root.cuts:
            if cut.switch is not None and not cut.switch.scoped:
                yield Claim(
                    cut.switch.site,
                    "grad mode is switched off here and never on again: everything computed later has no graph",
                    (
                        Reason(cut.site, "computed without a graph"),
                        Reason(backward.site, "backward raises here"),
                    ),
                    "use it as a context: `with torch.no_grad():`",
                )
                break
