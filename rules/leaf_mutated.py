import ast
from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Mutated, Trace

raises = r"leaf Variable that requires grad"


def check(trace: Trace) -> Iterator[Claim]:
    for mutation in trace.told(Mutated):
        leaf = mutation.tensor.base or mutation.tensor
        if not mutation.leaf or mutation.multi_view or not leaf.certain:
            continue
        name = leaf.name or "it"
        made = [Reason(leaf.site, f"`{name}` requires grad")] if leaf.site is not None else []
        yield Claim(
            mutation.site,
            f"`{name}` is a leaf that requires grad and is changed in place while grad mode is on",
            (*made, Reason(mutation.site, "changed here: torch raises")),
            "do it under `torch.no_grad()`",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = code.statement(finding.span)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(statement, ast.AugAssign):
        meant = "grad" in code.source(statement.value) or isinstance(statement.target, ast.Attribute)
    elif isinstance(statement, ast.Assign):
        meant = isinstance(statement.targets[0], ast.Subscript)
    else:
        meant = isinstance(call, ast.Call) and code.at(finding.span) is call and not _for_a_name(code, call)
    if not meant and isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        # `state["loss"] += penalty`: the slot of a dict or a list takes the sum.
        return code.fix("Make a new tensor", code.spelled_out(statement))
    if meant:
        return code.fix("Write under `torch.no_grad()`", code.no_grad([statement]))
    return code.fix("Make a new tensor", code.out_of_place(finding.span, views=True))


def _for_a_name(code: Code, call: ast.Call) -> bool:
    """Whether a method changes a tensor that a plain name of this function holds, by something else than its grad."""
    target = call.func.value if isinstance(call.func, ast.Attribute) else call
    if not isinstance(target, ast.Name) or "grad" in code.source(call):
        return False
    return bool(code.assigned(target.id, call))
