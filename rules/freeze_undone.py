from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, YES, Backward, Called, Froze, Site, Trace


def check(trace: Trace) -> Iterator[Claim]:
    frozen: dict[int, Froze] = {}
    thawed: dict[Site, set[int]] = {}
    for event in trace.events:
        if isinstance(event, (Backward, Called)):
            break
        if isinstance(event, Froze) and event.tensor.is_parameter:
            if event.enabled is NO:
                frozen[id(event.tensor)] = event
            elif event.enabled is YES:
                thawed.setdefault(event.site, set()).add(id(event.tensor))
    for switch in trace.told(Froze):
        first = frozen.get(id(switch.tensor))
        everything = thawed.get(switch.site, set())
        if (
            first is None
            or switch.enabled is not YES
            or switch.index < first.index
            or switch.site is first.site
            or not set(frozen) < everything
            or not trace.told(Backward)
        ):
            continue
        yield Claim(
            switch.site,
            f"this unfreezes everything, `{switch.tensor.name or 'parameters'}` included, which was frozen before",
            (Reason(first.site, "frozen here"),),
            "skip parameters that are meant to stay frozen",
        )
        return
