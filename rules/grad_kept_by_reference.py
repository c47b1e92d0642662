from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Made, Stored, Trace


def check(trace: Trace) -> Iterator[Claim]:
    stored = {id(e.tensor): e for e in trace.told(Stored) if e.tensor.grad_of is not None and e.where != "append"}
    for made in trace.told(Made):
        same = [edge.tensor for edge in made.inputs if edge.tensor.grad_of is not None]
        if len(same) == 2 and same[0] is same[1] and id(same[0]) in stored:
            keep = stored[id(same[0])]
            if keep.index < made.index:
                yield Claim(
                    keep.site,
                    "this keeps the gradient tensor itself: the next backward writes into it",
                    (Reason(made.site, "the kept gradient and the new one are the same tensor here"),),
                    "keep a copy: `p.grad.clone()`",
                )
