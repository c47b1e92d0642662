from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import (
    NO, YES, Assigned, Backward, Built, Edge, Escaped, Mode, Module, Mutated, Node, Optimizer, Restored, Stepped, Tensor,
    Trace, graph, leaves,
)  # fmt: skip

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    optimized = trace.optimized()
    if optimized is None or not trace.whole_program or not trace.told(Stepped):
        return
    if any(isinstance(v, (Optimizer, Module)) for e in trace.told(Escaped) for v in e.values):
        return
    touched = {id(m.storage) for m in trace.told(Mutated) if not m.tracked or m.op in ("copy_", "step")}
    replaced = {id(p) for a in trace.told(Assigned) if isinstance(a.replaced, Module) for p in _own(a.value)}
    held = {id(p) for a in trace.told(Assigned) if isinstance(a.owner, Module) for p in _own(a.value)}
    resting = {
        id(p) for e in (*trace.told(Mode), *trace.told(Restored)) if not (isinstance(e, Mode) and e.training is not NO) for p in e.module.tensors()
    }
    for built in trace.told(Built)[-1:]:
        for backward in trace.told(Backward):
            if backward.assumed or backward.wanted is not None or not backward.turns:
                continue
            forgotten = [
                leaf
                for leaf in leaves(backward.edge.grad_fn)
                if leaf.is_parameter
                and leaf.requires_grad is YES
                and id(leaf) not in optimized | replaced | resting
                and id(leaf.storage) not in touched
                and leaf.site is not None
                and (leaf.owner is not None or id(leaf) in held)
            ]
            late = [leaf for leaf in forgotten if _after(backward.edge, leaf, optimized)]
            if late:
                name = late[0].name or "parameters"
                more = f" and {len(late) - 1} more" if len(late) > 1 else ""
                yield Claim(
                    built.site,
                    f"`{name}`{more} get gradients but are in no optimizer, while the layers before them are trained",
                    (
                        Reason(late[0].site, f"`{name}` is made here"),  # type: ignore[arg-type]
                        Reason(backward.site, "the loss depends on it"),
                    ),
                    "give the optimizer these parameters too, or freeze them with `requires_grad_(False)`",
                )
                return


def _own(value: object) -> list[Tensor]:
    if isinstance(value, Module):
        return list(value.tensors())
    return [value] if isinstance(value, Tensor) else []


def _after(root: Edge, leaf: Tensor, optimized: set[int]) -> bool:
    """Whether a trained layer feeds the operation that uses `leaf`: it stands between that layer and the loss."""
    for node in graph(root.grad_fn):
        if any(edge.tensor is leaf for edge in node.inputs) and _fed_by(node, optimized):
            return True
    return False


def _fed_by(node: Node, optimized: set[int]) -> bool:
    return any(
        inner.op != "add" and any(id(e.tensor) in optimized for e in inner.inputs)
        for edge in node.inputs
        if edge.grad_fn is not None
        for inner in graph(edge.grad_fn)
    )


