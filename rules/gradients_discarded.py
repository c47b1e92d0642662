from collections.abc import Iterator

from gradlint.edits import Code, because
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import (
    Backward,
    Cleared,
    Escaped,
    GradAssigned,
    Made,
    Mutated,
    Stepped,
    Tensor,
    Trace,
    leaves,
)

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    waiting: list[tuple[Backward, list[Tensor]]] = []
    stepping = {step.turns[-1][0] for step in trace.told(Stepped) if step.turns}
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None and not event.assumed:
            waiting.append((event, list(leaves(event.edge.grad_fn))))
        elif isinstance(event, (Stepped, Escaped, GradAssigned)):
            waiting.clear()
        elif isinstance(event, Mutated) and event.by is None and (event.tensor.is_parameter or _reads_grad(event)):
            # A step by hand, or gradients gathered elsewhere.
            waiting.clear()
        elif isinstance(event, Made) and any(e.tensor.grad_of is not None for e in event.inputs):
            waiting.clear()
        elif isinstance(event, Cleared):
            for backward, reached in waiting:
                own = {id(t) for t in event.tensors or ()}
                # The tail of an epoch: cleared outside the loop that accumulated.
                left = len(event.turns) < len(backward.turns) and backward.turns[-1][0] in stepping
                step = (
                    _next_step(trace, event) if event.turns == backward.turns else _outer_step(trace, event, backward)
                )
                if not (left or step) or not reached or not all(id(t) in own for t in reached):
                    continue
                lost = "the last batches of the loop are lost" if step is None else "the next step finds none"
                yield Claim(
                    event.site,
                    f"gradients that no step has used are thrown away: {lost}",
                    (
                        Reason(
                            backward.site,
                            "these gradients were accumulated" if step is None else "computed here",
                        ),
                        Reason(event.site, "and cleared before any step"),
                        *([Reason(step.site, "this step has nothing to use")] if step is not None else ()),
                    ),
                    "step once more after the loop if gradients are left" if step is None else "step before clearing",
                )
            waiting.clear()


def _reads_grad(write: Mutated) -> bool:
    return write.value is not None and write.value.grad_of is not None


def _outer_step(trace: Trace, cleared: Cleared, backward: Backward) -> Stepped | None:
    """The step after a loop that was meant to accumulate, and whose every turn clears what the last one added."""
    around = backward.turns[:-1]
    if not around or cleared.turns[:-1] != around or cleared.turns[-1][0] is not backward.turns[-1][0]:
        return None
    loop = backward.turns[-1][0]
    steps = trace.told(Stepped)
    if any(turn[0] is loop for step in steps for turn in step.turns):
        return None
    frames = list(cleared.frame.stack())
    return next((s for s in steps if s.index > cleared.index and s.turns == around and s.frame in frames), None)


def _next_step(trace: Trace, cleared: Cleared) -> Stepped | None:
    """The step that comes straight after: of an optimizer all of whose gradients were just cleared."""
    own = {id(t) for t in cleared.tensors or ()}
    for event in trace.events[cleared.index + 1 :]:
        if event.turns != cleared.turns or isinstance(event, (Backward, Escaped, GradAssigned)):
            return None
        if isinstance(event, Stepped):
            held = event.optimizer
            return event if held.complete and not event.closure and all(id(p) in own for p in held.parameters) else None
    return None


def fix(finding: Finding, code: Code) -> Fix | None:
    clear, step = code.statement(finding.span), code.statement(because(finding, 2))
    backward = code.statement(because(finding, 0))
    if not code.before(backward, clear) or not code.before(clear, step):
        return None
    return code.fix("Clear behind the step", code.move([clear], after=step))
