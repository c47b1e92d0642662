"""Findings in the words of the protocol."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
    Position,
    PositionEncodingKind,
    Range,
)
from pygls import uris

from gradlint.rule import Finding, Verdict
from gradlint.rules import __path__ as _rules_path
from gradlint.rules import rules
from gradlint.server.project import Project
from gradlint.server.text import Text
from gradlint.server.verdicts import Verdicts
from gradlint.trace import Span

SOURCE = "gradlint"

_SEVERITIES = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "info": DiagnosticSeverity.Information,
}


def told(
    project: Project, path: str, encoding: PositionEncodingKind | str, verdicts: Verdicts
) -> dict[str, list[Diagnostic]]:
    """What is told of the file at `path`, by the URI of the document that shows it."""
    told = with_findings(project, path, encoding, verdicts)
    return {uri: [diagnostic for _, diagnostic in pairs] for uri, pairs in told.items()}


def with_findings(
    project: Project, path: str, encoding: PositionEncodingKind | str, verdicts: Verdicts
) -> dict[str, list[tuple[Finding, Diagnostic]]]:
    """As `told`, with the findings that are told."""
    buffer = project.buffers.get(path)
    shown = [uri for uri, _ in buffer.parts()] if buffer is not None else [uri_of(path)]
    found: dict[str, list[tuple[Finding, Diagnostic]]] = {uri: [] for uri in shown}
    for finding in project.told(path):
        place = location(project, finding.span, encoding)
        diagnostic = _diagnostic(project, finding, place.range, encoding, verdicts)
        found.setdefault(place.uri, []).append((finding, diagnostic))
    return found


def _diagnostic(
    project: Project, finding: Finding, range_: Range, encoding: PositionEncodingKind | str, verdicts: Verdicts
) -> Diagnostic:
    lines = [finding.message]
    verdict = verdicts.of(project, finding)
    if verdict is not None:
        lines.append(f"{verdict.verdict.value}: {verdict.reason}")
    if finding.instead:
        lines.append(f"instead: {finding.instead}")
    severity = _SEVERITIES[finding.severity]
    if verdict is not None and verdict.verdict is Verdict.REFUTED:
        severity = DiagnosticSeverity.Hint
    return Diagnostic(
        range=range_,
        message="\n".join(lines),
        severity=severity,
        code=finding.name,
        code_description=CodeDescription(page_uri(finding.name)) if _page_file(finding.name) else None,
        source=SOURCE,
        tags=[DiagnosticTag.Unnecessary] if finding.name in _dead_code() else None,
        related_information=[
            DiagnosticRelatedInformation(location(project, link.span, encoding), link.text) for link in finding.because
        ],
        data=data(finding),
    )


def data(finding: Finding) -> dict[str, Any]:
    """What names a finding when the client comes back to it."""
    return {"name": finding.name, "span": [*finding.span], "message": finding.message}


def location(project: Project, span: Span, encoding: PositionEncodingKind | str) -> Location:
    """Where a client shows a span."""
    buffer = project.buffers.get(span.path)
    if buffer is not None:
        return buffer.location(span)
    uri = uri_of(span.path)
    source = project.source(span.path)
    if source is None or source.cells:
        return Location(uri, Range(Position(0, 0), Position(0, 0)))
    text = Text(source.text, encoding)
    return Location(uri, text.range(span.line, span.column, span.end_line, span.end_column))


def uri_of(path: str) -> str:
    """The URI of a file."""
    return uris.from_fs_path(path) or path


def page_uri(name: str) -> str:
    """The URI of the file that holds a rule's page."""
    return uri_of(str(_page_file(name)))


def _page_file(name: str) -> Path | None:
    file = Path(list(_rules_path)[-1]) / f"{name.replace('-', '_')}.md"
    return file if file.is_file() else None


@functools.cache
def _dead_code() -> frozenset[str]:
    return frozenset(rule.name for rule in rules() if rule.dead_code)
