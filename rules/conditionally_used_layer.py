from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Assigned, Backward, Called, Module, Returned, Site, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.told(Backward) or not trace.told(Stepped):
        return
    # What each call of a module called in turn, by the call's place: two calls in a loop's body mean two uses.
    calls: dict[tuple[int, Site], list[tuple[int, set[int]]]] = {}
    for returned in trace.told(Returned):
        start = returned.called.index
        inside = {id(e.module) for e in trace.events[start : returned.index] if isinstance(e, Called)}
        calls.setdefault((id(returned.module), returned.site), []).append((start, inside))
    made = [a for a in trace.told(Assigned) if isinstance(a.value, Module) and isinstance(a.owner, Module)]
    last = {(id(a.owner), a.attribute): a for a in made}
    for assigned in last.values():
        layer = assigned.value
        if not isinstance(layer, Module) or not any(p.requires_grad is YES for p in layer.tensors()):
            continue
        for (owner, _), turns in calls.items():
            uses = [
                id(layer) in inside for start, inside in turns if owner == id(assigned.owner) and start > assigned.index
            ]
            if all(uses) or not any(uses):
                continue
            yield Claim(
                assigned.site,
                f"`{assigned.attribute}` takes part in some calls of forward only",
                (Reason(assigned.site, "without it its parameters get no gradient in that step"),),
                "under DistributedDataParallel this needs `find_unused_parameters=True`",
            )
