import ast
from collections.abc import Iterator

from gradlint.edits import Code, Refused, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, Backward, Node, Trace, sure_graph

raises = r"backward through the graph a second time"


def check(trace: Trace) -> Iterator[Claim]:
    freed: dict[int, Backward] = {}
    kept: list[Node] = []
    for backward in trace.told(Backward):
        nodes = list(sure_graph(backward.edge))
        for node in nodes:
            first = freed.get(id(node))
            # What unknown code did somewhere cannot be pointed at, so nothing is claimed of it.
            if first is not None and node.keeps and node.site.known and not backward.assumed:
                again = "in the turn before" if first.site is backward.site else "here"
                yield Claim(
                    backward.site,
                    "backward goes a second time through a graph that an earlier backward freed",
                    (
                        Reason(node.site, f"`{node.op}` belongs to both graphs"),
                        Reason(first.site, f"freed by the backward {again}"),
                        Reason(backward.site, "needed again here"),
                    ),
                    "detach what is carried over, run the forward again, or add the losses and call backward once",
                )
                break
        if backward.retain is NO and backward.wanted is None:
            kept.extend(nodes)
            freed.update((id(node), backward) for node in nodes)


def fix(finding: Finding, code: Code) -> Fix | None:
    second = code.call(finding.span)
    statement = code.statement(second)
    loss = _loss(second)
    if because(finding, 1) == finding.span:
        return _one_loop(code, statement, loss) or _detached(finding, code)
    first = code.call(because(finding, 1))
    block, before = code.block(statement), code.statement(first)
    if before not in block or block.index(before) + 1 != block.index(statement):
        return None
    both = f"({code.source(_loss(first))} + {code.source(loss)})"
    whole = sure(second.func, ast.Attribute).value
    replaced = both[1:-1] if code.grouped(whole) else both
    return code.fix("Add the losses and call backward once", code.delete(before), code.replace(whole, replaced))


def _loss(call: ast.Call) -> ast.expr:
    """What a plain `loss.backward()` starts from."""
    method = sure(call.func, ast.Attribute)
    if method.attr != "backward" or call.args or call.keywords:
        raise Refused("not a plain backward")
    return method.value


def _one_loop(code: Code, statement: ast.stmt, loss: ast.expr) -> Fix | None:
    """`for loss in losses: loss.backward()`, or the same as a list that nobody keeps."""
    message = "Add the losses and call backward once"
    loop = code.parent(statement)
    if isinstance(loop, ast.For) and not loop.orelse and (len(loop.body) == 1 or isinstance(loop.iter, ast.Name)):
        target, losses = loop.target, loop.iter
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.ListComp):
        loop, [generator] = statement, statement.value.generators
        target, losses = generator.target, generator.iter
    else:
        return None
    if not isinstance(loss, ast.Name) or not isinstance(target, ast.Name) or loss.id != target.id:
        return None
    both = f"sum({code.source(losses)}).backward()"
    if isinstance(loop, ast.For) and len(loop.body) > 1:
        return code.fix(message, code.insert_before(loop, both), code.delete(statement))
    return code.fix(message, code.replace(loop, both))


def _detached(finding: Finding, code: Code) -> Fix | None:
    """The state that a layer gives back and is given again."""
    call = code.call(because(finding, 0))
    statement = sure(code.statement(call), ast.Assign)
    carried = {code.source(part) for target in statement.targets for part in _targets(target)}
    several = "`LSTM" in finding.because[0].text
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        source = code.source(argument)
        if source not in carried or code.starts_as_none(source, argument):
            continue
        if several:
            return code.fix(f"Detach `{source}`", code.replace(argument, f"tuple(part.detach() for part in {source})"))
        return code.fix(f"Detach `{source}`", code.append(argument, ".detach()"))
    return None


def _targets(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
