from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import (
    NO,
    YES,
    Assigned,
    Backward,
    Built,
    Constructed,
    Escaped,
    Froze,
    Mode,
    Module,
    Mutated,
    Node,
    Optimizer,
    Restored,
    Stepped,
    Tensor,
    Trace,
    graph,
    leaves,
)  # fmt: skip

on_every_path = True

_REDUCES = frozenset({"mean", "sum", "norm", "logsumexp", "cross_entropy", "kl_div", "max", "amax"})


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    if optimized is None or not trace.whole_program or not trace.told(Stepped):
        return
    if any(isinstance(v, (Optimizer, Module)) for e in trace.told(Escaped) for v in e.values):
        return
    # What is trained: layers, not an input or a prompt that is optimized through a fixed network.
    trained = {id(p) for o in trace.optimizers() for p in o.parameters if p.owner is not None}
    innocent = optimized | _meant(trace)
    touched = {id(m.storage) for m in trace.told(Mutated) if not m.tracked or m.op in ("copy_", "step")}
    yield from _thawed(trace, optimized)
    held = {id(p) for a in trace.told(Assigned) if isinstance(a.owner, Module) for p in _own(a.value)}
    for built in trace.told(Built)[-1:]:
        for backward in trace.told(Backward):
            if backward.assumed or backward.wanted is not None or not backward.turns:
                continue
            forgotten = [
                leaf
                for leaf in leaves(backward.edge.grad_fn)
                if leaf.is_parameter
                and leaf.requires_grad is YES
                and id(leaf) not in innocent
                and id(leaf.storage) not in touched
                and leaf.site is not None
                and (leaf.owner is not None or id(leaf) in held)
            ]
            late = [leaf for leaf in forgotten if _after(backward, leaf, trained)]
            if late:
                name = late[0].name or "parameters"
                more = f" and {len(late) - 1} more" if len(late) > 1 else ""
                yield Claim(
                    _nearest(trace, late[0], built).site,
                    f"`{name}`{more} get gradients but are in no optimizer, while the layers before them are trained",
                    (
                        Reason(late[0].site, f"`{name}` is made here"),  # type: ignore[arg-type]
                        Reason(backward.site, "the loss depends on it"),
                    ),
                    "give the optimizer these parameters too, or freeze them with `requires_grad_(False)`",
                )
                return


def _thawed(trace: Trace, optimized: set[int]) -> Iterator[Claim]:
    """Parameters that are unfrozen when the optimizer has already been given those that were trainable then."""
    frozen: dict[int, Froze] = {}
    for switch in trace.told(Froze):
        tensor = switch.tensor
        if switch.enabled is NO:
            frozen[id(tensor)] = switch
            continue
        built = next((b for b in trace.told(Built) if b.index < switch.index), None)
        if switch.enabled is not YES or built is None or id(tensor) not in frozen or id(tensor) in optimized:
            continue
        steps = [s for s in trace.told(Stepped) if s.optimizer is built.optimizer and s.index > switch.index]
        reached = (b for b in trace.told(Backward) if b.index > switch.index)
        if steps and any(leaf is tensor for b in reached for leaf in leaves(b.edge.grad_fn)):
            name = tensor.name or "a parameter"
            yield Claim(
                built.site,
                f"`{name}` is unfrozen later, but this optimizer was given only what was trainable now",
                (
                    Reason(frozen[id(tensor)].site, "frozen here, before the optimizer is built"),
                    Reason(switch.site, "unfrozen here"),
                    Reason(steps[0].site, "this step never changes it"),
                ),
                "`optimizer.add_param_group({'params': ...})` when unfreezing, or give it all parameters",
            )
            return


def _nearest(trace: Trace, leaf: Tensor, last: Built) -> Built:
    """The optimizer that was given other parameters of the smallest module that holds `leaf`."""
    holders = [{id(t) for t in m.tensors()} for m in trace.modules]
    for inside in sorted((h for h in holders if id(leaf) in h), key=len):
        for built in reversed(trace.told(Built)):
            if any(id(p) in inside for p in built.optimizer.parameters):
                return built
    return last


def _meant(trace: Trace) -> set[int]:
    """Parameters that rest on purpose, or whose absence is another rule's: replaced, in a list, made in forward."""
    found: set[int] = set()
    for assigned in trace.told(Assigned):
        if isinstance(assigned.replaced, Module) or isinstance(assigned.value, (list, tuple, dict)):
            found.update(id(p) for p in _own(assigned.value))
    modules = [mode.module for mode in trace.told(Mode) if mode.training is NO]
    modules += [restored.module for restored in trace.told(Restored)]
    for module in modules:
        found.update(id(p) for p in module.tensors())
    for made in trace.told(Constructed):
        if any(frame.function == "forward" for frame in made.frame.stack()):
            found.update(id(p) for p in made.module.tensors())
    return found


def _own(value: object) -> Iterator[Tensor]:
    if isinstance(value, Module):
        yield from value.tensors()
    elif isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _own(item)


def _after(backward: Backward, leaf: Tensor, trained: set[int]) -> bool:
    """Whether a value that depends on `leaf` alone meets one that trained layers made."""
    nodes = list(graph(backward.edge.grad_fn))
    alone = [n for n in nodes if any(e.tensor is leaf for e in n.inputs)]
    seen: set[int] = set()
    while alone:
        node = alone.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if any(id(e.tensor) in trained for e in node.inputs):
            # It feeds a trained layer, as a backbone feeds its head.
            continue
        if _fed_by(node, trained):
            return True
        if node.op not in _REDUCES and not node.op.endswith("loss"):
            alone += [n for n in nodes if any(e.grad_fn is node for e in n.inputs)]
    return False


def _fed_by(node: Node, trained: set[int]) -> bool:
    return any(
        inner.op != "add" and any(id(e.tensor) in trained for e in inner.inputs)
        for edge in node.inputs
        if edge.grad_fn is not None
        for inner in graph(edge.grad_fn)
    )
