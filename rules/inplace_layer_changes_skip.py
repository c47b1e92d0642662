from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Called, Made, Module, Mutated, Returned, Trace


def check(trace: Trace) -> Iterator[Claim]:
    if not any(isinstance(change.by, Module) for change in trace.told(Mutated)):
        return
    for returned in trace.told(Returned):
        called = returned.called
        for argument in called.arguments:
            if any(tensor is argument for _, tensor in returned.outputs):
                continue
            change = next((e for e in _inside(trace, called, returned) if e.tensor is argument), None)
            if change is None or not isinstance(change.by, Module) or change.by.site is None:
                continue
            for event in trace.events[returned.index :]:
                if (
                    isinstance(event, Made)
                    and event.op in ("add", "add_", "sub")
                    and event.frame is called.frame
                    and any(edge.tensor is argument for edge in event.inputs)
                ):
                    yield Claim(
                        change.by.site,
                        "this in-place layer changes the tensor that the skip connection adds later",
                        (
                            Reason(called.site, "the branch changes its own input in this call"),
                            Reason(event.site, "added here, already changed"),
                        ),
                        "drop `inplace=True` from the first layer of the branch",
                    )
                    break


def _inside(trace: Trace, called: Called, returned: Returned) -> Iterator[Mutated]:
    for event in trace.events[called.index : returned.index]:
        if isinstance(event, Mutated):
            yield event
