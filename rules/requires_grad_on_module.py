from collections.abc import Iterator

from gradlint.rule import Claim
from gradlint.trace import AttributeSet, Module, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for event in trace.told(AttributeSet):
        if isinstance(event.owner, Module) and event.attribute == "requires_grad":
            done = "freezes" if event.value is False else "unfreezes"
            yield Claim(
                event.site,
                f"this sets an attribute on the module `{event.owner.name or event.owner.kind}` and {done} nothing",
                (),
                f"call `requires_grad_({event.value})`",
            )
