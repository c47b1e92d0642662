from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import NO, Backward, Optimizer, Trace, sure_graph

neutralise = "keep copies"


def check(trace: Trace) -> Iterator[Claim]:
    freed: set[int] = set()
    for backward in trace.told(Backward):
        nodes = list(sure_graph(backward.edge))
        # A graph that an earlier backward freed is another rule's.
        again = any(id(node) in freed and node.keeps for node in nodes)
        if backward.retain is NO and backward.wanted is None:
            freed.update(id(node) for node in nodes)
        for node in nodes if not again else ():
            for saved in node.saved:
                late = (
                    m
                    for m in saved.storage.mutations
                    if m.tracked and m.version > saved.version and m.index < backward.index
                )
                mutation = next(late, None)
                if mutation is None or not saved.certain or isinstance(mutation.by, Optimizer):
                    continue
                if mutation.leaf or mutation.multi_view:
                    continue
                yield Claim(
                    mutation.site,
                    f"`{mutation.op}` changes in place what `{node.op}` kept for backward",
                    (
                        Reason(node.site, f"kept for backward here, as its {_role(saved.role)}"),
                        Reason(mutation.site, "changed here"),
                        *([] if backward.assumed else [Reason(backward.site, "backward needs it here")]),
                    ),
                    "use the operation that makes a new tensor (`x = x + y`, not `x += y`)",
                )


def _role(role: str) -> str:
    return "result" if role.startswith("result") else f"operand `{role}`"
