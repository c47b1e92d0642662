import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import NO, YES, Backward, Frame, Mode, Module, Site, Trace, leaves

_DIFFER = frozenset({"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"})


def check(trace: Trace) -> Iterator[Claim]:
    training: dict[int, Mode] = {}
    resting: dict[int, tuple[Mode, list[Backward]]] = {}
    seen: dict[int, list[Backward]] = {}
    for event in trace.events:
        if isinstance(event, Mode):
            key = id(event.module)
            if event.training is YES:
                training[key] = event
                resting.pop(key, None)
                # A module that is not known may have been rebuilt: what trains now is the new one.
                resting = {k: v for k, v in resting.items() if not (event.module.opaque and v[0].module.opaque)}
                seen[key] = []
            elif event.training is NO and key in training and key not in resting:
                resting[key] = event, seen.get(key, [])
        elif isinstance(event, Backward) and not event.assumed:
            reached = {id(leaf) for leaf in leaves(event.edge.grad_fn)}
            for key, (mode, before) in list(resting.items()):
                own = {id(p) for p in mode.module.tensors()}
                if own and not own & reached:
                    continue
                first = next((b for b in before if b.site is event.site), None)
                if first is None or not _matters(mode.module):
                    continue
                yield Claim(
                    _place(mode, event),
                    "this switches to eval mode in the middle of training, and nothing switches back",
                    (
                        Reason(training[key].site, "training mode was set here"),
                        Reason(mode.site, "eval mode is set here"),
                        Reason(
                            event.site,
                            "training goes on here in eval mode: dropout is off, batch norm is frozen",
                        ),
                    ),
                    "call `train()` after the evaluation, or at the start of every epoch",
                )
                del resting[key]
            for key in training:
                if key not in resting:
                    seen.setdefault(key, []).append(event)


def _matters(module: Module) -> bool:
    kinds = {inner.kind for _, inner in module.modules()} if hasattr(module, "modules") else set()
    return module.opaque or any(k in _DIFFER or "Norm" in k or "LSTM" in k or "Transformer" in k for k in kinds)


def _place(mode: Mode, backward: Backward) -> Site:
    """The call in the training loop that leads to `eval()`."""
    loop = {id(frame) for frame in backward.frame.stack()}
    frame: Frame | None = mode.frame
    site: Site = mode.site
    while frame is not None and id(frame) not in loop:
        if frame.call is not None:
            site = frame.call
        frame = frame.caller
    return site


def fix(finding: Finding, code: Code) -> Fix | None:
    switch, statement = code.call(because(finding, 0)), code.statement(finding.span)
    module = sure(switch.func, ast.Attribute).value
    if not code.reaches(module, statement):
        return None
    if because(finding, 1) == finding.span:
        # What follows in its own block is the evaluation.
        statement = code.block(statement)[-1]
    text = f"{code.source(module)}.train()"
    return code.fix(f"Insert `{text}`", code.insert_after(statement, text))
