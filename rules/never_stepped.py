from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Built, Cleared, Escaped, Mutated, Optimizer, Stepped, Trace, leaves

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.whole_program or trace.told(Stepped):
        return
    if any(isinstance(v, Optimizer) for e in trace.told(Escaped) for v in e.values):
        return
    cleared = {id(e.optimizer): e for e in trace.told(Cleared) if e.optimizer is not None and e.turns}
    for built in trace.told(Built):
        own = {id(p) for p in built.optimizer.parameters}
        clear = cleared.get(id(built.optimizer))
        if clear is None or any(id(e.tensor) in own and e.index > clear.index for e in trace.told(Mutated)):
            continue
        for backward in trace.told(Backward):
            if backward.turns and any(id(leaf) in own for leaf in leaves(backward.edge.grad_fn)):
                yield Claim(
                    backward.site,
                    "gradients are computed and cleared in every turn, but no optimizer ever steps",
                    (
                        Reason(built.site, "this optimizer holds the parameters"),
                        Reason(clear.site, "their gradients are thrown away here"),
                    ),
                    "call `optimizer.step()` after the backward",
                )
                return
