from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Exhausted, Trace

raises = r"empty parameter list"


def check(trace: Trace) -> Iterator[Claim]:
    for again in trace.told(Exhausted):
        yield Claim(
            again.made,
            f"this {again.what} is an iterator that is read twice: the second reader gets nothing",
            (
                Reason(again.first, "read to its end here"),
                Reason(again.site, "empty here"),
            ),
            "make it a list: `list(...)`",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    iterator = code.expression(finding.span)
    if "next(" in code.text:
        # A list is no iterator, and something here may ask it for its next item.
        return None
    return code.fix("Make it a list", code.surround(iterator, "list(", ")"), safe=True)
