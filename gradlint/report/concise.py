"""One line per finding, for terminals with links and for `grep`."""

from __future__ import annotations

from gradlint.report import Report


def render(report: Report) -> str:
    lines = [f"{report.place(f.span)}: {f.code} {f.name} {' '.join(f.message.split())}" for f in report.findings]
    return "\n".join([*lines, report.summary()]) + "\n"
