from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Cut, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for cut in trace.told(Cut):
        if cut.how == "checkpoint":
            made = cut.source.grad_fn
            yield Claim(
                cut.site,
                "reentrant checkpoint of inputs that do not require grad: the layers inside get no gradient",
                (Reason(made.site, "computed here without a graph"),) if made is not None else (),
                "pass `use_reentrant=False`",
            )
