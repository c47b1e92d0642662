from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Assigned, Backward, Called, Module, Returned, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.told(Backward) or not trace.told(Stepped):
        return
    used = {id(event.module) for event in trace.told(Called)}
    turns: dict[int, list[set[int]]] = {}
    for returned in trace.told(Returned):
        inside = {id(e.module) for e in trace.events[returned.called.index : returned.index] if isinstance(e, Called)}
        turns.setdefault(id(returned.module), []).append(inside)
    for assigned in trace.told(Assigned):
        layer, owner = assigned.value, assigned.owner
        if not isinstance(layer, Module) or not isinstance(owner, Module) or id(layer) not in used:
            continue
        calls = turns.get(id(owner), [])
        missed = [inside for inside in calls if id(layer) not in inside]
        if len(calls) > 1 and missed and any(p.requires_grad is YES for p in layer.tensors()):
            yield Claim(
                assigned.site,
                f"`{assigned.attribute}` takes part in some calls of forward only",
                (Reason(assigned.site, "without it its parameters get no gradient in that step"),),
                "under DistributedDataParallel this needs `find_unused_parameters=True`",
            )
