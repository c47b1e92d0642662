"""Findings and a recorded run in, verdicts out.

A finding is a claim about the real run.  To confirm it is to read the same rule against the recorded trace, and to ask
whether it speaks about the same place.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gradlint.record.read import PLACES, RecordedSite, Recording
from gradlint.rule import Because, Claim, Finding, Judgement, Rule, Verdict
from gradlint.rules import rules
from gradlint.trace import YES, Backward, Cut, Made, Mutated, Span, Stepped, Tensor, leaves


def judge(findings: Sequence[Finding], found: Sequence[Recording]) -> list[Judgement]:
    """The verdict on each finding."""
    by_name = {rule.name: rule for rule in rules()}
    judgements = []
    for number, finding in enumerate(findings):
        rule = by_name.get(finding.name)
        each = [_judge(finding, number, rule, recording) for recording in found if recording.torch] if rule else []
        judgements.append(_merged(finding, each, found))
    return judgements


COPIES = "keep copies"
"""The way to leave out what changes a tensor that backward needs."""

_ORDER = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED, Verdict.NOT_REACHED)


def _merged(finding: Finding, each: list[tuple[str, Judgement]], found: Sequence[Recording]) -> Judgement:
    if not each:
        error = next((r.error for r in found if r.error), None)
        why = f"the program ended before it used torch: {error[0]}: {error[1]}" if error else "no torch was seen"
        return Judgement(finding, Verdict.NOT_REACHED, why)
    best = min(each, key=lambda pair: _ORDER.index(pair[1].verdict))[1]
    ranks = tuple(int(rank) for rank, j in each if rank.isdigit() and j.verdict is best.verdict)
    return dataclasses.replace(best, ranks=ranks)


def _judge(finding: Finding, number: int, rule: Rule, recording: Recording) -> tuple[str, Judgement]:
    claims = [c for c in rule.check(recording.trace) if c.site.known]
    matching = [c for c in claims if meets(c.site.span, finding.span)]
    trace = recording.trace
    if rule.confirm is not None and not matching:
        matching = [c for c in rule.confirm(trace) if c.site.known and meets(c.site.span, finding.span)]
    if rule.on_every_path and not trace.complete and not recording.steps:
        # What did not happen may still have been to come.
        matching = []
    said = _torch_says(rule, recording, finding)
    if said is not None and not matching:
        return recording.rank, Judgement(
            finding, Verdict.CONFIRMED, f"torch raised {said[0]}: {_first_line(said[1])}", (), measured(recording)
        )
    if matching:
        claim = matching[0]
        evidence = measured(recording)
        reason = consequence(rule, claim, recording) or f"{claim.message}, in {_run_of(recording)}"
        return recording.rank, Judgement(finding, Verdict.CONFIRMED, reason, _because(claim), evidence)
    path = os.path.realpath(finding.span.path)
    if path in recording.files:
        ran = number * PLACES in recording.reached
    else:
        # Not instrumented, so that only what torch was asked for is known to have run.
        ran = any(meets(site.span, finding.span) for site in recording.sites.get(path, ()))
    steps, backwards = recording.steps, len(trace.told(Backward))
    if not ran:
        return recording.rank, Judgement(finding, Verdict.NOT_REACHED, _unreached(recording, path))
    evidence = measured(recording)
    lost = _silent_behind(recording, finding.span) if rule.page.code.startswith("GL1") else []
    if lost:
        some = _name(recording, lost[0]) + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
        reason = (
            f"the value left the graph here, and {some} behind it got no gradient in {_counted(backwards, 'backward')}"
        )
        return recording.rank, Judgement(finding, Verdict.CONFIRMED, reason, (), evidence)
    if rule.on_every_path and not trace.complete and not steps:
        return recording.rank, Judgement(
            finding, Verdict.UNDECIDED, "the program ended before it could be told", (), evidence
        )
    missing = _missing(finding, number, recording)
    if missing is not None:
        verdict = Verdict.UNDECIDED
        reason = (
            f"line {missing.span.line} ({missing.text}) did not run in {_counted(steps, 'step')}: what comes of it is "
            "not known"
        )
    elif rule.page.code.startswith("GL1") and any(
        c.site.known and meets(c.site.span, finding.span) for c in recording.away
    ):
        verdict = Verdict.UNDECIDED
        reason = "the value left torch here, and what became of it outside cannot be followed"
    elif rule.page.code.startswith("GL2") and _is_hidden(recording, finding.span):
        verdict = Verdict.UNDECIDED
        reason = "what was kept for backward is kept by hooks (checkpointing, offloading), and cannot be seen"
    elif not backwards:
        verdict, reason = Verdict.UNDECIDED, "the place ran, but no backward followed"
    elif trace.cut_short and 0 < _most_steps(recording) < rule.steps:
        verdict = Verdict.UNDECIDED
        reason = f"only {_counted(_most_steps(recording), 'step')} ran, and it takes {rule.steps} to tell"
    elif recording.error and not steps and recording.failures:
        verdict = Verdict.UNDECIDED
        reason = f"the program ended before its first step: {recording.error[0]}: {_first_line(recording.error[1])}"
    else:
        verdict = Verdict.REFUTED
        reason = f"did not happen in {_run_of(recording)}"
    return recording.rank, Judgement(finding, verdict, reason, (), evidence)


def _is_hidden(recording: Recording, span: Span) -> bool:
    """Whether a write at `span` changed what an operation may have kept where it cannot be seen."""
    written = {
        id(m.storage): m.index for m in recording.trace.told(Mutated) if m.site.known and meets(m.site.span, span)
    }
    return bool(written and recording.hidden) and any(
        made.index < written.get(id(tensor.storage), -1)
        for made in recording.trace.told(Made)
        if id(made.node) in recording.hidden
        for tensor in (made.output, *(edge.tensor for edge in made.inputs))
    )


def _most_steps(recording: Recording) -> int:
    """The steps of the optimizer that stepped most, or those by hand."""
    steps = Counter(id(step.optimizer) for step in recording.trace.told(Stepped))
    return max(steps.values(), default=recording.steps)


def _missing(finding: Finding, number: int, recording: Recording) -> Because | None:
    """The first place in the finding's story that did not run."""
    for place, because in enumerate(finding.because[: PLACES - 1], 1):
        instrumented = os.path.realpath(because.span.path) in recording.files
        if instrumented and number * PLACES + place not in recording.reached:
            return because
    return None


