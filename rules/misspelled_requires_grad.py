import ast
import difflib
from collections.abc import Iterator

from gradlint.edits import Code, sure, target_of
from gradlint.rule import Claim, Finding, Fix
from gradlint.trace import NO, AttributeSet, Tensor, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for event in trace.told(AttributeSet):
        if not isinstance(event.owner, Tensor) or not event.owner.certain or not isinstance(event.value, bool):
            continue
        if event.attribute in ("retains_grad", "requires_grad"):
            continue
        if event.value is False and event.owner.requires_grad is NO:
            # A typo, but the tensor is what it was meant to be.
            continue
        close = difflib.SequenceMatcher(None, event.attribute, "requires_grad").ratio() > 0.85
        if close or event.attribute in ("trainable", "need_grad", "needs_grad", "require_gradient"):
            yield Claim(
                event.site,
                f"`{event.attribute}` is a new attribute without meaning: `{event.owner.name or 'the tensor'}` "
                "requires grad as before",
                (),
                "write `requires_grad`",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    statement = sure(code.statement(finding.span), ast.Assign)
    target = target_of(statement)
    return code.fix("Write `requires_grad`", code.rename(sure(target, ast.Attribute), "requires_grad"))
