import ast
from collections.abc import Iterator

from gradlint.edits import Code, sure, target_of
from gradlint.rule import Claim, Finding, Fix
from gradlint.trace import AttributeSet, Module, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for event in trace.told(AttributeSet):
        if isinstance(event.owner, Module) and event.attribute == "requires_grad":
            done = "freezes" if event.value is False else "unfreezes"
            yield Claim(
                event.site,
                f"this sets an attribute on the module `{event.owner.name or event.owner.kind}` and {done} nothing",
                (),
                f"call `requires_grad_({event.value})`",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    target = target_of(statement)
    module = code.source(sure(target, ast.Attribute).value)
    switched = f"{module}.requires_grad_({code.source(statement.value)})"
    return code.fix(f"Call `{switched}`", code.replace(statement, switched))
