import ast
from collections.abc import Iterator

from gradlint.edits import Code, out_of_place, sure, target_of
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import YES, Backward, Made, Mutated, Trace, sure_graph

neutralise = "keep copies"

# Rounding through `.data` is how some write a straight-through estimator.
_MEANT = frozenset({"data =", "round_", "sign_", "floor_"})


def check(trace: Trace) -> Iterator[Claim]:
    if all(m.tracked for m in trace.told(Mutated)):
        return
    yield from _ignored(trace)
    for backward in trace.told(Backward):
        for node in sure_graph(backward.edge):
            for saved in node.saved:
                hidden = (
                    m
                    for m in saved.storage.mutations
                    if not m.tracked and m.op != "data =" and node.index < m.index < backward.index
                )
                mutation = next(hidden, None)
                if mutation is None or not saved.certain:
                    continue
                yield Claim(
                    mutation.site,
                    f"a write through `.data` changes what `{node.op}` kept for backward, and autograd cannot see it",
                    (
                        Reason(node.site, "kept for backward here"),
                        Reason(mutation.site, "changed here, without a new version"),
                        *([] if backward.assumed else [Reason(backward.site, "backward uses the changed value here")]),
                    ),
                    "write it as an operation that makes a new tensor (`x = x.clamp(...)`)",
                )


def _ignored(trace: Trace) -> Iterator[Claim]:
    """Writes to a value that is not a leaf: backward goes past them as if they had not happened."""
    reached = {id(node) for backward in trace.told(Backward) for node in sure_graph(backward.edge)}
    for write in trace.told(Mutated):
        tensor = write.tensor.data_of
        if write.tracked or write.op in _MEANT or tensor is None or tensor.grad_fn is None:
            continue
        if tensor.requires_grad is not YES or not tensor.certain or id(tensor.grad_fn) not in reached:
            continue
        readers = [
            made
            for made in trace.told(Made)
            if made.index > write.index and any(e.tensor.storage is tensor.storage for e in made.inputs)
        ]
        # Minus infinity before a softmax gives the masked entries no gradient anyway.
        if not readers or any(made.op in ("softmax", "log_softmax", "Softmax", "LogSoftmax") for made in readers):
            continue
        name = tensor.name or "the tensor"
        yield Claim(
            write.site,
            f"this write through `.data` is hidden from autograd: the gradient of `{name}` does not know of it",
            (
                Reason(tensor.grad_fn.site, f"`{name}` is computed here"),
                Reason(readers[0].site, "the written values are used here"),
            ),
            "write it as an operation (`x = x.masked_fill(...)`)",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = code.statement(finding.span)
    if isinstance(statement, ast.Assign):
        target = target_of(statement)
        data = sure(sure(target, ast.Subscript).value, ast.Attribute)
        name = sure(data.value, ast.Name)
        code.may_rebind(name, statement)
        copy = code.insert_before(statement, f"{name.id} = {name.id}.clone()")
        return code.fix("Write to a copy", copy, code.only_value(data))
    method = sure(code.call(finding.span).func, ast.Attribute)
    data = sure(method.value, ast.Attribute)
    if not isinstance(statement, ast.Expr) or data.attr != "data" or not isinstance(data.value, ast.Name):
        return None
    code.may_rebind(data.value, statement)
    named = code.surround(statement, f"{data.value.id} = ", "")
    return code.fix("Make a new tensor", named, code.only_value(data), code.rename(method, out_of_place(method)))
