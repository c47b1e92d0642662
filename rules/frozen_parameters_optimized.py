from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Built, Froze, Stepped, Trace

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.whole_program or not trace.told(Backward) or not trace.told(Stepped):
        return
    for built in trace.told(Built):
        optimizer = built.optimizer
        given = built.parameters
        if not given or not optimizer.complete or any(e.requires_grad is not NO for e in given):
            continue
        if any(p.requires_grad is not NO for p in optimizer.parameters):
            continue
        switches = [s for s in trace.told(Froze) if s.tensor is given[0].tensor and s.enabled is NO]
        yield Claim(
            built.site,
            "every parameter of this optimizer is frozen: it never changes anything",
            (Reason(switches[0].site, "frozen here"),) if switches else (),
            "unfreeze them, or drop the optimizer",
        )
