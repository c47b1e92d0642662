from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Node, Trace, sure_graph

raises = r"backward through the graph a second time"


def check(trace: Trace) -> Iterator[Claim]:
    freed: dict[int, Backward] = {}
    kept: list[Node] = []
    for backward in trace.told(Backward):
        nodes = list(sure_graph(backward.edge))
        for node in nodes:
            first = freed.get(id(node))
            # What unknown code did somewhere cannot be pointed at, so nothing is claimed of it.
            if first is not None and node.keeps and node.site.known and not backward.assumed:
                again = "in the turn before" if first.site is backward.site else "here"
                yield Claim(
                    backward.site,
                    "backward goes a second time through a graph that an earlier backward freed",
                    (
                        Reason(node.site, f"`{node.op}` belongs to both graphs"),
                        Reason(first.site, f"freed by the backward {again}"),
                        Reason(backward.site, "needed again here"),
                    ),
                    "detach what is carried over, run the forward again, or add the losses and call backward once",
                )
                break
        if backward.retain is NO and backward.wanted is None:
            kept.extend(nodes)
            freed.update((id(node), backward) for node in nodes)
