from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Cut, Froze, Tensor, Trace, graph, leaves

# What a loss may still pass through when nothing that learns lies behind it.
_SUMS = frozenset(
    {"add", "sub", "mul", "div", "neg", "sum", "mean", "scale", "squeeze", "view", "clone", "stack", "cat"}
)


def check(trace: Trace) -> Iterator[Claim]:
    for leaf, cut, backward in _grown(trace):
        if cut is not None:
            yield from _claims(trace, leaf, backward, (Reason(cut.site, f"the graph ended here, in `{cut.how}`"),))


def confirm(trace: Trace) -> Iterator[Claim]:
    """The value may have left the graph where nobody can follow it; that backward reaches nothing is seen."""
    for leaf, _, backward in _grown(trace) if trace.optimizers() else ():
        yield from _claims(trace, leaf, backward, ())


def _claims(trace: Trace, leaf: Tensor, backward: Backward, reasons: tuple[Reason, ...]) -> Iterator[Claim]:
    switch = next((s for s in trace.told(Froze) if s.tensor is leaf and s.index < backward.index), None)
    site = switch.site if switch is not None else leaf.site
    if site is not None:
        yield Claim(
            site,
            "requires_grad on a loss that has no graph only silences the error: nothing before it is trained",
            (*reasons, Reason(backward.site, "backward reaches the loss and nothing else")),
            "remove it, and compute the loss from operations that can be differentiated",
        )


def _grown(trace: Trace) -> Iterator[tuple[Tensor, Cut | None, Backward]]:
    """Losses that have nothing behind them but new leaves, each with the place where its value left the graph."""
    learning = {id(p) for optimizer in trace.optimizers() for p in optimizer.parameters}
    for backward in trace.told(Backward):
        if backward.assumed or backward.wanted is not None or backward.edge.requires_grad is NO:
            continue
        if any(node.op not in _SUMS for node in graph(backward.edge.grad_fn)):
            continue
        ends = [backward.root] if backward.edge.grad_fn is None else list(leaves(backward.edge.grad_fn))
        cuts = [cut for leaf in ends if (cut := _cut(leaf)) is not None]
        if ends and not any(id(leaf) in learning or leaf.is_parameter for leaf in ends):
            yield ends[0], cuts[0] if len(cuts) == len(ends) else None, backward


def _cut(leaf: Tensor) -> Cut | None:
    """Where the value of a new leaf left the graph; None for a leaf that is meant to learn."""
    return leaf.cuts[-1] if leaf.cuts and not leaf.is_parameter and leaf.cuts[-1].switch is None else None
