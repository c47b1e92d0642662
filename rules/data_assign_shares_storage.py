import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure, target_of
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Mutated, Optimizer, Trace


def check(trace: Trace) -> Iterator[Claim]:
    stepped = [m for m in trace.told(Mutated) if isinstance(m.by, Optimizer)]
    optimized = {id(m.tensor) for m in stepped}
    for write in trace.told(Mutated):
        target, source = write.tensor, write.value.data_of if write.value is not None else None
        if write.op != "data =" or source is None or source is target or id(target) in optimized:
            continue
        if not target.is_parameter or not source.is_parameter:
            continue
        # In a function that is called again and again, the next step comes with the next call.
        repeated = not trace.whole_program and write.frame.caller is not None
        later = next((m for m in stepped if m.tensor is source and (m.index > write.index or repeated)), None)
        if later is not None:
            yield Claim(
                write.site,
                f"this makes `{target.name or 'the target'}` share memory with `{source.name or 'the source'}`: "
                "nothing is copied",
                (Reason(later.site, "this step changes both"),),
                "copy the values: `target.data.copy_(source.data)`",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    target = target_of(statement)
    copied = f"{code.source(target)}.copy_({code.source(statement.value)})"
    return code.fix("Copy the values", code.replace(statement, copied))
