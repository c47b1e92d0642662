from collections.abc import Iterator

from gradlint.rule import Claim, Reason
from gradlint.trace import Backward, Optimizer, Trace, sure_graph


def check(trace: Trace) -> Iterator[Claim]:
    for backward in trace.told(Backward):
        for node in sure_graph(backward.edge):
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
