import ast
import re
from collections.abc import Iterator

from gradlint.edits import Code, because, binds, names, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import YES, Backward, Cleared, Escaped, Mutated, Optimizer, Stepped, Tensor, Trace, leaves

neutralise = "zero_grad"

_MAY_CLEAR = re.compile(r"(?i)zero|clear|reset|optim|step|closure|hook|backward$")

steps = 2


def check(trace: Trace) -> Iterator[Claim]:
    # Per parameter: the backward calls since it was cleared, and the step that used its gradient.
    reached: dict[int, list[Backward]] = {}
    used: dict[int, Stepped | Mutated] = {}
    steps: list[Stepped] = []
    # The same for optimizers whose parameters are not known.
    loose: dict[int, tuple[Stepped, Backward]] = {}
    latest: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.wanted is None:
            latest = event
            for leaf in leaves(event.edge.grad_fn):
                reached.setdefault(id(leaf), []).append(event)
        elif isinstance(event, Cleared):
            if event.tensors is None:
                loose.clear()
                reached.clear()
                used.clear()
            for tensor in event.tensors or ():
                reached.pop(id(tensor), None)
                used.pop(id(tensor), None)
                if tensor.requires_grad is not YES:
                    # It stands for all parameters of a module that is not known.
                    loose.clear()
            if event.optimizer is not None:
                loose.pop(id(event.optimizer), None)
        elif isinstance(event, Escaped):
            if any(isinstance(v, Optimizer) for v in event.values) or _MAY_CLEAR.search(event.callee):
                loose.clear()
                if any(isinstance(v, Optimizer) for v in event.values):
                    used.clear()
        elif isinstance(event, Mutated) and (updated := _by_hand(event)) is not None:
            yield from _known(event, [updated], reached, used)
        elif isinstance(event, Stepped) and (event.optimizer.complete or not event.closure):
            optimizer = event.optimizer
            if optimizer.complete:
                yield from _known(event, optimizer.parameters, reached, used)
                yield from _left_by_another(event, reached, steps)
                steps.append(event)
                continue
            before = loose.get(id(optimizer))
            if before is not None and latest is not None and _repeats(before[1], latest, before[0], event):
                yield _claim(latest, before[0], event)
            if latest is not None:
                loose[id(optimizer)] = event, latest


def _known(
    step: Stepped | Mutated,
    parameters: list[Tensor],
    reached: dict[int, list[Backward]],
    used: dict[int, Stepped | Mutated],
) -> Iterator[Claim]:
    said = False
    for tensor in parameters:
        backwards = reached.get(id(tensor), [])
        if not backwards or tensor.requires_grad is not YES:
            continue
        before = used.get(id(tensor))
        scaled = isinstance(before, Stepped) and before.scaler is not None
        if scaled and isinstance(step, Stepped) and step.scaler is None:
            # Stepped past the scaler: that is the fault.
            continue
        if before is not None and backwards[-1].index > before.index and step.turns and not said:
            said = True
            yield _claim(backwards[-1], before, step)
        used[id(tensor)] = step


def _by_hand(write: Mutated) -> Tensor | None:
    """The parameter that a hand-written update changes by its gradient."""
    leaf = write.tensor.data_of or write.tensor
    by_gradient = write.value is not None and (write.value.grad_of is leaf or write.value.note == "gradient")
    return leaf if write.by is None and by_gradient and leaf.grad_fn is None and leaf.requires_grad is YES else None


def _left_by_another(step: Stepped, reached: dict[int, list[Backward]], steps: list[Stepped]) -> Iterator[Claim]:
    """Gradients that another optimizer's loss has left here, added to those of this optimizer's own loss."""
    own = {id(p) for p in step.optimizer.parameters}
    for tensor in step.optimizer.parameters:
        backwards = reached.get(id(tensor), [])
        if len(backwards) < 2 or not step.turns:
            continue
        first, last = backwards[0], backwards[-1]
        theirs = {id(leaf) for leaf in leaves(first.edge.grad_fn)} - own
        for other in steps:
            used = {id(p) for p in other.optimizer.parameters}
            if first.index < other.index < last.index and used & theirs and id(tensor) not in used:
                yield Claim(
                    last.site,
                    "this adds to gradients that another loss has left in the same parameters",
                    (
                        Reason(first.site, "another loss leaves gradients here"),
                        Reason(other.site, "its own optimizer steps here, and these are left"),
                        Reason(step.site, "this step uses both"),
                    ),
                    "call `zero_grad()` of this optimizer right before its own backward",
                )
                return


def _repeats(first: Backward, second: Backward, step: Stepped, again: Stepped) -> bool:
    """Whether both are the same calls in two turns of one loop."""
    return first is not second and first.site is second.site and step.site is again.site and bool(step.turns)


def _claim(backward: Backward, before: Stepped | Mutated, step: Stepped | Mutated) -> Claim:
    return Claim(
        backward.site,
        "gradients are not cleared between a step and this backward: it adds to what the step has already used",
        (
            Reason(before.site, "this step uses the gradients"),
            Reason(backward.site, "the next backward adds to them"),
            Reason(step.site, "and the next step uses the sum"),
        ),
        "call `optimizer.zero_grad()` before the backward",
    )


def fix(finding: Finding, code: Code) -> Fix | None:
    step = code.call(because(finding, 2))
    optimizer = sure(step.func, ast.Attribute).value
    closure = bool(step.args)
    if closure and "scal" in code.source(optimizer).lower():
        optimizer, closure = step.args[0], False
    clear = f"{code.source(optimizer)}.zero_grad(set_to_none=True)"
    backward, stepping = code.statement(finding.span), code.statement(step)
    loop = code.loop(backward)
    if code.function(backward) is not code.function(stepping):
        place = "before" if closure and code.reaches(optimizer, backward) else "after"
    elif code.loop(stepping) is not loop or _only_sometimes(code, stepping, backward):
        place = "after"
    else:
        turn = loop.body if loop is not None else code.block(backward)
        earlier = [one for one in turn if one.lineno < backward.lineno and one is not backward]
        stepped = any(True for one in earlier for _ in code.calls("step", one))
        added = any(True for one in earlier for _ in code.calls("backward", one))
        bound = {name for one in earlier for name in binds(one)}
        own = loop is not None and not bound & names(optimizer)
        place = "head" if own and not stepped else "after" if added and not stepped else "before"
    if place == "head" and loop is not None:
        edits = code.insert_before(loop.body[0], clear)
    elif place == "before":
        edits = code.insert_before(backward, clear)
    else:
        edits = code.insert_after(stepping, clear)
    return code.fix(f"Insert `{clear}`", edits)


def _only_sometimes(code: Code, stepping: ast.stmt, backward: ast.stmt) -> bool:
    """Whether the step stands under a condition that the backward does not stand under."""
    around = set(code.around(backward))
    return any(isinstance(outer, ast.If) and outer not in around for outer in code.around(stepping))
