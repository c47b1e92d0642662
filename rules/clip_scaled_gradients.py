import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Clipped, Scaler, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    scaled: Backward | None = None
    clipped: Clipped | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None:
            scaled, clipped = (event if event.scaled else None), None
        elif isinstance(event, Scaler) and event.call == "unscale_" and clipped is None:
            scaled = None
        elif isinstance(event, Clipped) and scaled is not None:
            clipped = event
        elif isinstance(event, Stepped):
            if clipped is not None and scaled is not None and event.scaler is not None:
                yield Claim(
                    clipped.site,
                    "these gradients are still multiplied by the GradScaler's scale when they are clipped",
                    (
                        Reason(scaled.site, "scaled here"),
                        Reason(event.site, "the scaler divides them only here"),
                    ),
                    "call `scaler.unscale_(optimizer)` before clipping",
                )
            clipped = None


def fix(finding: Finding, code: Code) -> Fix | None:
    step = code.call(because(finding, 1))
    scaler, clip = sure(step.func, ast.Attribute).value, code.statement(finding.span)
    if not step.args or not all(code.reaches(part, clip) for part in (scaler, step.args[0])):
        return None
    call = f"{code.source(scaler)}.unscale_({code.source(step.args[0])})"
    return code.fix(f"Insert `{call}`", code.insert_before(clip, call))
