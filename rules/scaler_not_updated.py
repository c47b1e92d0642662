from collections.abc import Iterator

from gradlint.rule import Claim, Reason
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
