from collections.abc import Iterator

from gradlint.rule import Claim, Reason
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
