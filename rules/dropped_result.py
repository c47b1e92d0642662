import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix
from gradlint.trace import Discarded, Trace

# Run for their time, to warm up a device, or for their check of shapes; a dropped result is meant.
_RUN_FOR_THEIR_COST = frozenset(
    [
        "matmul",
        "mm",
        "bmm",
        "add",
        "mul",
        "conv1d",
        "conv2d",
        "conv3d",
        "linear",
        "einsum",
        "sum",
        "mean",
        "item",
        "size",
        "clone",
        "cumsum",
        "sort",
        "expand",
        "broadcast_tensors",
        "view",
        "view_as",
        "numpy",
        "tolist",
        "contiguous",
        "__getitem__",
        "scaled_dot_product_attention",
        "all_reduce",
        "sigmoid",
        "relu",
        "softmax_",
        "dropout",
        "cross_entropy",
        "nonzero",
        "argmax",
        "argsort",
        "max",
        "min",
    ]
)


def check(trace: Trace) -> Iterator[Claim]:
    for drop in trace.told(Discarded):
        if not drop.certain or drop.op in _RUN_FOR_THEIR_COST:
            continue
        name = f": `{drop.operand_name}` stays as it was" if drop.operand_name else ""
        yield Claim(
            drop.site,
            f"the result of `{drop.op}` is dropped{name}",
            (),
            f"assign the result, or use the in-place form `{drop.in_place}`" if drop.in_place else "assign the result",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    call = code.call(finding.span)
    statement = sure(code.statement(call), ast.Expr)
    method = sure(call.func, ast.Attribute)
    function = isinstance(method.value, ast.Name) and method.value.id in code.functional
    operand = call.args[0] if function and call.args else method.value
    if isinstance(operand, ast.Name):
        code.may_rebind(operand, statement, views=True)
        return code.fix("Assign the result", code.surround(statement, f"{operand.id} = ", ""))
    form = f"`{method.attr}_`"
    if form in finding.instead and isinstance(operand, ast.Attribute):
        return code.fix(f"Use the in-place form {form}", code.rename(method, f"{method.attr}_"))
    return None
