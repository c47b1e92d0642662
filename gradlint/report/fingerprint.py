"""The name by which a code host knows a finding again in the next report."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from gradlint.report import Report
from gradlint.rule import Finding


def fingerprints(report: Report, findings: Sequence[Finding]) -> list[str]:
    """For each finding what stays the same for as long as its line does, wherever in its file the line stands.

    It is of the rule, the line without its spaces, and which one of this kind it is in its file; not of the file.
    """
    lines = {path: source.text.split("\n") for path, source in report.sources.items()}
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for finding in findings:
        path, number = finding.span.path, finding.span.line
        text = lines.get(path, [])
        line = "".join(text[number - 1].split()) if 0 < number <= len(text) else ""
        digest = hashlib.sha256(f"{finding.code}\n{line}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        seen[path, digest] += 1
        found.append(f"{digest}:{seen[path, digest]}")
    return found
