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

from gradlint import fixes, suppress
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
    source = project.source(buffer.path)
    if source is None:
        return found
    if _wants(only, CodeActionKind.QuickFix.value):
        for finding, diagnostic in told:
            if _touches(diagnostic, params):
                found += _about(project, buffer, uri, source, finding, diagnostic)
        everywhere = project.told(buffer.path)
        for name in dict.fromkeys(finding.name for finding, diagnostic in told if _touches(diagnostic, params)):
            found += _all_of(buffer, source, name, everywhere)
    kind = NOTEBOOK_FIX_ALL_KIND if source.cells else FIX_ALL_KIND
    if _wants(only, kind) and (edit := fix_all(project, buffer)) is not None:
        found.append(CodeAction("Fix all that can be fixed safely (gradlint)", kind, edit=edit))
    return found


def _wants(only: Sequence[CodeActionKind | str] | None, kind: str) -> bool:
    if only is None:
        return True
    asked = [one.value if isinstance(one, CodeActionKind) else one for one in only]
    return any(kind == one or kind.startswith(f"{one}.") or not one for one in asked)


def _touches(diagnostic: Diagnostic, params: CodeActionParams) -> bool:
    return diagnostic.range.start <= params.range.end and params.range.start <= diagnostic.range.end


def _about(
    project: Project, buffer: Buffer, uri: str, source: Source, finding: Finding, diagnostic: Diagnostic
) -> Iterator[CodeAction]:
    kind, name = CodeActionKind.QuickFix, finding.name
    repair = fixes.fix(finding, source)
    if repair is not None and _can(buffer, repair.edits):
        edit = workspace_edit(buffer, repair.edits)
        title = repair.message if repair.safe else f"{repair.message} (changes what the program does)"
        yield CodeAction(title, kind, [diagnostic], is_preferred=repair.safe, edit=edit)
    if name not in _FAULTS:
        allowed = allow(project, source, finding)
        if allowed is not None:
            yield CodeAction(f"Allow {name} here", kind, [diagnostic], edit=workspace_edit(buffer, [allowed]))
    title = f"Explain {name}"
    yield CodeAction(title, kind, [diagnostic], command=Command(title, EXPLAIN, arguments=[name]))
    if name not in _FAULTS:
        title = f"Confirm {name} by running the program"
        yield CodeAction(title, kind, [diagnostic], command=Command(title, CONFIRM, arguments=[uri, diagnostic.data]))


def _all_of(buffer: Buffer, source: Source, name: str, findings: Sequence[Finding]) -> Iterator[CodeAction]:
    """One action for all findings of one rule, where more than one can be repaired."""
    mine = [finding for finding in findings if finding.name == name]
    several = sum(fixes.fix(finding, source) is not None for finding in mine) > 1
    if several and _can(buffer, edits := fixes.fix_all(mine, source, unsafe=True)):
        edit = workspace_edit(buffer, edits)
        yield CodeAction(f"Fix all {name} in this file", CodeActionKind.QuickFix, edit=edit)


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


def _can(buffer: Buffer, edits: Sequence[Edit]) -> bool:
    """Whether the client's text can be edited so: what stands for a magic is none of it."""
    return all(buffer.shows(edit.span) for edit in edits)


def workspace_edit(buffer: Buffer, edits: Sequence[Edit]) -> WorkspaceEdit:
    """Edits of a source as edits of what is open."""
    changes: dict[str, list[TextEdit]] = {}
    for edit in edits:
        place = buffer.location(edit.span)
        changes.setdefault(place.uri, []).append(TextEdit(place.range, edit.text))
    return WorkspaceEdit(changes=changes)


def fix_all(project: Project, buffer: Buffer) -> WorkspaceEdit | None:
    """All safe fixes of what is open, None where there is none."""
    source = project.source(buffer.path)
    edits = fixes.fix_all(project.told(buffer.path), source) if source is not None else ()
    return workspace_edit(buffer, edits) if edits and _can(buffer, edits) else None
