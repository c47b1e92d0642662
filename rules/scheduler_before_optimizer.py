import ast
from collections.abc import Iterator

from gradlint.edits import Code
from gradlint.rule import Claim, Finding, Fix, Reason
from gradlint.trace import SchedulerStepped, Stepped, Trace

on_every_path = True


def check(trace: Trace) -> Iterator[Claim]:
    for schedule in trace.told(SchedulerStepped):
        optimizer = schedule.optimizer
        if optimizer is None or not schedule.turns:
            continue
        steps = [step for step in trace.told(Stepped) if step.optimizer is optimizer]
        if steps and steps[0].index > schedule.index:
            yield Claim(
                schedule.site,
                "the scheduler steps before the optimizer: the first learning rate is skipped",
                (Reason(steps[0].site, "the optimizer's first step comes here"),),
                "call `scheduler.step()` after the epoch's optimizer steps",
            )


def fix(finding: Finding, code: Code) -> Fix | None:
    schedule = code.with_condition(code.statement(finding.span))
    last = code.block(schedule)[-1]
    if last is schedule or isinstance(last, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
        return None
    return code.fix("Move it behind the optimizer's step", code.move([schedule], after=last))
