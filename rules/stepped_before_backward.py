from collections.abc import Iterator

from gradlint.edits import Code, because
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Optimizer, Trace, sure_graph

neutralise = "keep copies"


def check(trace: Trace) -> Iterator[Claim]:
    freed: set[int] = set()
    for backward in trace.told(Backward):
        nodes = list(sure_graph(backward.edge))
        # A graph that an earlier backward freed is another rule's.
        again = any(id(node) in freed and node.keeps for node in nodes)
        for node in nodes if not again else ():
            for saved in node.saved:
                late = (
                    m
                    for m in saved.storage.mutations
                    if m.version > saved.version and m.index < backward.index and isinstance(m.by, Optimizer)
                )
                mutation = next(late, None)
                if mutation is None or not saved.certain:
                    continue
                weight = mutation.tensor.name or "a weight"
                yield Claim(
                    mutation.site,
                    f"the step changes `{weight}`, which a later backward still needs",
                    (
                        Reason(node.site, f"`{node.op}` kept `{weight}` for backward here"),
                        Reason(mutation.site, "the optimizer changes it here"),
                        Reason(backward.site, "backward needs the old value here"),
                    ),
                    "call all backwards before the step, or compute the second loss after it",
                )
        if backward.retain.value == "no" and backward.wanted is None:
            freed.update(id(node) for node in nodes)


def fix(finding: Finding, code: Code) -> Fix | None:
    step, backward = code.statement(finding.span), code.statement(because(finding, 2))
    if not code.before(step, backward):
        return None
    return code.fix("Step after all backwards", code.move([step], after=backward))
