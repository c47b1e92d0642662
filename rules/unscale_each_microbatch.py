from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Cleared, Scaler, Trace

raises = r"unscale_\(\) has already been called"


def check(trace: Trace) -> Iterator[Claim]:
    open_calls: dict[tuple[int, int], Scaler] = {}
    updates = [e for e in trace.told(Scaler) if e.call == "update"]
    for event in trace.events:
        if isinstance(event, Cleared):
            open_calls.clear()
        if not isinstance(event, Scaler):
            continue
        key = id(event.scaler), id(event.optimizer)
        if event.call == "unscale_":
            before = open_calls.get(key)
            if before is not None and updates and event.optimizer is not None:
                yield Claim(
                    event.site,
                    "`unscale_` runs for every micro-batch, but may run once between two updates",
                    (
                        Reason(
                            before.site,
                            "unscaled for one backward" if before.site is event.site else "unscaled already",
                        ),
                        Reason(updates[0].site, "the update comes only with the step"),
                    ),
                    "unscale and clip only when the optimizer steps",
                )
            open_calls[key] = event
        else:
            open_calls = {k: e for k, e in open_calls.items() if k[0] != key[0]}
