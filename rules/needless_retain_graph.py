from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import (
    NO,
    YES,
    Backward,
    Cleared,
    Clipped,
    Escaped,
    GradAssigned,
    Made,
    Mutated,
    Site,
    Stepped,
    Tensor,
    Trace,
    graph,
)  # fmt: skip

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    backwards = [b for b in trace.told(Backward) if not b.assumed]
    walks = [{id(node) for node in graph(b.edge.grad_fn)} for b in backwards]
    kept: dict[Site, list[tuple[Backward, Backward | None]]] = {}
    for at, backward in enumerate(backwards):
        if backward is backwards[-1] and trace.cut_short:
            # What would have come after it is not known.
            continue
        if backward.retain is YES and backward.create is NO and walks[at]:
            later = zip(backwards[at + 1 :], walks[at + 1 :], strict=True)
            again = next((b for b, walk in later if walk & walks[at]), None)
            if again is None and _given_away(trace, backward, walks[at]):
                again = backward
            kept.setdefault(backward.site, []).append((backward, again))
    for site, uses in kept.items():
        if all(again is None for _, again in uses):
            yield Claim(
                site,
                "retain_graph=True, but no later backward goes through this graph",
                (),
                "drop it: the graph is freed one call earlier",
            )
        elif all(again is not None and _one_sum(trace, backward, again) for backward, again in uses):
            second = uses[0][1]
            yield Claim(
                site,
                "the graph is kept for a second loss on it",
                (Reason(second.site, "used again here"),) if second is not None else (),
                "add the losses and call backward once: one pass instead of two",
            )


def _given_away(trace: Trace, backward: Backward, walk: set[int]) -> bool:
    """Whether code that is not known got a tensor of this graph, and may walk it again."""
    return any(
        isinstance(value, Tensor) and id(value.grad_fn) in walk
        for event in trace.told(Escaped)
        if event.index > backward.index
        for value in event.values
    )


def _one_sum(trace: Trace, first: Backward, second: Backward) -> bool:
    """Whether one backward of the sum would do the same: nobody looks at the gradients between the two."""
    if first is second or first.wanted is not None or second.wanted is not None:
        return False
    if second.turns != first.turns or second.frame is not first.frame:
        return False
    for event in trace.events[first.index + 1 : second.index]:
        if isinstance(event, (Cleared, Clipped, Escaped, GradAssigned, Stepped)):
            return False
        if isinstance(event, Made) and any(edge.tensor.grad_of is not None for edge in event.inputs):
            return False
        if isinstance(event, Mutated) and (event.tensor.grad_of is not None or event.tensor.is_parameter):
            return False
    return True


def fix(finding: Finding, code: Code) -> Fix | None:
    if finding.because:
        # The graph is needed for the second loss; to add the two is another program.
        return None
    dropped = code.drop_keyword(code.call(finding.span), "retain_graph")
    return code.fix("Drop `retain_graph=True`", dropped, safe=True)
