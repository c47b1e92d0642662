"""As JUnit's XML, which every CI server reads: a suite per file, a failure per finding, a pass for a clean file."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from gradlint.report import Report, repository
from gradlint.rule import Finding

# What XML cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    root = repository.root()
    found: dict[str, list[Finding]] = {path: [] for path in report.sources}
    for finding in report.findings:
        found.setdefault(finding.span.path, []).append(finding)
    tests = sum(max(1, len(findings)) for findings in found.values())
    failures = len(report.findings)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites name="gradlint" tests="{tests}" failures="{failures}" errors="0" time="0">',
    ]
    for path, findings in found.items():
        name = _attribute(repository.told(path, root))
        counts = f'tests="{max(1, len(findings))}" failures="{len(findings)}" errors="0" skipped="0" time="0"'
        lines.append(f"  <testsuite name={name} {counts}>")
        lines += [line for finding in findings for line in _case(report, finding, name)]
        if not findings:
            lines.append(f'    <testcase name="no findings" classname={name} time="0"/>')
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _case(report: Report, finding: Finding, name: str) -> list[str]:
    message = " ".join(finding.message.split())
    place = report.place(finding.span)
    text = [f"{place}: {message}", *(f"{report.place(link.span)}: {link.text}" for link in finding.because)]
    text += [f"instead: {finding.instead}"] if finding.instead else []
    cell, inside = report.cell(finding.span)
    line = "" if cell is not None else f' file={name} line="{inside.line}"'
    case = _attribute(f"{finding.name} ({finding.code}) at {place.removeprefix(finding.span.path).lstrip(':')}")
    failure = f"<failure message={_attribute(message)} type={_attribute(finding.severity)}>"
    return [
        f'    <testcase name={case} classname={name}{line} time="0">',
        f"      {failure}{escape(_shown(chr(10).join(text)))}</failure>",
        "    </testcase>",
    ]


def _attribute(text: str) -> str:
    return quoteattr(_shown(text))


def _shown(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
