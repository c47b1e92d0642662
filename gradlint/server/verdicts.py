"""What real runs said of findings, for as long as the line of each is as it was."""

from __future__ import annotations

from typing import NamedTuple

from gradlint.rule import Finding, Verdict
from gradlint.server.project import Project


class Told(NamedTuple):
    """A verdict and why."""

    verdict: Verdict
    reason: str


class Verdicts:
    """The last verdict on each finding."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Told] = {}

    def of(self, project: Project, finding: Finding) -> Told | None:
        """What a run said of `finding`, None where none has."""
        return self._known.get(_key(project, finding)) if self._known else None

    def keep(self, project: Project, finding: Finding, told: Told) -> None:
        """Remember what a run said."""
        self._known[_key(project, finding)] = told


def _key(project: Project, finding: Finding) -> tuple[str, str, str]:
    """The finding by its rule, its path and the text of its line, wherever that stands now."""
    source = project.source(finding.span.path)
    line = source.line(finding.span.line) if source is not None else ""
    return finding.name, finding.span.path, line.strip()
