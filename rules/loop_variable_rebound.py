import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure, target_of
from gradlint.rule import Claim, Finding, Fix
from gradlint.trace import Rebound, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for event in trace.told(Rebound):
        if event.tensor.is_parameter:
            yield Claim(
                event.site,
                f"this only gives the name `{event.variable}` a new value; "
                f"`{event.tensor.name or 'the parameter'}` stays as it was",
                (),
                f"write into it under `torch.no_grad()`: `{event.variable}.copy_(...)`",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    target = target_of(statement)
    copied = f"{code.source(target)}.copy_({code.source(statement.value)})"
    return code.fix("Write into the parameter", code.no_grad([statement], code.replace(statement, copied)))
