from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, YES, Backward, Trace, sure_graph

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    backwards = [b for b in trace.told(Backward) if not b.assumed]
    graphs = [{id(node) for node in sure_graph(b.edge)} for b in backwards]
    for at, backward in enumerate(backwards):
        if backward.retain is not YES or backward.create is not NO or not graphs[at]:
            continue
        later = [b for b, nodes in zip(backwards[at + 1 :], graphs[at + 1 :], strict=True) if nodes & graphs[at]]
        if not later:
            yield Claim(
                backward.site,
                "retain_graph=True, but no later backward goes through this graph",
                (),
                "drop it: the graph is freed one call earlier",
            )
        elif later[0].turns == backward.turns and later[0].frame is backward.frame:
            yield Claim(
                backward.site,
                "the graph is kept for a second loss on it",
                (Reason(later[0].site, "used again here"),),
                "add the losses and call backward once: one pass instead of two",
            )
