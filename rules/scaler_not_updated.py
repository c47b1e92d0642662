import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Cleared, Scaler, Trace

raises = (
    r"has already been called since the last update|has already been called on this optimizer since the last update"
)

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    last: dict[tuple[int, int, str], Scaler] = {}
    cleared = -1
    updates = {id(e.scaler): e for e in reversed(trace.told(Scaler)) if e.call == "update"}
    stepping = {id(e.scaler) for e in trace.told(Scaler) if e.call == "step"}
    for event in trace.events:
        if isinstance(event, Cleared):
            cleared = event.index
        if not isinstance(event, Scaler) or not event.turns:
            continue
        if event.call == "update":
            last = {key: e for key, e in last.items() if key[0] != id(event.scaler)}
            continue
        key = id(event.scaler), id(event.optimizer), event.call
        before = last.get(key)
        if before is not None and before.site is event.site and before.turns != event.turns:
            update = updates.get(id(event.scaler))
            stepped = last.get((key[0], key[1], "step"))
            if update is None and id(event.scaler) not in stepping:
                # Skipped in every turn of this path; where it is not skipped, it shows what was.
                continue
            if update is None or stepped is not None or cleared > before.index:
                skipped = update is not None
                yield Claim(
                    update.site if update is not None else event.site,
                    "`scaler.update()` is skipped on some turns" if skipped else "`scaler.update()` is never called",
                    (
                        Reason(before.site, f"`{event.call}` here"),
                        Reason(
                            event.site,
                            f"and `{event.call}` again in a later turn, with no update between: torch raises",
                        ),
                    ),
                    "call `scaler.update()` once per iteration, whether or not the step was taken",
                    about=None if skipped else event.site,
                )
        last[key] = event


def fix(finding: Finding, code: Code) -> Fix | None:
    call, statement = code.call(finding.span), code.statement(finding.span)
    method = sure(call.func, ast.Attribute)
    if method.attr == "update":
        return _in_every_turn(finding, code, statement)
    if method.attr != "step":
        return None
    scaler = code.source(method.value)
    steps = [code.statement(step) for step in code.calls("step", code.function(statement))]
    own = [one for one in code.block(statement) if one in steps and code.source(one).startswith(f"{scaler}.step(")]
    update = code.insert_after(own[-1] if own else statement, f"{scaler}.update()")
    # Without it the second step raises, so there is no correct program that this changes.
    return code.fix(f"Insert `{scaler}.update()`", update, safe=True)


def _in_every_turn(finding: Finding, code: Code, update: ast.stmt) -> Fix | None:
    under, loop = code.parent(update), code.loop(update)
    if isinstance(under, ast.If):
        return code.fix("Update in every turn", code.move([update], after=under))
    begun = code.statement(because(finding, 0))
    skips = [node for node in ast.walk(loop) if isinstance(node, ast.Continue)] if loop is not None else []
    skips = [skip for skip in skips if code.loop(skip) is loop and begun.lineno < skip.lineno < update.lineno]
    edits = [code.insert_before(skip, code.source(update)) for skip in skips]
    return code.fix("Update in every turn", *edits) if code.loop(begun) is loop else None
