"""As workflow commands, which GitHub Actions shows as annotations in the changed files of a pull request.

GitHub shows ten errors, ten warnings and ten notices of a step and leaves the others in its log, where it prints of a
command nothing but the message.  So the message names the place too, and the last lines say that there are more.
"""

from __future__ import annotations

from collections import Counter

from gradlint.report import Report, repository
from gradlint.rule import Finding

SHOWN = 10
"""So many annotations of a kind are shown for a step."""
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report) -> str:
    root = repository.root()
    lines = [_command(report, finding, root) for finding in report.findings]
    lines.append(report.summary())
    counts = Counter(_COMMANDS[finding.severity] for finding in report.findings)
    if any(count > SHOWN for count in counts.values()):
        lines.append(f"GitHub shows {SHOWN} annotations of a kind; all findings are in the lines above.")
    return "\n".join(lines) + "\n"


def _command(report: Report, finding: Finding, root: str) -> str:
    properties = {"title": f"{finding.name} ({finding.code})"}
    span = finding.span
    if span.path != "-":
        properties["file"] = repository.told(span.path, root)
        # A cell has no line that GitHub could point to; the message says the place.
        if report.cell(span)[0] is None:
            properties |= {"line": str(max(span.line, 1)), "endLine": str(max(span.end_line, span.line, 1))}
            # GitHub takes columns within one line only.
            if span.end_line == span.line and 0 < span.column <= span.end_column:
                properties |= {"col": str(span.column), "endColumn": str(span.end_column)}
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    lines = [f"{report.place(span)}: {finding.code} {finding.name} {' '.join(finding.message.split())}"]
    lines += [f"{report.place(link.span)}: {link.text}" for link in finding.because]
    lines += [f"instead: {finding.instead}"] if finding.instead else []
    return f"::{_COMMANDS[finding.severity]} {told}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
