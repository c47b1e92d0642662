import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, binds, names, target_of
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import YES, Assigned, Backward, Built, Frame, Module, Site, Stepped, Tensor, Trace, graph, leaves

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    if optimized is None:
        return
    reached: list[tuple[Backward, dict[int, Tensor]]] = [
        (b, {id(t): t for t in leaves(b.edge.grad_fn)})
        for b in trace.told(Backward)
        if b.wanted is None and not b.assumed
    ]
    said: set[int] = set()
    for assigned in trace.told(Assigned):
        old, new = _parameters(assigned.replaced), _parameters(assigned.value)
        built = next(
            (b for b in trace.told(Built) if b.index < assigned.index and _any(old, b.optimizer.parameters)),
            None,
        )
        if built is None or not old or not new or _any(new, list(_by_id(trace, optimized))):
            continue
        steps = [s for s in trace.told(Stepped) if s.optimizer is built.optimizer and s.index > assigned.index]
        fed = [b for b, found in reached if b.index > assigned.index and _reads(assigned.value, new, found)]
        if isinstance(assigned.value, Tensor) and assigned.value.grad_fn is not None:
            # A copy that is made again for every step is never stale.
            steps = [s for s in steps if len(s.turns) > len(assigned.turns)]
            fed = [b for b in fed if steps and b.index > steps[0].index and _walks(b, assigned.value)]
        if steps and fed and steps[-1].index > fed[0].index:
            said.add(id(built.optimizer))
            yield Claim(
                _culprit(assigned),
                f"`{assigned.attribute}` is replaced after the optimizer was built, which keeps stepping the old one",
                (
                    Reason(built.site, "the optimizer was given the old ones here"),
                    Reason(fed[0].site, "the loss depends on the new ones here"),
                    Reason(steps[-1].site, "this step changes the old ones"),
                ),
                "build the optimizer after the replacement, or build it again",
            )
    for built in trace.told(Built):
        own = {id(p) for p in built.optimizer.parameters}
        steps = [s for s in trace.told(Stepped) if s.optimizer is built.optimizer]
        later = [found for b, found in reached if b.index > built.index]
        if id(built.optimizer) in said or not steps or not later or not own:
            continue
        foreign = [
            t
            for found in later
            for key, t in found.items()
            if key not in optimized and t.is_parameter and t.requires_grad is YES
        ]
        copied = {_place(t) for t in foreign} & {_place(p) for p in built.optimizer.parameters}
        if foreign and copied and not any(key in own for found in later for key in found):
            yield Claim(
                built.site,
                "no backward reaches a parameter of this optimizer: the loss depends on copies made after it was built",
                (Reason(steps[0].site, "this step changes parameters that nothing uses"),),
                "build the optimizer from the model that is trained",
            )


def _culprit(assigned: Assigned) -> Site:
    """The assignment; where a module changes itself, the call from outside that makes it do so."""
    frame: Frame | None = assigned.frame
    site = assigned.site
    while frame is not None and frame.owner is not None and frame.owner is assigned.owner and frame.call is not None:
        site, frame = frame.call, frame.caller
    return site


def _parameters(value: object) -> list[Tensor]:
    if isinstance(value, Module):
        return [p for p in value.tensors() if p.requires_grad is YES]
    return [value] if isinstance(value, Tensor) and value.requires_grad is YES else []


def _reads(value: object, new: list[Tensor], found: dict[int, Tensor]) -> bool:
    if isinstance(value, Tensor) and value.grad_fn is not None:
        # A moved copy: the old leaf still gets the gradient, but the loss reads the copy.
        return any(id(e.tensor) in found for e in value.grad_fn.inputs)
    return any(id(p) in found for p in new)


def _walks(backward: Backward, copy: Tensor) -> bool:
    return any(node is copy.grad_fn for node in graph(backward.edge.grad_fn))


def _any(some: list[Tensor], others: list[Tensor]) -> bool:
    ids = {id(t) for t in others}
    return any(id(t) in ids for t in some)


def _by_id(trace: Trace, wanted: set[int]) -> Iterator[Tensor]:
    return (p for o in trace.optimizers() for p in o.parameters if id(p) in wanted)


def _place(tensor: Tensor) -> object:
    return tensor.site, tensor.name


def fix(finding: Finding, code: Code) -> Fix | None:
    built, replaced = code.statement(because(finding, 0)), code.statement(finding.span)
    if isinstance(replaced, ast.Assign) and isinstance(replaced.value, ast.Call):
        target, moved = target_of(replaced), replaced.value.func
        if isinstance(moved, ast.Attribute) and code.source(moved.value) == code.source(target):
            edits = code.append(target, ".data"), code.append(moved.value, ".data")
            return code.fix("Move its data, and keep the parameter", *edits)
    block = code.block(built)
    if not code.before(built, replaced):
        return None
    name = binds(built)
    between = block[block.index(built) + 1 : block.index(replaced) + 1]
    if len(name) != 1 or any(name & names(one) for one in between):
        return None
    return code.fix("Build the optimizer behind the replacement", code.move([built], after=replaced))
