from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Mutated, Trace

raises = r"leaf Variable that requires grad"


def check(trace: Trace) -> Iterator[Claim]:
    for mutation in trace.told(Mutated):
        leaf = mutation.tensor.base or mutation.tensor
        if not mutation.leaf or mutation.multi_view or not leaf.certain:
            continue
        name = leaf.name or "it"
        made = [Reason(leaf.site, f"`{name}` requires grad")] if leaf.site is not None else []
        yield Claim(
            mutation.site,
            f"`{name}` is a leaf that requires grad and is changed in place while grad mode is on",
            (*made, Reason(mutation.site, "changed here: torch raises")),
            "do it under `torch.no_grad()`",
        )
