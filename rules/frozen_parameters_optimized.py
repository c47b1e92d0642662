from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Built, Froze, Stepped, Trace

on_every_path = True
alone = False


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.whole_program or not trace.told(Backward) or not trace.told(Stepped):
        return
    off = {id(s.tensor): s for s in reversed(trace.told(Froze)) if s.enabled is NO}
    ever_on = {id(s.tensor) for s in trace.told(Froze) if s.enabled is not NO}
    for built in trace.told(Built):
        frozen = {id(e.tensor) for e in built.parameters if e.requires_grad is NO and id(e.tensor) in off} - ever_on
        whole = tuple(e.tensor for e in built.parameters)
        for group in (whole, *built.groups) if built.optimizer.complete else ():
            if not group or not all(id(p) in frozen for p in group):
                continue
            part = "parameter of this optimizer" if group is whole else f"parameter of the group of `{group[0].name}`"
            yield Claim(
                built.site,
                f"every {part} is frozen: the optimizer never changes any",
                (Reason(off[id(group[0])].site, "frozen here"),),
                "unfreeze them, or leave them out",
            )
            break
