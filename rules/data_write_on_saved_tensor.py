from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Trace, sure_graph


def check(trace: Trace) -> Iterator[Claim]:
    for backward in trace.told(Backward):
        for node in sure_graph(backward.edge):
            for saved in node.saved:
                hidden = (
                    m
                    for m in saved.storage.mutations
                    if not m.tracked and m.op != "data =" and node.index < m.index < backward.index
                )
                mutation = next(hidden, None)
                if mutation is None or not saved.certain:
                    continue
                yield Claim(
                    mutation.site,
                    f"a write through `.data` changes what `{node.op}` kept for backward, and autograd cannot see it",
                    (
                        Reason(node.site, "kept for backward here"),
                        Reason(mutation.site, "changed here, without a new version"),
                        *([] if backward.assumed else [Reason(backward.site, "backward uses the changed value here")]),
                    ),
                    "write it as an operation that makes a new tensor (`x = x.clamp(...)`)",
                )
