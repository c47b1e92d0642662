from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Stepped, Trace, leaves


def check(trace: Trace) -> Iterator[Claim]:
    scaled: dict[int, Stepped] = {}
    for event in trace.events:
        if isinstance(event, Backward):
            reached = {id(leaf) for leaf in leaves(event.edge.grad_fn)}
            for key, step in list(scaled.items()):
                if not step.optimizer.complete or any(id(p) in reached for p in step.optimizer.parameters):
                    del scaled[key]
        elif isinstance(event, Stepped):
            key = id(event.optimizer)
            if event.scaler is not None:
                scaled[key] = event
            elif key in scaled:
                yield Claim(
                    event.site,
                    "the optimizer steps a second time on the same gradients, past the GradScaler's check",
                    (Reason(scaled[key].site, "`scaler.step` has already stepped it here"),),
                    "drop this call: `scaler.step(optimizer)` steps",
                )
