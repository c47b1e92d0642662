from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Assigned, Called, Constructed, Module, Trace


def check(trace: Trace) -> Iterator[Claim]:
    kept = {id(m) for assigned in trace.told(Assigned) for m in _modules(assigned.value)}
    called = {id(event.module): event for event in trace.told(Called)}
    for event in trace.told(Constructed):
        frames = list(event.frame.stack())
        forward = next((f for f in frames if f.function == "forward" and f.owner is not None), None)
        if forward is None or any(f.function == "__init__" for f in frames):
            continue
        module = event.module
        if id(module) in kept or id(module) not in called:
            continue
        if any(p.requires_grad is not NO for p in module.tensors()):
            yield Claim(
                event.site,
                f"`{module.kind}` is built inside forward: every call gets new random weights, which nothing trains",
                (Reason(called[id(module)].site, "used here and thrown away"),),
                "build it in `__init__` and keep it on `self`",
            )


def _modules(value: object) -> Iterator[Module]:
    if isinstance(value, Module):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _modules(item)
