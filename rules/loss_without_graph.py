from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, Backward, Trace

raises = r"does not require grad and does not have a grad_fn"
neutralise = "uncut"


def check(trace: Trace) -> Iterator[Claim]:
    for backward in trace.told(Backward):
        cuts = [c for c in backward.root.cuts if c.switch is None or c.switch.scoped]
        if backward.edge.requires_grad is not NO or not backward.root.certain or backward.assumed or not cuts:
            continue
        if len(cuts) < len(backward.root.cuts) or any(c.how == "checkpoint" for c in cuts):
            continue
        cut = cuts[-1]
        yield Claim(
            cut.switch.site if cut.switch is not None else cut.site,
            f"the loss is cut from the graph by `{cut.how}`, so backward raises",
            (Reason(cut.site, "the graph ends here"), Reason(backward.site, "backward finds no graph here")),
            "keep it a tensor operation: `torch.stack` for `torch.tensor`, no `item()` or `detach()` on the way",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Keep the graph", code.uncut(finding.span))