def _torch_says(rule: Rule, recording: Recording, finding: Finding) -> tuple[str, str] | None:
    """The error with which torch itself refuses what the rule is about, where it was raised in the finding's story."""
    if not rule.raises:
        return None
    spans = (finding.span, *(because.span for because in finding.because))
    for failure in recording.failures:
        known = failure.site.known and any(meets(failure.site.span, one) for one in spans)
        if known and re.search(rule.raises, failure.message):
            return failure.kind, failure.message
    if recording.error is not None and recording.error_line is not None:
        path, line = recording.error_line
        inside = any(
            one.line <= line <= one.end_line and os.path.realpath(path) == os.path.realpath(one.path) for one in spans
        )
        if inside and re.search(rule.raises, recording.error[1]):
            return recording.error
    return None


def _silent_behind(recording: Recording, span: Span) -> list[Tensor]:
    """The trained parameters behind a cut at `span` whose gradient never came, on whatever way.

    A value that went through Python's own arithmetic cannot be followed to the loss; that nothing came back can be
    seen.
    """
    trace = recording.trace
    optimized = {id(p) for step in trace.told(Stepped) for p in step.optimizer.parameters}
    reached = {id(leaf) for b in trace.told(Backward) for leaf in leaves(b.edge.grad_fn)}
    silent: dict[int, Tensor] = {}
    for cut in trace.told(Cut):
        if cut.site.known and cut.source.requires_grad is YES and meets(cut.site.span, span):
            for leaf in leaves(cut.source.grad_fn):
                if id(leaf) in optimized and id(leaf) not in reached:
                    silent[id(leaf)] = leaf
    return list(silent.values())


def _unreached(recording: Recording, path: str) -> str:
    if path not in recording.files:
        return "the file was not imported in this run"
    if recording.error is not None:
        return f"the line did not run: the program ended with {recording.error[0]}: {_first_line(recording.error[1])}"
    if not recording.ended:
        return f"the line did not run in the {_counted(recording.steps, 'step')} before the process was cut off"
    return f"the line did not run in {_counted(recording.steps, 'step')}"


