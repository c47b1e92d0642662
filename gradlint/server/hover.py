"""What an editor shows at a place: why there is a finding, with the rule's page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from gradlint.rule import Because, Finding, Verdict
from gradlint.selection import catalog
from gradlint.server import diagnostics
from gradlint.server.buffers import Buffer
from gradlint.server.project import Project
from gradlint.server.verdicts import Verdicts
from gradlint.shadow.look import Fact, State


def findings(here: Sequence[Finding], verdicts: Verdicts, project: Project) -> str:
    """The findings at one place as Markdown, the page of each rule once."""
    parts = []
    for finding in here:
        lines = [f"**{finding.code} {finding.name}**: {finding.message}", ""]
        lines += [f"* {_link(finding, link)}" for link in finding.because]
        if finding.instead:
            lines += ["", f"**Instead:** {finding.instead}"]
        verdict = verdicts.of(project, finding)
        if verdict is not None:
            lines += ["", f"**{verdict.verdict.value.capitalize()}:** {verdict.reason}"]
        parts.append("\n".join(lines))
    names = dict.fromkeys(finding.name for finding in here)
    parts += [catalog().page(name).text.strip() for name in names]
    return "\n\n---\n\n".join(parts)


def _link(finding: Finding, link: Because) -> str:
    line = link.span.line
    if link.span.path != finding.span.path:
        place = f"[{os.path.basename(link.span.path)}:{line}]({diagnostics.uri_of(link.span.path)}#L{line})"
    else:
        place = f"line {line}"
    return f"{link.text} ({place})"


def states(known: Sequence[State], buffer: Buffer) -> str:
    """What a tensor is, each time that the program comes by, as Markdown."""
    lines = [" · ".join(_fact(fact, buffer) for fact in state) for state in known]
    if len(lines) < 2:
        return "".join(lines)
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _fact(fact: Fact, buffer: Buffer) -> str:
    span = fact.span
    if span is None:
        return fact.text
    if span.path != buffer.path:
        return f"{fact.text}, [{os.path.basename(span.path)}:{span.line}]({diagnostics.uri_of(span.path)}#L{span.line})"
    # In a notebook this is the line of its cell.
    return f"{fact.text}, line {buffer.location(span).range.start.line + 1}"


def count(title: str, inside: Sequence[Finding], verdicts: Verdicts, project: Project) -> str:
    """One line that counts the findings of a training loop or a module."""
    told = Counter(verdict.verdict for finding in inside if (verdict := verdicts.of(project, finding)) is not None)
    number = f"{len(inside)} finding{'s' * (len(inside) != 1)}" if inside else "no findings"
    words = [f"{told[verdict]} {verdict.value}" for verdict in Verdict if told[verdict]]
    return f"{title}: {number}" + (f" ({', '.join(words)})" if words else "")
