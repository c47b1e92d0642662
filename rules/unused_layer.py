import re
from collections import Counter
from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Assigned, Called, Made, Module, Returned, Tensor, Trace

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    used = {id(event.module) for event in trace.told(Called)}
    operands = {id(edge.tensor) for made in trace.told(Made) for edge in made.inputs}
    forwarded = {id(event.module) for event in trace.told(Returned)}
    calls = Counter(id(module) for _, module in {(event.site, event.module) for event in trace.told(Called)})
    made_in = {
        (id(a.owner), a.attribute): a
        for a in trace.told(Assigned)
        if isinstance(a.owner, Module) and isinstance(a.value, (Module, Tensor))
    }
    for (owner, attribute), assigned in made_in.items():
        layer = assigned.value
        if owner not in forwarded or not isinstance(layer, Module) or id(layer) in used or layer.opaque:
            continue
        own = [p for p in layer.tensors() if p.requires_grad is YES]
        if isinstance(assigned.owner, Module) and assigned.owner.mentions(attribute):
            continue
        if not own or any(id(p) in operands for p in own):
            continue
        for (other_owner, other), sibling in made_in.items():
            twin = sibling.value
            if (
                other_owner == owner
                and other != attribute
                and _siblings(other, attribute)
                and isinstance(twin, Module)
                and twin.kind == layer.kind
                and calls[id(twin)] >= 2
            ):
                yield Claim(
                    assigned.site,
                    f"`{attribute}` is never used, while forward calls its sibling `{other}` twice",
                    (Reason(sibling.site, f"`{other}` is used in its place"),),
                    f"call `{attribute}` where it was meant, or remove it",
                )
                break


def _siblings(one: str, other: str) -> bool:
    """`att` and `att2`, `encode_query` and `encode_answer`."""
    if re.sub(r"_?\d+$", "", one) == re.sub(r"_?\d+$", "", other):
        return True
    return "_" in one and one.rpartition("_")[0] == other.rpartition("_")[0]
