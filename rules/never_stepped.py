import ast
from collections.abc import Iterator

from gradlint.edits import Code, because, sure
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Backward, Built, Cleared, Escaped, Mutated, Optimizer, Scaler, Stepped, Trace, leaves

on_every_path = True
alone = False


def check(trace: Trace) -> Iterator[Claim]:
    if not trace.whole_program or any(isinstance(v, Optimizer) for e in trace.told(Escaped) for v in e.values):
        return
    stepped = {id(step.optimizer) for step in trace.told(Stepped)}
    # A scaler leaves out the steps whose gradients are not finite.
    stepped |= {id(e.optimizer) for e in trace.told(Scaler) if e.call == "step"}
    others = bool(stepped)
    # An optimizer may step through another that holds the same parameters.
    moved = {id(p) for step in trace.told(Stepped) for p in step.optimizer.parameters}
    clears = [e for e in trace.told(Cleared) if e.optimizer is not None and e.turns]
    cleared = {id(e.optimizer): e for e in clears}
    for built in trace.told(Built):
        own = {id(p) for p in built.optimizer.parameters}
        clear = cleared.get(id(built.optimizer))
        if clear is None or id(built.optimizer) in stepped or own & moved:
            continue
        if any(id(e.tensor) in own and e.index > clear.index for e in trace.told(Mutated)):
            continue
        if trace.cut_short and others:
            # Its step may be still to come, unless gradients were thrown away before.
            first = next(e for e in clears if e.optimizer is built.optimizer)
            if not any(first.index < b.index < clear.index for b in _reaching(trace, own)):
                continue
        for backward in _reaching(trace, own):
            if backward.turns:
                missing = "this optimizer never steps" if others else "no optimizer ever steps"
                yield Claim(
                    backward.site if not others else clear.site,
                    f"gradients are computed and cleared in every turn, but {missing}",
                    (
                        Reason(built.site, "this optimizer holds the parameters"),
                        Reason(backward.site, "their gradients are computed here"),
                        Reason(clear.site, "and thrown away here"),
                    ),
                    "call `optimizer.step()` after the backward",
                    about=built.site,
                )
                break


def _reaching(trace: Trace, own: set[int]) -> Iterator[Backward]:
    for backward in trace.told(Backward):
        if any(id(leaf) in own for leaf in leaves(backward.edge.grad_fn)):
            yield backward


def fix(finding: Finding, code: Code) -> Fix | None:
    clear, backward = code.call(because(finding, 2)), code.statement(because(finding, 1))
    optimizer = sure(clear.func, ast.Attribute).value
    if not code.reaches(optimizer, backward):
        return None
    step = f"{code.source(optimizer)}.step()"
    cleared = code.statement(clear)
    if cleared.lineno > backward.lineno and code.function(cleared) is code.function(backward):
        return code.fix(f"Insert `{step}`", code.insert_before(cleared, step))
    return code.fix(f"Insert `{step}`", code.insert_after(backward, step))
