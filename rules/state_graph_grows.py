from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, GradMode, Site, Stored, Trace, graph

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    # Who streams under no_grad somewhere knows what a graph costs, and a path past it says little.
    if not trace.whole_program or any(not switch.enabled for switch in trace.told(GradMode)):
        return
    visited = {id(node) for b in trace.told(Backward) for node in graph(b.edge.grad_fn)}
    first: dict[tuple[Site, int], Stored] = {}
    for stored in trace.told(Stored):
        node = stored.tensor.grad_fn
        if stored.where != "attribute" or node is None or id(node) in visited:
            continue
        before = first.setdefault((stored.site, id(stored.frame.owner)), stored)
        if before is stored or not _other_turn(before, stored):
            continue
        if before.tensor is not stored.tensor and any(n is before.tensor.grad_fn for n in graph(node)):
            yield Claim(
                stored.site,
                f"`{stored.name}` carries its graph into the next iteration and nothing cuts it: it grows without end",
                (Reason(node.site, "each turn adds to the graph of the turn before"),),
                "keep it detached: `self.hidden = hidden.detach()`",
            )


def _other_turn(before: Stored, stored: Stored) -> bool:
    """Whether the outermost loop around both has moved on."""
    if not before.turns or not stored.turns:
        return False
    (loop, turn), (same, later) = before.turns[0], stored.turns[0]
    return loop is same and turn != later