def seen(found: Sequence[Recording], judgements: Sequence[Judgement]) -> list[Judgement]:
    """What the rules say of the recorded traces at places where no finding was: only the run shows it."""
    judged: dict[tuple[str, Span], Judgement] = {}
    for recording, rule, claim in _unexpected(found, judgements):
        finding = Finding(
            name=rule.name,
            code=rule.page.code,
            severity=rule.page.severity,
            span=claim.site.span,
            message=claim.message,
            because=_because(claim),
            instead=claim.instead,
        )
        judged.setdefault(
            (rule.name, claim.site.span),
            Judgement(
                finding,
                Verdict.CONFIRMED,
                consequence(rule, claim, recording) or f"seen in {_run_of(recording)}",
                (),
                measured(recording),
            ),
        )
    return sorted(judged.values(), key=lambda j: (j.finding.span, j.finding.code))


def _because(claim: Claim) -> tuple[Because, ...]:
    return tuple(Because(r.site.span, r.text) for r in claim.because if r.site.known)


def _unexpected(found: Sequence[Recording], judgements: Sequence[Judgement]) -> Iterator[tuple[Recording, Rule, Claim]]:
    said = {(j.finding.name, j.finding.span) for j in judgements}
    confirmed = {j.finding.span for j in judgements if j.verdict is Verdict.CONFIRMED}
    for recording in found:
        for rule in rules():
            if rule.page.severity == "info" or not rule.alone or (rule.on_every_path and not recording.trace.complete):
                continue
            for claim in {c.site: c for c in rule.check(recording.trace) if c.site.known}.values():
                span = claim.site.span
                chance = rule.on_every_path and recording.trace.cut_short
                if chance and isinstance(claim.site, RecordedSite) and claim.site.file.under_condition(claim.site):
                    # Later it may go the other way.
                    continue
                if span not in confirmed and not any(name == rule.name and meets(span, other) for name, other in said):
                    yield recording, rule, claim


def meets(one: Span, other: Span) -> bool:
    """Whether two spans are about the same place: one holds the other, or begins where it does."""
    if os.path.realpath(one.path) != os.path.realpath(other.path):
        return False
    starts, ends = (one.line, one.column), (one.end_line, one.end_column)
    begins, finishes = (other.line, other.column), (other.end_line, other.end_column)
    return (starts <= begins and finishes <= ends) or (begins <= starts and ends <= finishes)


def measured(recording: Recording) -> dict[str, object]:
    """The numbers of a run that every judgement carries."""
    trace = recording.trace
    evidence: dict[str, object] = {
        "steps": recording.steps,
        "backwards": len(trace.told(Backward)),
        "ended": recording.ended,
    }
    if recording.failures:
        failure = recording.failures[-1]
        evidence["raised"] = {"type": failure.kind, "message": failure.message}
    if recording.measured:
        first = recording.measured[0]
        evidence["gradients"] = {
            "none": [_name(recording, t) for t, wants, norm in first.gradients if norm is None and wants],
            "zero": [_name(recording, t) for t, _, norm in first.gradients if norm == 0],
            "nonfinite": [
                _name(recording, t) for t, _, norm in first.gradients if norm is not None and not math.isfinite(norm)
            ],
            "of": len(first.gradients),
        }
    return evidence


def consequence(rule: Rule, claim: Claim, recording: Recording) -> str:
    """What came of it, in numbers; '' where nothing was measured."""
    family = rule.page.code[:3]
    written = [m for m in recording.trace.told(Mutated) if m.site is claim.site and id(m) in recording.changed]
    if family == "GL2" and written:
        changed, of = recording.changed[id(written[0])]
        return f"{changed} of {of} values changed, and the version counter that backward checks did not move"
    refuses = rule.raises or ("modified by an inplace operation" if family == "GL2" else "")
    for failure in recording.failures if refuses else ():
        if re.search(refuses, failure.message):
            return f"torch raised {failure.kind}: {_first_line(failure.message)}"
    if rule.neutralise == "zero_grad":
        return _stale(claim, recording)
    first = recording.measured[0] if recording.measured else None
    none = [t for t, wants, norm in first.gradients if norm is None and wants] if first is not None else []
    # Of other parameters without a gradient, other findings tell.
    meant = [name for t in none if f"`{(name := _name(recording, t))}`" in claim.message]
    if family in ("GL1", "GL4") and first is not None and meant:
        kind = first.optimizer.kind if first.optimizer is not None else "the model"
        backwards = sum(b.index < first.index for b in recording.trace.told(Backward))
        learn = "learns" if len(none) == 1 else "learn"
        return (
            f"{meant[0]}: grad None after {_counted(backwards, 'backward')}; "
            f"{len(none)} of {len(first.gradients)} parameters of `{kind}` {learn} nothing"
        )
    return ""


