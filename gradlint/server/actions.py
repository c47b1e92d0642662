"""What can be done about findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    CodeActionParams,
    Command,
    Diagnostic,
    TextEdit,
    WorkspaceEdit,
)

from gradlint import suppress
from gradlint.faults import FAULTS
from gradlint.rule import Edit, Finding
from gradlint.server.buffers import Buffer
from gradlint.server.project import Project
from gradlint.sources import Source
from gradlint.trace import Span

EXPLAIN = "gradlint.explain"
CONFIRM = "gradlint.confirm"
FIX_ALL = "gradlint.fixAll"
FIX_ALL_KIND = f"{CodeActionKind.SourceFixAll.value}.gradlint"
NOTEBOOK_FIX_ALL_KIND = f"notebook.{FIX_ALL_KIND}"
KINDS: list[CodeActionKind | str] = [CodeActionKind.QuickFix, FIX_ALL_KIND, NOTEBOOK_FIX_ALL_KIND]

_FAULTS = {page.name for page in FAULTS}
_ALLOWED = re.compile(r"(?P<before>#\s*gradlint\s*:\s*allow\[[^\]]*)\]")


def offered(
    project: Project, buffer: Buffer, uri: str, told: Sequence[tuple[Finding, Diagnostic]], params: CodeActionParams
) -> list[CodeAction]:
    """The actions for the findings that a range touches.  `told` is what is told of the document."""
    only = params.context.only
    found: list[CodeAction] = []
    if _wants(only, CodeActionKind.QuickFix.value):
        for finding, diagnostic in told:
            if _touches(diagnostic, params):
                found += _about(project, buffer, uri, finding, diagnostic)
    return found


def _wants(only: Sequence[CodeActionKind | str] | None, kind: str) -> bool:
    if only is None:
        return True
    asked = [one.value if isinstance(one, CodeActionKind) else one for one in only]
    return any(kind == one or kind.startswith(f"{one}.") or not one for one in asked)


def _touches(diagnostic: Diagnostic, params: CodeActionParams) -> bool:
    return diagnostic.range.start <= params.range.end and params.range.start <= diagnostic.range.end


def _about(
    project: Project, buffer: Buffer, uri: str, finding: Finding, diagnostic: Diagnostic
) -> Iterator[CodeAction]:
    kind, name = CodeActionKind.QuickFix, finding.name
    if name not in _FAULTS:
        source = project.source(finding.span.path)
        allowed = allow(project, source, finding) if source is not None else None
        if allowed is not None:
            edit = workspace_edit(buffer, [allowed])
            yield CodeAction(f"Allow {name} here", kind, [diagnostic], edit=edit)
    title = f"Explain {name}"
    yield CodeAction(title, kind, [diagnostic], command=Command(title, EXPLAIN, arguments=[name]))
    if name not in _FAULTS:
        title = f"Confirm {name} by running the program"
        yield CodeAction(title, kind, [diagnostic], command=Command(title, CONFIRM, arguments=[uri, diagnostic.data]))


def allow(project: Project, source: Source, finding: Finding) -> Edit | None:
    """The comment that silences a finding, where one can stand; the user writes the reason."""
    number = finding.span.line
    lines = source.text.split("\n")
    if not 0 < number <= len(lines):
        return None
    line = lines[number - 1]
    indent = line[: len(line) - len(line.lstrip())]
    end, start = len(line.rstrip()) + 1, len(indent) + 1
    written = f"# gradlint: allow[{finding.name}] "
    edits = [
        Edit(Span(source.path, number, end, number, len(line) + 1), f"  {written}reason"),
        Edit(Span(source.path, number, start, number, start), f"{written}reason\n{indent}"),
    ]
    if (there := _ALLOWED.search(line)) is not None:
        column = there.end("before") + 1
        edits.insert(0, Edit(Span(source.path, number, column, number, column), f", {finding.name}"))
    meant = project.wanted(source.path).catalog.meant
    for edit in edits:
        # Not every line can end in a comment: a string or a backslash may go on.
        after = [*lines]
        span = edit.span
        after[number - 1] = line[: span.column - 1] + edit.text + line[span.end_column - 1 :]
        moved = finding.span._replace(line=number + edit.text.count("\n"))
        text = "\n".join(after)
        if replace(finding, span=moved) in suppress.read(Source(source.path, text, source.cells), meant):
            return edit
    return None


def workspace_edit(buffer: Buffer, edits: Sequence[Edit]) -> WorkspaceEdit:
    """Edits of a source as edits of what is open."""
    changes: dict[str, list[TextEdit]] = {}
    for edit in edits:
        place = buffer.location(edit.span)
        changes.setdefault(place.uri, []).append(TextEdit(place.range, edit.text))
    return WorkspaceEdit(changes=changes)


def fix_all(project: Project, buffer: Buffer, findings: Sequence[Finding]) -> WorkspaceEdit | None:
    """All safe fixes of what is open."""
    return None
