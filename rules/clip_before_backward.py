from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Cleared, Clipped, Stepped, Trace


def check(trace: Trace) -> Iterator[Claim]:
    waiting: Clipped | None = None
    empty = True
    for event in trace.events:
        if isinstance(event, Cleared):
            empty = True
        elif isinstance(event, Stepped):
            waiting = None
        elif isinstance(event, Clipped):
            waiting = event if empty and event.exhausted is None else None
        elif isinstance(event, Backward) and event.wanted is None:
            empty = False
            if waiting is not None and waiting.frame is event.frame and waiting.turns == event.turns:
                yield Claim(
                    waiting.site,
                    "gradients are clipped before backward has made them",
                    (Reason(event.site, "the gradients come into being here"),),
                    "clip after `backward()` and before `step()`",
                )
            waiting = None
