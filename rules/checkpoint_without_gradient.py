from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Cut, Trace


def check(trace: Trace) -> Iterator[Claim]:
    for cut in trace.told(Cut):
        if cut.how == "checkpoint":
            made = cut.source.grad_fn
            yield Claim(
                cut.site,
                "reentrant checkpoint of inputs that do not require grad: the layers inside get no gradient",
                (Reason(made.site, "computed here without a graph"),) if made is not None else (),
                "pass `use_reentrant=False`",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    call = code.call(finding.span)
    return code.fix("Pass `use_reentrant=False`", code.set_keyword(call, "use_reentrant", "False"))
