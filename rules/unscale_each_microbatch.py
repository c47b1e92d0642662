import ast
from collections.abc import Iterator

from gradlint.edits import Code, because
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Cleared, Scaler, Trace

raises = r"unscale_\(\) has already been called"


def check(trace: Trace) -> Iterator[Claim]:
    open_calls: dict[tuple[int, int], Scaler] = {}
    updates = [e for e in trace.told(Scaler) if e.call == "update"]
    for event in trace.events:
        if isinstance(event, Cleared):
            open_calls.clear()
        if not isinstance(event, Scaler):
            continue
        key = id(event.scaler), id(event.optimizer)
        if event.call == "unscale_":
            before = open_calls.get(key)
            if before is not None and updates and event.optimizer is not None:
                yield Claim(
                    event.site,
                    "`unscale_` runs for every micro-batch, but may run once between two updates",
                    (
                        Reason(
                            before.site,
                            "unscaled for one backward" if before.site is event.site else "unscaled already",
                        ),
                        Reason(updates[0].site, "the update comes only with the step"),
                    ),
                    "unscale and clip only when the optimizer steps",
                )
            open_calls[key] = event
        else:
            open_calls = {k: e for k, e in open_calls.items() if k[0] != key[0]}


def fix(finding: Finding, code: Code) -> Fix | None:
    unscale, update = code.statement(finding.span), code.statement(because(finding, 1))
    steps = [code.statement(step) for step in code.calls("step", code.parent(update))]
    steps = [one for one in steps if one in code.block(update) and one.lineno > unscale.lineno]
    if not steps or unscale in code.block(update):
        return None
    block = code.block(unscale)
    moved = block[block.index(unscale) : block.index(unscale) + 2]
    if not _clips(code, moved[-1]):
        moved = moved[:1]
    there = [one for one in code.block(update) if _clips(code, one) and one.lineno < steps[0].lineno]
    return code.fix("Unscale where the optimizer steps", code.move(moved, before=[*there, steps[0]][0]))


def _clips(code: Code, statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Expr, ast.Assign)) and "clip_grad" in code.source(statement)
