from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Assigned, Backward, Built, Called, Constructed, Module, Stepped, Trace, leaves


def check(trace: Trace) -> Iterator[Claim]:
    assigned = [module for event in trace.told(Assigned) for module in _modules(event.value)]
    kept = {id(module) for module in assigned}
    inside = {id(inner) for module in assigned for _, inner in module.modules()}
    called = {id(event.module): event for event in trace.told(Called)}
    for event in trace.told(Constructed):
        frames = list(event.frame.stack())
        forward = next((f for f in frames if f.function == "forward" and f.owner is not None), None)
        if forward is None or any(f.function == "__init__" for f in frames):
            continue
        module = event.module
        if id(module) in kept:
            yield from _late(trace, event)
            continue
        if id(module) in inside or id(module) not in called:
            continue
        if any(p.requires_grad is not NO for p in module.tensors()):
            yield Claim(
                event.site,
                f"`{module.kind}` is built inside forward: every call gets new random weights, which nothing trains",
                (Reason(called[id(module)].site, "used here and thrown away"),),
                "build it in `__init__` and keep it on `self`",
            )


def _late(trace: Trace, made: Constructed) -> Iterator[Claim]:
    """A layer that the first forward registers, when the optimizer already has its parameters."""
    optimized = trace.optimized()
    own = {id(p) for p in made.module.tensors() if p.requires_grad is not NO}
    built = next((b for b in trace.told(Built) if b.index < made.index), None)
    if optimized is None or built is None or own & optimized or not trace.whole_program:
        return
    trained = next((b for b in trace.told(Backward) if own & {id(leaf) for leaf in leaves(b.edge.grad_fn)}), None)
    stepped = any(step.optimizer is built.optimizer and step.index > made.index for step in trace.told(Stepped))
    if trained is not None and stepped:
        yield Claim(
            made.site,
            f"`{made.module.kind}` is made by the first forward, after the optimizer was built: it is never trained",
            (
                Reason(built.site, "the optimizer was given its parameters here"),
                Reason(trained.site, "the loss depends on the new layer"),
            ),
            "make it in `__init__`, or run one forward before the optimizer is built",
        )


def _modules(value: object) -> Iterator[Module]:
    if isinstance(value, Module):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _modules(item)