def _stale(claim: Claim, recording: Recording) -> str:
    """How much of a step's gradient the step before had used already."""
    steps = [s for s in recording.trace.told(Stepped) if any(r.site is s.site for r in claim.because)]
    for step in steps:
        measured = [m for m in recording.measured if m.optimizer is step.optimizer]
        if len(measured) > 1:
            there = [n for _, _, n in measured[0].gradients if n]
            old, new = (math.sqrt(sum(n * n for _, _, n in m.gradients if n)) for m in measured[:2])
            return (
                f"{len(there)} of {len(measured[0].gradients)} parameters of `{step.optimizer.kind}` still held the "
                f"gradients of the step before, of norm {old:.4g}; the next step used their sum, of norm {new:.4g}"
            )
    return ""


def _run_of(recording: Recording) -> str:
    backwards = len(recording.trace.told(Backward))
    return f"{_counted(recording.steps, 'step')} and {_counted(backwards, 'backward')} of this run"


def _name(recording: Recording, tensor: Tensor) -> str:
    return recording.names.get(id(tensor)) or tensor.name or "a parameter"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _first_line(message: str) -> str:
    line = message.strip().splitlines()[0] if message.strip() else ""
    return line if len(line) <= 120 else line[:117] + "..."


def way_without(finding: Finding) -> str:
    """How a run can leave the fault of a finding out; '' where there is no way."""
    return next((rule.neutralise for rule in rules() if rule.name == finding.name), "")


def in_the_way(judgements: Sequence[Judgement], found: Sequence[Recording]) -> Judgement | None:
    """The confirmed fault at which the program ended before its first step, so that the rest was not seen."""
    stopped = any(r.error is not None and not r.steps and any(f.backward for f in r.failures) for r in found)
    if not stopped:
        return None
    return next((j for j in judgements if j.verdict is Verdict.CONFIRMED and way_without(j.finding) == COPIES), None)


def beyond(first: Sequence[Judgement], second: Sequence[Judgement], fault: Judgement) -> list[Judgement]:
    """The verdicts of a run that ended at `fault`, and where it could not tell, those of a run without it."""
    told = f"line {fault.finding.span.line}"
    joined = []
    for one, other in zip(first, second, strict=True):
        open_yet = one.verdict in (Verdict.UNDECIDED, Verdict.NOT_REACHED)
        decided = other.verdict in (Verdict.CONFIRMED, Verdict.REFUTED)
        better = dataclasses.replace(other, reason=f"{other.reason} (in a run without the fault of {told})")
        joined.append(better if open_yet and decided else one)
    return joined


def proof(run: Recording, again: Recording) -> str:
    """What changed where the fault was left out; `again` is a repeated plain run, whose differences are noise."""
    if not run.neutralised:
        return ""
    if not again.compared:
        # Without the fault the program comes further than with it.
        steps = _counted(run.steps, "step")
        return f"with it left out, the program takes {steps}" if run.steps > again.steps else ""
    noise = max((c.difference for c in again.compared), default=0.0)
    changed = [c for c in run.compared if c.difference > max(10 * noise, 1e-4)]
    if not changed:
        return "with it left out, every gradient is the same"
    first = min(c.step for c in changed)
    changed = sorted((c for c in changed if c.step == first), key=lambda c: -c.difference)
    shown = next((c for c in changed if c.before is None), changed[0])
    name = _name(run, shown.tensor)
    was = "None" if shown.before is None else f"{shown.before:.4g}"
    now = "None" if shown.now is None else f"{shown.now:.4g}"
    off = "" if shown.before is None or shown.now is None else f" (off by {100 * shown.difference:.3g} %)"
    more = f", and {len(changed) - 1} more change" if len(changed) > 1 else ""
    if noise:
        more += f"; two equal runs differ by up to {100 * noise:.2g} %"
    return (
        f"with it left out, the norm of the gradient of {name} is {now} instead of {was}{off} in step {first + 1}{more}"
    )
