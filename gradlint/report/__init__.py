"""What a run found, and one module per way of telling it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gradlint.page import SEVERITIES
from gradlint.rule import Finding
from gradlint.sources import Source
from gradlint.trace import Span


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a run, in the order to tell them."""

    findings: list[Finding]
    sources: Mapping[str, Source]
    checked: int
    """How many files were looked at, unreadable ones included."""
    warnings: Sequence[str] = field(default_factory=list)
    """What the user should know of the run itself."""
    unlinted: int = 0
    """How many files the run was stopped before."""
    cut: Sequence[str] = ()
    """What used up its budget of interpreted steps, so that a part of it stays unknown."""
    fixed: int = 0
    """How many findings were repaired, and are not among `findings`."""

    def cell(self, span: Span) -> tuple[int | None, Span]:
        """The notebook cell that `span` is in and the span within it; no cell in a plain file."""
        source = self.sources.get(span.path)
        if source is None:
            return None, span
        cell, line = source.place(span.line)
        return cell, span._replace(line=line, end_line=span.end_line - span.line + line)

    def place(self, span: Span) -> str:
        """Where `span` begins, as `path:line:column`, or `path:cell 3:line:column` in a notebook."""
        cell, inside = self.cell(span)
        path = span.path if cell is None else f"{span.path}:cell {cell}"
        return f"{path}:{inside.line}:{inside.column}"

    def summary(self) -> str:
        """One line that counts."""
        checked = f"{self.checked} file{'s' * (self.checked != 1)} checked"
        fixed = f"Fixed {self.fixed} finding{'s' * (self.fixed != 1)}. " if self.fixed else ""
        if not self.findings:
            return f"{fixed}No findings{' left' * bool(fixed)} ({checked})."
        counts = Counter(finding.severity for finding in self.findings)
        parts = [
            f"{counts[severity]} {severity}{'s' * (counts[severity] != 1 and severity != 'info')}"
            for severity in SEVERITIES
            if counts[severity]
        ]
        files = len({finding.span.path for finding in self.findings})
        found = f"Found {', '.join(parts)} in {files} file{'s' * (files != 1)} ({checked})."
        return " ".join([fixed + found, *self.fixable()])

    def fixable(self) -> list[str]:
        """One sentence on what can be repaired, none where nothing can."""
        safe, unsafe = (
            sum(f.fix is not None and f.fix.safe is wanted for f in self.findings) for wanted in (True, False)
        )
        more = f"{unsafe}{' more' * bool(safe)} with `--fix --unsafe-fixes`" if unsafe else ""
        told = [*([f"{safe} with `--fix`"] if safe else []), *([more] if more else [])]
        return [f"To be fixed: {', '.join(told)}."] if told else []


def absolute(path: str) -> str:
    """The path for programs that read a report; the standard input's `-` stays."""
    return path if path == "-" else os.path.abspath(path)
