from collections.abc import Iterator

from gradlint.edits import Code, because
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Cleared, Clipped, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    waiting: Clipped | None = None
    empty = True
    step: Stepped | None = None
    late: tuple[Stepped, Clipped] | None = None
    for event in trace.events:
        if isinstance(event, Cleared):
            empty = True
            if late is not None:
                yield Claim(
                    late[1].site,
                    "gradients are clipped after the step that used them, and cleared before the next one",
                    (Reason(late[0].site, "used unclipped here"), Reason(event.site, "thrown away here")),
                    "clip after `backward()` and before `step()`",
                )
            step = late = None
        elif isinstance(event, Stepped):
            waiting = late = None
            step = event
        elif isinstance(event, Clipped):
            late = (step, event) if step is not None and step.frame is event.frame else None
            waiting = event if empty and event.exhausted is None else None
        elif isinstance(event, Backward) and event.wanted is None:
            empty = False
            step = late = None
            if waiting is not None and waiting.frame is event.frame and waiting.turns == event.turns:
                yield Claim(
                    waiting.site,
                    "gradients are clipped before backward has made them",
                    (Reason(event.site, "the gradients come into being here"),),
                    "clip after `backward()` and before `step()`",
                )
            waiting = None


def fix(finding: Finding, code: Code) -> Fix | None:
    clip, other = code.with_condition(code.statement(finding.span)), code.statement(because(finding, 0))
    if code.before(clip, other):
        return code.fix("Move the clipping behind the backward", code.move([clip], after=other))
    if code.before(other, clip):
        return code.fix("Move the clipping before the step", code.move([clip], before=other))
    return None
