"""What linting one file gives, whether it was linted now or by an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradlint.imports import Question
from gradlint.rule import Finding
from gradlint.trace import Span


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one file."""

    findings: tuple[Finding, ...]
    """In this file or in one that it imports."""
    asked: Mapping[Question, str]
    """The imports that were resolved, each with the path that was found, '' for none."""
    cut: tuple[str, ...] = ()
    """The entries that used up their budget: what is left of them stays unknown."""


def merged(outcomes: Iterable[Outcome]) -> list[Finding]:
    """All findings in the order of their places; of two by one rule at one place the first, in the order given."""
    kept: dict[tuple[str, Span], Finding] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            kept.setdefault((finding.name, finding.span), finding)
    return sorted(kept.values(), key=lambda f: (f.span, f.code, f.message))
