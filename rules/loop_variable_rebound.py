from collections.abc import Iterator

from gradlint.rule import Claim
from gradlint.trace import Rebound, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for event in trace.told(Rebound):
        if event.tensor.is_parameter:
            yield Claim(
                event.site,
                f"this only gives the name `{event.variable}` a new value; "
                f"`{event.tensor.name or 'the parameter'}` stays as it was",
                (),
                f"write into it under `torch.no_grad()`: `{event.variable}.copy_(...)`",
            )
