from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Mutated, Trace

raises = r"returns multiple views"


def check(trace: Trace) -> Iterator[Claim]:
    for mutation in trace.told(Mutated):
        if not mutation.multi_view or not mutation.tensor.certain:
            continue
        made = [Reason(mutation.tensor.site, "one of several views made here")] if mutation.tensor.site else []
        yield Claim(
            mutation.site,
            f"`{mutation.tensor.name or 'it'}` is one of several views of one tensor and is changed in place",
            tuple(made),
            "use the operation that makes a new tensor (`q = q * scale`)",
        )


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Make a new tensor", code.out_of_place(finding.span, views=True))
