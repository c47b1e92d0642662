import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Scaler, Stepped, Trace, leaves


def check(trace: Trace) -> Iterator[Claim]:
    scaled: dict[int, Stepped] = {}
    # Steps since the last backward, taken while its gradients were still scaled.
    early: dict[int, tuple[Stepped, Backward]] = {}
    latest: Backward | None = None
    for event in trace.events:
        if isinstance(event, Scaler) and event.call == "unscale_":
            latest = None
        elif isinstance(event, Backward):
            latest = event if event.scaled else None
            early.clear()
            reached = {id(leaf) for leaf in leaves(event.edge.grad_fn)}
            for key, step in list(scaled.items()):
                if not step.optimizer.complete or any(id(p) in reached for p in step.optimizer.parameters):
                    del scaled[key]
        elif isinstance(event, Stepped):
            key = id(event.optimizer)
            if event.scaler is not None:
                scaled[key] = event
                if key in early:
                    step, backward = early[key]
                    yield Claim(
                        step.site,
                        "the optimizer steps on gradients that are still multiplied by the GradScaler's scale",
                        (
                            Reason(backward.site, "scaled here"),
                            Reason(event.site, "the scaler divides them only here"),
                        ),
                        "drop this call: `scaler.step(optimizer)` steps",
                    )
            elif key in scaled:
                yield Claim(
                    event.site,
                    "the optimizer steps a second time on the same gradients, past the GradScaler's check",
                    (Reason(scaled[key].site, "`scaler.step` has already stepped it here"),),
                    "drop this call: `scaler.step(optimizer)` steps",
                )
            elif latest is not None:
                early[key] = event, latest


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Drop this call", code.delete(sure(code.statement(finding.span), ast.Expr)))
