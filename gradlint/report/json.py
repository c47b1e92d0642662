"""For programs: an array with the field names of Ruff's JSON, and what a finding has beyond those."""

from __future__ import annotations

import json

from gradlint.report import Report, absolute
from gradlint.rule import Because, Finding, Fix
from gradlint.trace import Span


def render(report: Report) -> str:
    return json.dumps([finding_fields(report, finding) for finding in report.findings], indent=2) + "\n"


def finding_fields(report: Report, finding: Finding) -> dict[str, object]:
    """A finding as a program reads it."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "message": finding.message,
        **_place(report, finding.span),
        "because": [because(report, link) for link in finding.because],
        "instead": finding.instead or None,
        "fix": _fix(report, finding.fix) if finding.fix is not None else None,
        "url": None,
    }


def _fix(report: Report, fix: Fix) -> dict[str, object]:
    return {
        "applicability": "safe" if fix.safe else "unsafe",
        "message": fix.message,
        "edits": [{"content": edit.text, **_place(report, edit.span)} for edit in fix.edits],
    }


def because(report: Report, link: Because) -> dict[str, object]:
    """One link of the chain that explains a finding."""
    return {"message": link.text, **_place(report, link.span)}


def _place(report: Report, span: Span) -> dict[str, object]:
    cell, inside = report.cell(span)
    return {
        "filename": absolute(span.path),
        "cell": cell,
        "location": {"row": inside.line, "column": inside.column},
        "end_location": {"row": inside.end_line, "column": inside.end_column},
    }
