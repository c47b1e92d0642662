from collections.abc import Iterator

from gradlint.rule import Claim, Reason
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
