from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Assigned, Built, Module, Tensor, Trace

_MOVES = frozenset({"to", "cuda", "cpu", "xpu", "double", "float", "half", "bfloat16", "type"})

# On what is already there, these give back the Parameter itself.
_MAY_CHANGE_NOTHING = frozenset({"float", "cpu", "contiguous", "type", "type_as"})

raises = r"can't optimize a non-leaf"


def check(trace: Trace) -> Iterator[Claim]:
    for built in trace.told(Built):
        for edge in built.parameters:
            tensor = edge.tensor
            if edge.grad_fn is None or edge.requires_grad is not YES or not tensor.certain or tensor.site is None:
                continue
            name = tensor.name or "it"
            yield Claim(
                tensor.site,
                f"`{name}` is the result of `{edge.grad_fn.op}`, not a leaf: an optimizer refuses it",
                (Reason(built.site, "given to the optimizer here"),),
                "compute the value first, then make it a leaf: `(torch.randn(...) * 0.01).requires_grad_()`",
            )
    for assigned in trace.told(Assigned):
        value = assigned.value
        if not isinstance(assigned.owner, Module) or not isinstance(value, Tensor) or value.is_parameter:
            continue
        node = value.grad_fn
        if node is None or len(node.inputs) != 1 or node.op in _MAY_CHANGE_NOTHING:
            continue
        source = node.inputs[0].tensor
        if (
            source.is_parameter
            and source.owner is None
            and node.inputs[0].grad_fn is None
            and not value.storage.version
        ):
            moved = " on another device or dtype" if node.op in _MOVES else ""
            yield Claim(
                assigned.site,
                f"`{assigned.attribute}` is the result of `{node.op}` on a Parameter{moved}: "
                "not a leaf, not registered, never trained",
                (Reason(node.site, "the Parameter itself is dropped here"),),
                "wrap last: `nn.Parameter(torch.zeros(n, device=device))`",
            )
