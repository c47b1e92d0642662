import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Made, Site, Stored, Trace

# Nobody compares a gradient with itself; to multiply it with itself is a norm.
_COMPARE = frozenset({"sub", "cosine_similarity", "mse_loss", "l1_loss", "eq", "ne", "allclose", "dist"})

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    kept: dict[int, dict[Site, Stored]] = {}
    latest: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None:
            latest = event
        elif isinstance(event, Stored) and event.tensor.grad_of is not None and event.where != "append":
            kept.setdefault(id(event.tensor.storage), {})[event.site] = event
        elif isinstance(event, Made) and event.op in _COMPARE and latest is not None:
            storages = [id(e.tensor.storage) for e in event.inputs if e.tensor.grad_of is not None]
            if len(storages) != 2 or storages[0] != storages[1]:
                continue
            for keep in kept.get(storages[0], {}).values():
                if keep.index < latest.index:
                    yield Claim(
                        keep.site,
                        "this keeps the gradient tensor itself: the next backward writes into it",
                        (Reason(event.site, "the kept gradient and the new one are the same tensor here"),),
                        "keep a copy: `p.grad.clone()`",
                    )


def fix(finding: Finding, code: Code) -> Fix | None:
    kept = sure(code.statement(finding.span), ast.Assign)
    return code.fix("Keep a copy", code.append(kept.value, ".clone()"))
