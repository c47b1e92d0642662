from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Cleared, Escaped, Made, Stepped, Tensor, Trace, leaves


def check(trace: Trace) -> Iterator[Claim]:
    waiting: list[tuple[Backward, list[Tensor]]] = []
    stepping = {step.turns[-1][0] for step in trace.told(Stepped) if step.turns}
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None and not event.assumed:
            waiting.append((event, list(leaves(event.edge.grad_fn))))
        elif isinstance(event, (Stepped, Escaped)):
            waiting.clear()
        elif isinstance(event, Made) and any(e.tensor.grad_of is not None for e in event.inputs):
            waiting.clear()
        elif isinstance(event, Cleared):
            for backward, reached in waiting:
                own = {id(t) for t in event.tensors or ()}
                # The tail of an epoch: cleared outside the loop that accumulated.
                left = len(event.turns) < len(backward.turns) and backward.turns[-1][0] in stepping
                if left and reached and all(id(t) in own for t in reached):
                    yield Claim(
                        event.site,
                        "gradients that no step has used are thrown away: the last batches of the loop are lost",
                        (
                            Reason(backward.site, "these gradients were accumulated"),
                            Reason(event.site, "and cleared before any step"),
                        ),
                        "step once more after the loop if gradients are left",
                    )
            waiting.clear()
