import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
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


def fix(finding: Finding, code: Code) -> Fix | None:
    found = code.at(finding.span)
    if isinstance(found, ast.Assign):
        # `nn.Parameter(value).to(device)`: what is done to the parameter is done to its value.
        moved = sure(found.value, ast.Call)
        made = sure(sure(moved.func, ast.Attribute).value, ast.Call)
        if len(made.args) != 1 or not code.source(made.func).endswith("Parameter"):
            return None
        return code.fix("Make the parameter last", code.call_inside(moved, made.args[0]))
    value = code.expression(finding.span)
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and any(keyword.arg == "requires_grad" for keyword in call.keywords):
            last = code.append(value, ".requires_grad_()")
            return code.fix("Make it a leaf last", code.drop_keyword(call, "requires_grad"), last)
    return None
