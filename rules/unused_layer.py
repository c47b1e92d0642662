import re
from collections import Counter
from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Assigned, Called, Made, Module, Returned, Stepped, Tensor, Trace

on_every_path = True
dead_code = True


def check(trace: Trace) -> Iterator[Claim]:
    calls = Counter(id(module) for _, module in {(event.site, event.module) for event in trace.told(Called)})
    members = _members(trace)
    for assigned, layer in _unused(trace, members):
        for (owner, other), sibling in members.items():
            twin = sibling.value
            if (
                owner == id(assigned.owner)
                and other != assigned.attribute
                and _siblings(other, assigned.attribute)
                and isinstance(twin, Module)
                and twin.kind == layer.kind
                and calls[id(twin)] >= 2
            ):
                yield Claim(
                    assigned.site,
                    f"`{assigned.attribute}` is never used, while forward calls its sibling `{other}` twice",
                    (Reason(sibling.site, f"`{other}` is used in its place"),),
                    f"call `{assigned.attribute}` where it was meant, or remove it",
                )
                break


def confirm(trace: Trace) -> Iterator[Claim]:
    """A layer that was meant for nothing is unused too; where a finding says so, the run has only to agree."""
    for assigned, _ in _unused(trace, _members(trace)) if trace.told(Stepped) else ():
        yield Claim(assigned.site, f"no forward calls `{assigned.attribute}`, and no operation reads its weights")


def _members(trace: Trace) -> dict[tuple[int, str], Assigned]:
    return {
        (id(a.owner), a.attribute): a
        for a in trace.told(Assigned)
        if isinstance(a.owner, Module) and isinstance(a.value, (Module, Tensor))
    }


def _unused(trace: Trace, members: dict[tuple[int, str], Assigned]) -> Iterator[tuple[Assigned, Module]]:
    used = {id(event.module) for event in trace.told(Called)}
    # Who looks at a weight with `detach` does not use the layer.
    operands = {id(edge.tensor) for made in trace.told(Made) if made.op != "detach" for edge in made.inputs}
    forwarded = {id(event.module) for event in trace.told(Returned)}
    for (owner, attribute), assigned in members.items():
        layer = assigned.value
        if owner not in forwarded or not isinstance(layer, Module) or id(layer) in used or layer.opaque:
            continue
        own = [p for p in layer.tensors() if p.requires_grad is YES]
        if isinstance(assigned.owner, Module) and assigned.owner.mentions(attribute):
            continue
        if own and not any(id(p) in operands for p in own):
            yield assigned, layer


def _siblings(one: str, other: str) -> bool:
    """`att` and `att2`, `encode_query` and `encode_answer`."""
    if re.sub(r"_?\d+$", "", one) == re.sub(r"_?\d+$", "", other):
        return True
    return "_" in one and one.rpartition("_")[0] == other.rpartition("_")[0]
