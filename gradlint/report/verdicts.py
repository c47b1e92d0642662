"""The verdicts of a real run, as text for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gradlint.report import Report, full, gradients
from gradlint.report.full import Piece
from gradlint.report.json import because, finding_fields
from gradlint.rule import Judgement, Verdict

if TYPE_CHECKING:
    from gradlint.confirmation import Confirmation

_LONG = 160
_STYLES = {
    Verdict.CONFIRMED: "red bold",
    Verdict.REFUTED: "green bold",
    Verdict.NOT_REACHED: "blue bold",
    Verdict.UNDECIDED: "yellow bold",
}


def pieces(confirmation: Confirmation) -> Iterator[Piece]:
    """The verdicts, then the gradient report, as styled text."""
    report = confirmation.report
    for judgement in confirmation.confirmed:
        yield from _confirmed(report, judgement)
        yield "\n", ""
    others = [j for j in confirmation.judgements if j.verdict is not Verdict.CONFIRMED]
    for judgement in others:
        yield from _line(report, judgement)
    if others:
        yield "\n", ""
    if confirmation.gradients is not None:
        sources = {path: source.text for path, source in report.sources.items()}
        yield from gradients.pieces(confirmation.gradients, sources)
        yield "\n", ""
    yield f"{summary(confirmation)}\n", ""


def render(confirmation: Confirmation) -> str:
    """The same as plain text."""
    return "".join(text for text, _ in pieces(confirmation))


def summary(confirmation: Confirmation) -> str:
    """One line that counts, and says of how much of which run."""
    counts = Counter(j.verdict for j in confirmation.judgements)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    if confirmation.seen:
        parts.append(f"{len(confirmation.seen)} more seen only by running")
    steps = f"{confirmation.steps} step{'s' * (confirmation.steps != 1)} of `{confirmation.command}`"
    verdicts = ", ".join(parts) if parts else "no findings to judge"
    ended = confirmation.ended if len(confirmation.ended) <= _LONG else confirmation.ended[: _LONG - 3] + "..."
    return f"{verdicts[0].upper()}{verdicts[1:]} ({steps}; the program {ended})."


def _confirmed(report: Report, judgement: Judgement) -> Iterator[Piece]:
    finding = judgement.finding
    if judgement.because:
        finding = dataclasses.replace(finding, because=judgement.because)
    head = [
        (f"confirmed[{finding.code}]", _STYLES[Verdict.CONFIRMED]),
        (f" {finding.name}: {' '.join(finding.message.split())}\n", "bold"),
    ]
    ranks = f" (rank {', '.join(map(str, judgement.ranks))})" if judgement.ranks else ""
    footers = [("verdict", f"confirmed{ranks}: {judgement.reason}")]
    if judgement.proof:
        footers.append(("proof", judgement.proof))
    yield from full.told(report, finding, head, footers)


def _line(report: Report, judgement: Judgement) -> Iterator[Piece]:
    finding = judgement.finding
    yield judgement.verdict.value, _STYLES[judgement.verdict]
    yield f"  {report.place(finding.span)} {finding.code} {finding.name}: {judgement.reason}\n", ""


def render_json(confirmation: Confirmation) -> str:
    """Everything that is known of the run, with stable keys."""
    report = confirmation.report
    told = {
        "command": confirmation.command,
        "ended": confirmation.ended,
        "steps": confirmation.steps,
        "findings": [_fields(report, j) for j in confirmation.judgements],
        "seen": [_fields(report, j) for j in confirmation.seen],
        "gradients": dataclasses.asdict(confirmation.gradients) if confirmation.gradients is not None else None,
        "notes": list(confirmation.notes),
    }
    return json.dumps(_plain(told), indent=2, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """The same in what JSON has: enums by their values, and infinities by their names."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _fields(report: Report, judgement: Judgement) -> dict[str, object]:
    return {
        **finding_fields(report, judgement.finding),
        "verdict": judgement.verdict.value,
        "reason": judgement.reason,
        "ran": [because(report, link) for link in judgement.because],
        "evidence": dict(judgement.evidence),
        "proof": judgement.proof or None,
        "ranks": list(judgement.ranks),
    }
