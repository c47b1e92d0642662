import re
from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import YES, Backward, Cleared, Escaped, Optimizer, Stepped, Tensor, Trace, leaves

_MAY_CLEAR = re.compile(r"(?i)zero|clear|reset|optim|step|closure|hook|backward$")


def check(trace: Trace) -> Iterator[Claim]:
    # Per parameter: the backward calls since it was cleared, and the step that used its gradient.
    reached: dict[int, list[Backward]] = {}
    used: dict[int, Stepped] = {}
    # The same for optimizers whose parameters are not known.
    loose: dict[int, tuple[Stepped, Backward]] = {}
    latest: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None:
            latest = event
            for leaf in leaves(event.edge.grad_fn):
                reached.setdefault(id(leaf), []).append(event)
        elif isinstance(event, Cleared):
            if event.tensors is None:
                loose.clear()
                reached.clear()
                used.clear()
            for tensor in event.tensors or ():
                reached.pop(id(tensor), None)
                used.pop(id(tensor), None)
            if event.optimizer is not None:
                loose.pop(id(event.optimizer), None)
        elif isinstance(event, Escaped):
            if any(isinstance(v, Optimizer) for v in event.values) or _MAY_CLEAR.search(event.callee):
                loose.clear()
                if any(isinstance(v, Optimizer) for v in event.values):
                    used.clear()
        elif isinstance(event, Stepped) and not event.closure:
            optimizer = event.optimizer
            if optimizer.complete:
                yield from _known(event, optimizer.parameters, reached, used)
                continue
            before = loose.get(id(optimizer))
            if before is not None and latest is not None and _repeats(before[1], latest, before[0], event):
                yield _claim(latest, before[0], event)
            if latest is not None:
                loose[id(optimizer)] = event, latest


def _known(
    step: Stepped, parameters: list[Tensor], reached: dict[int, list[Backward]], used: dict[int, Stepped]
) -> Iterator[Claim]:
    said = False
    for tensor in parameters:
        backwards = reached.get(id(tensor), [])
        if not backwards or tensor.requires_grad is not YES:
            continue
        before = used.get(id(tensor))
        if before is not None and before.scaler is not None and step.scaler is None:
            # Stepped past the scaler: that is the fault.
            continue
        if before is not None and backwards[-1].index > before.index and step.turns and not said:
            said = True
            yield _claim(backwards[-1], before, step)
        used[id(tensor)] = step


def _repeats(first: Backward, second: Backward, step: Stepped, again: Stepped) -> bool:
    """Whether both are the same calls in two turns of one loop."""
    return first is not second and first.site is second.site and step.site is again.site and bool(step.turns)


def _claim(backward: Backward, before: Stepped, step: Stepped) -> Claim:
    return Claim(
        backward.site,
        "gradients are not cleared between a step and this backward: it adds to what the step has already used",
        (
            Reason(before.site, "this step uses the gradients"),
            Reason(backward.site, "the next backward adds to them"),
            Reason(step.site, "and the next step uses the sum"),
        ),
        "call `optimizer.zero_grad()` before the backward",
    )
