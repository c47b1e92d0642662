import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, YES, Assigned, Backward, Built, Module, Tensor, Trace, leaves, members


def check(trace: Trace) -> Iterator[Claim]:
    yield from _plain_leaves(trace)
    held = {id(p) for built in trace.told(Built) for p in built.optimizer.parameters}
    for assigned in trace.told(Assigned):
        owner, value = assigned.owner, assigned.value
        if not isinstance(owner, Module) or not isinstance(value, (list, tuple, dict)):
            continue
        layers = [m for m in members(value, Module) if any(p.requires_grad is not NO for p in m.tensors())]
        # One known layer in a list of one hides it from `parameters()` on purpose.
        if not layers or len(value) == 1:
            continue
        registered = {id(p) for p in owner.tensors()} | held
        inside = {id(m) for layer in layers for _, m in layer.modules()}
        for root in trace.modules:
            if root is not owner and id(root) not in inside and _holds(root, layers):
                registered |= {id(p) for p in root.tensors()}
        lost = [m for m in layers if not any(id(p) in registered for p in m.tensors())]
        if len(lost) < len(layers):
            continue
        kind = "dict" if isinstance(value, dict) else "tuple" if isinstance(value, tuple) else "list"
        first = lost[0].site
        yield Claim(
            assigned.site,
            f"`{assigned.attribute}` holds layers in a plain {kind}: they are not in `parameters()`, no optimizer "
            "trains them, `.to()` does not move them",
            (Reason(first, "a layer with parameters"),) if first is not None else (),
            f"use `nn.Module{'Dict' if kind == 'dict' else 'List'}`",
        )


def _plain_leaves(trace: Trace) -> Iterator[Claim]:
    """Tensors that require grad, kept on a module as plain attributes: no `parameters()` yields them."""
    optimized = trace.optimized()
    if optimized is None or not trace.whole_program:
        return
    reached = {id(t): b for b in trace.told(Backward) if not b.assumed for t in leaves(b.edge.grad_fn)}
    for assigned in trace.told(Assigned):
        owner, value = assigned.owner, assigned.value
        if not isinstance(owner, Module) or not isinstance(value, Tensor) or value.is_parameter:
            continue
        stepped = any(p.owner is not None and id(p) in optimized for p in owner.tensors())
        if value.grad_fn is None and value.requires_grad is YES and id(value) not in optimized and stepped:
            backward = reached.get(id(value))
            if backward is not None and value.grad_of is None:
                yield Claim(
                    assigned.site,
                    f"`{assigned.attribute}` requires grad but is a plain tensor: it is not in `parameters()`, and no "
                    "optimizer trains it",
                    (Reason(backward.site, "it gets its gradient here"),),
                    "wrap it: `nn.Parameter(...)`",
                )


def _holds(root: Module, layers: list[Module]) -> bool:
    inside = {id(p) for p in root.tensors()}
    return any(id(p) in inside for m in layers for p in m.tensors())


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    value = statement.value
    torch_nn, imported = code.module("torch.nn")
    if "Parameter" in finding.instead:
        made = code.surround(value, f"{torch_nn}.Parameter(", ")")
        if isinstance(value, ast.Call) and any(keyword.arg == "requires_grad" for keyword in value.keywords):
            made += code.drop_keyword(value, "requires_grad")
        return code.fix("Make it a Parameter", made, imported)
    kind = "ModuleDict" if "ModuleDict" in finding.instead else "ModuleList"
    empty = isinstance(value, (ast.List, ast.Dict)) and code.source(value)[1:-1].strip() == ""
    made = code.replace(value, f"{torch_nn}.{kind}()") if empty else code.surround(value, f"{torch_nn}.{kind}(", ")")
    return code.fix(f"Use `nn.{kind}`", made, imported)
