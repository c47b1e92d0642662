import ast
from collections.abc import Iterator

from gradlint.edits import Code, Refused, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Site, Stored, Tensor, Trace, graph, members

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    backwards = [b for b in trace.told(Backward) if not b.assumed]
    visits = [(b, {id(node) for node in graph(b.edge.grad_fn)}) for b in backwards]
    first: dict[tuple[Site, int], Stored] = {}
    for stored in trace.told(Stored):
        if not stored.grows or not stored.turns or stored.tensor.grad_fn is None:
            continue
        key = stored.site, id(stored.container) if isinstance(stored.container, list) else 0
        before = first.setdefault(key, stored)
        if before is stored or before.turns == stored.turns:
            continue
        loop = next((a[0] for a, b in zip(before.turns, stored.turns, strict=False) if a != b), None)
        if loop is None or not _kept(before, stored):
            continue
        behind = {id(node) for node in graph(before.tensor)}
        trained = [b for b, nodes in visits if behind & nodes]
        if not trained or any(b.index > before.index and b.turns[: len(before.turns)] != before.turns for b in trained):
            continue
        if not any(turn[0] is loop for turn in trained[0].turns):
            continue
        yield Claim(
            stored.site,
            "this keeps a loss with its graph: the graphs of all iterations stay in memory",
            (Reason(trained[0].site, "its graph has done its work here"),),
            "keep a number: `loss.item()` or `loss.detach()`",
        )


def _kept(before: Stored, stored: Stored) -> bool:
    if isinstance(stored.container, list):
        return any(item is before.tensor for item in members(stored.container, Tensor))
    total, old = stored.container, before.container
    if not isinstance(total, Tensor) or not isinstance(old, Tensor) or old.grad_fn is None:
        return False
    return total.grad_fn is not None and any(node is before.tensor.grad_fn for node in graph(total))


def fix(finding: Finding, code: Code) -> Fix | None:
    backward = code.call(because(finding, 0))
    loss = sure(backward.func, ast.Attribute).value
    statement = code.statement(finding.span)
    kept = statement.value if isinstance(statement, (ast.AugAssign, ast.Assign)) else _appended(statement)
    if code.function(loss) is not code.function(statement):
        return None
    # That this is a tensor is only known of what `backward()` was called on.
    same = [part for part in ast.walk(kept) if isinstance(part, (ast.Name, ast.Attribute))]
    same = [part for part in same if code.source(part) == code.source(loss)]
    return code.fix(f"Detach `{code.source(loss)}`", *(code.append(part, ".detach()") for part in same), safe=True)


def _appended(statement: ast.stmt) -> ast.expr:
    call = sure(sure(statement, ast.Expr).value, ast.Call)
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "append" or len(call.args) != 1:
        raise Refused("not an append")
    return call.args[0]
