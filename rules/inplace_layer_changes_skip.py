from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import Called, Made, Module, Mutated, Returned, Site, Trace


def check(trace: Trace) -> Iterator[Claim]:
    calls = [r for r in trace.told(Returned) if r.called.arguments]
    for change in trace.told(Mutated):
        functional = change.by is None and change.op in _FUNCTIONS
        if change.named or not (functional or isinstance(change.by, Module)):
            continue
        branch: Called | None = None
        if not functional:
            branch = next((r.called for r in calls if _hides(r, change)), None)
            if branch is None:
                continue
        frame = branch.frame if branch is not None else change.frame
        added = next(
            (m for m in trace.told(Made) if m.index > change.index and m.frame is frame and _adds(m, change)),
            None,
        )
        if added is None:
            continue
        site: Site | None = change.by.site if isinstance(change.by, Module) else change.site
        if site is not None:
            yield Claim(
                site,
                "this changes in place the tensor that the skip connection adds later",
                (
                    Reason(
                        branch.site if branch is not None else change.site,
                        "the branch changes its own input here",
                    ),
                    Reason(added.site, "added here, already changed"),
                ),
                "drop `inplace=True` at the head of the branch",
            )


_FUNCTIONS = frozenset({"relu_", "leaky_relu_", "elu_", "selu_", "silu_", "hardswish_", "dropout_", "relu6_", "gelu_"})


def _hides(returned: Returned, change: Mutated) -> bool:
    """Whether a call that was given the tensor changed it and gave back another one."""
    called = returned.called
    return (
        called.index < change.index < returned.index
        and called.module is not change.by
        and any(argument is change.tensor for argument in called.arguments)
        and not any(tensor is change.tensor for _, tensor in returned.outputs)
    )


def _adds(made: Made, change: Mutated) -> bool:
    return made.op in ("add", "add_", "sub") and any(edge.tensor is change.tensor for edge in made.inputs)


def fix(finding: Finding, code: Code) -> Fix | None:
    return code.fix("Drop `inplace=True`", code.drop_keyword(code.call(finding.span), "inplace"))
