"""As GitLab's code quality report, for the widget and the changes of a merge request."""

from __future__ import annotations

import hashlib
import json

from gradlint.report import Report, repository
from gradlint.report.fingerprint import fingerprints

_SEVERITIES = {"error": "critical", "warning": "major", "info": "info"}


def render(report: Report) -> str:
    root = repository.root()
    told: list[dict[str, object]] = []
    for finding, own in zip(report.findings, fingerprints(report, report.findings), strict=True):
        path = repository.told(finding.span.path, root)
        cell, inside = report.cell(finding.span)
        # A cell has no line that the reader of the file could count, and GitLab wants one.
        begin, end = (inside.line, inside.end_line) if cell is None else (1, 1)
        message = " ".join(finding.message.split())
        lines = [message if cell is None else f"{message} (cell {cell}, line {inside.line})"]
        lines += [f"Instead: {finding.instead}"] if finding.instead else []
        told.append(
            {
                "description": "\n".join(lines),
                "check_name": finding.name,
                # GitLab wants one per finding of the whole project.
                "fingerprint": hashlib.sha256(f"{path}\n{own}".encode()).hexdigest()[:32],
                "severity": _SEVERITIES[finding.severity],
                "location": {"path": path, "lines": {"begin": max(begin, 1), "end": max(end, begin, 1)}},
            }
        )
    return json.dumps(told, indent=2) + "\n"
