from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Backward, Froze, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for backward in trace.told(Backward):
        root = backward.root
        if backward.edge.grad_fn is not None or root.is_parameter or backward.assumed:
            continue
        for switch in trace.told(Froze):
            if switch.tensor is root and switch.enabled is YES and switch.index < backward.index and root.cuts:
                cut = root.cuts[-1]
                yield Claim(
                    switch.site,
                    "requires_grad on a loss that has no graph only silences the error: nothing before it is trained",
                    (
                        Reason(cut.site, f"the graph ended here, in `{cut.how}`"),
                        Reason(backward.site, "backward reaches the loss and nothing else"),
                    ),
                    "remove it, and compute the loss from operations that can be differentiated",
                )
                break
