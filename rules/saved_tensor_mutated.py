import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, sure, target_of
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, Backward, Optimizer, Trace, sure_graph

neutralise = "keep copies"


def check(trace: Trace) -> Iterator[Claim]:
    freed: set[int] = set()
    for backward in trace.told(Backward):
        nodes = list(sure_graph(backward.edge))
        # A graph that an earlier backward freed is another rule's.
        again = any(id(node) in freed and node.keeps for node in nodes)
        if backward.retain is NO and backward.wanted is None:
            freed.update(id(node) for node in nodes)
        for node in nodes if not again else ():
            for saved in node.saved:
                late = (
                    m
                    for m in saved.storage.mutations
                    if m.tracked and m.version > saved.version and m.index < backward.index
                )
                mutation = next(late, None)
                if mutation is None or not saved.certain or isinstance(mutation.by, Optimizer):
                    continue
                if mutation.leaf or mutation.multi_view:
                    continue
                yield Claim(
                    mutation.site,
                    f"`{mutation.op}` changes in place what `{node.op}` kept for backward",
                    (
                        Reason(node.site, f"kept for backward here, as its {_role(saved.role)}"),
                        Reason(mutation.site, "changed here"),
                        *([] if backward.assumed else [Reason(backward.site, "backward needs it here")]),
                    ),
                    "use the operation that makes a new tensor (`x = x + y`, not `x += y`)",
                )


def _role(role: str) -> str:
    return "result" if role.startswith("result") else f"operand `{role}`"


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = code.statement(finding.span)
    if isinstance(statement, ast.Assign) and isinstance(code.at(finding.span), ast.Assign):
        written = sure(target_of(statement), ast.Subscript).value
        return _read_a_copy(finding, code, code.source(written), parts=True)
    call = statement.value if isinstance(statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr == "copy_":
        return _read_a_copy(finding, code, code.source(method.value), parts=False)
    return code.fix("Make a new tensor", code.out_of_place(finding.span))


def _read_a_copy(finding: Finding, code: Code, written: str, *, parts: bool) -> Fix | None:
    """`x[0] = f(x[1])` where `f` keeps its operand: a copy stays as it is."""
    kept = code.expression(because(finding, 0))
    for node in ast.walk(kept):
        whole = node.value if parts and isinstance(node, ast.Subscript) else node
        if isinstance(node, ast.Subscript if parts else (ast.Name, ast.Attribute)) and code.source(whole) == written:
            return code.fix(f"Read a copy of `{code.source(node)}`", code.append(node, ".clone()"))
    return None
