import ast
from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Cleared, Clipped, Scaler, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.told(Cleared):
        # Nothing ever clears the gradients, which is another rule's.
        return
    first: Clipped | None = None
    added: Backward | None = None
    unscaled = False
    stepping = {event.frame.function for event in trace.told(Stepped)}
    for event in trace.events:
        if isinstance(event, (Cleared, Stepped)):
            first = added = None
            unscaled = False
        elif isinstance(event, Scaler):
            unscaled = unscaled or event.call == "unscale_"
        elif isinstance(event, Backward) and event.wanted is None:
            # A loss that is divided is one that accumulates; a skipped batch looks the same but for that.
            added = event if first is not None and _divided(event) else None
        elif isinstance(event, Clipped):
            if first is not None and added is not None and first.site is event.site and stepping and not unscaled:
                yield Claim(
                    event.site,
                    "the partial sum of gradients is clipped after every backward",
                    (Reason(added.site, "this backward adds to gradients that were already clipped"),),
                    "clip once, right before `optimizer.step()`",
                )
            first = event


def _divided(backward: Backward) -> bool:
    node = backward.edge.grad_fn
    while node is not None and len(node.inputs) == 1:
        if node.op in ("div", "div_", "mul", "mul_"):
            return True
        node = node.inputs[0].grad_fn
    return False


def fix(finding: Finding, code: Code) -> Fix | None:
    clip = code.with_condition(code.statement(finding.span))
    for step in code.calls("step", code.loop(clip) or code.function(clip)):
        statement = code.statement(step)
        if statement.lineno > clip.lineno and isinstance(statement, ast.Expr):
            return code.fix("Move the clipping before the step", code.move([clip], before=statement))
    return None
