"""Repairs the files of a run: makes fixes, lints again, and takes back what does not do any good."""

from __future__ import annotations

import bisect
import contextlib
import difflib
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gradlint import fixes, sources
from gradlint.edits import Code
from gradlint.report import Report
from gradlint.rule import Edit, Finding, Fix
from gradlint.run import Run
from gradlint.sources import NotEditable, Source

ROUNDS = 10
"""A fix may make room for another; after so many rounds no more are looked for."""

Place = tuple[int, int]
"""A line and a column."""
Change = tuple[Finding, Fix]


class NotWritten(OSError):
    """A repaired file could not be written; the message names it."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What came of it."""

    report: Report
    """What is left to tell, of the repaired text."""
    files: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """The content of each repaired file, before and after."""
    fixed: int = 0
    """How many findings are no more."""

    def diff(self) -> bytes:
        """The changes as a unified diff."""
        return b"".join(_diff(path, before, after) for path, (before, after) in self.files.items())

    def outlook(self) -> str:
        """A line on what writing the files would do, and what more could be done."""
        files = len(self.files)
        would = f"Would fix {self.fixed} finding{'s' * (self.fixed != 1)} in {files} file{'s' * (files != 1)}."
        return " ".join([would, *self.report.fixable()])

    def content(self, path: str, given: bytes) -> bytes:
        """The content of a file that had `given` before."""
        return self.files[path][1] if path in self.files else given

    def write(self) -> Iterator[NotWritten]:
        """Write the repaired files, each as a whole or not at all; yields what could not be written."""
        for path, (before, after) in self.files.items():
            try:
                _write(path, before, after)
            except OSError as error:
                yield NotWritten(f"{path} is not repaired: {error.strerror or error}")


def repair(run: Run, report: Report, *, unsafe: bool, make: bool = True) -> Repaired:
    """Repair what `report` tells of `run`, in memory.  `unsafe`: also by fixes that are not safe.

    What is left to tell says of each finding how it could be repaired; without `make` that is all.

    A fix is kept only if its file can be parsed afterwards, its finding is gone, and no finding is new anywhere in the
    run.  All fixes are tried together first, and in ever smaller groups where that fails.
    """
    work = _Work(run, report, unsafe=unsafe)
    if make and not report.unlinted:
        for _ in range(ROUNDS):
            if not (chosen := work.choose()):
                break
            work.make(chosen)
    offered = [
        replace(finding, fix=None) if _key(finding) in work.refused else finding
        for finding in fixes.offered(work.report.findings, work.run.sources)
    ]
    warnings = [*work.report.warnings, *work.warnings]
    left = replace(work.report, findings=offered, warnings=warnings, fixed=work.fixed)
    files = {path: (work.original[path], content) for path, content in work.content.items()}
    return Repaired(left, {path: both for path, both in files.items() if both[0] != both[1]}, work.fixed)


_Key = tuple[str, str, Place]


def _key(finding: Finding) -> _Key:
    return finding.name, finding.span.path, (finding.span.line, finding.span.column)


class _Work:
    """The state of a repair: what is repaired so far, and which fixes did no good."""

    def __init__(self, run: Run, report: Report, *, unsafe: bool) -> None:
        self.run = run
        self.report = report
        self.unsafe = unsafe
        self.fixed = 0
        self.original: dict[str, bytes] = {}
        self.content: dict[str, bytes] = {}
        self.refused: set[_Key] = set()
        self.warnings: list[str] = []

    def choose(self) -> list[_Key]:
        """The findings to repair next: as many as do not touch each other."""
        found: dict[str, list[Change]] = {}
        for finding in self.report.findings:
            change = self._change(finding)
            if change is not None and self._open(finding.span.path):
                found.setdefault(finding.span.path, []).append(change)
        return [_key(finding) for changes in found.values() for finding, _ in self._together(changes)]

    def _change(self, finding: Finding) -> Change | None:
        source = self.run.sources.get(finding.span.path)
        if source is None or _key(finding) in self.refused:
            return None
        found = fixes.fix(finding, source)
        return (finding, found) if found is not None and (found.safe or self.unsafe) else None

    @staticmethod
    def _together(changes: Sequence[Change]) -> list[Change]:
        chosen = {id(found) for found in fixes.together([found for _, found in changes])}
        return [change for change in changes if id(change[1]) in chosen]

    def _open(self, path: str) -> bool:
        """Whether the bytes are at hand that the file's text was read from."""
        if path in self.content:
            return True
        stdin = self.run.request.stdin
        try:
            content = _read(path) if stdin is None else stdin
        except OSError:
            content = b""
        if sources.decode(path, content) != self.run.sources[path]:
            warning = f"{path} has changed since it was linted, and is not repaired"
            self.warnings += [warning] if warning not in self.warnings else []
            return False
        self.original[path] = self.content[path] = content
        return True

    def make(self, keys: list[_Key]) -> None:
        """Make the fixes of these findings, those that do any good."""
        groups = [keys]
        while groups:
            group = groups.pop()
            by_key = {_key(finding): finding for finding in self.report.findings}
            found = [self._change(by_key[key]) for key in group if key in by_key]
            changes = [change for change in found if change is not None]
            edits = self._try(changes) if changes else None
            if edits is not None:
                # What is still to be tried stands elsewhere now.
                groups = [[moved for key in rest for moved in self._moved(key, edits)] for rest in groups]
                self.refused = {moved for key in self.refused for moved in self._moved(key, edits)}
            elif len(changes) > 1:
                groups += [group[len(group) // 2 :], group[: len(group) // 2]]
            else:
                self.refused.update(group)

    def _try(self, changes: Sequence[Change]) -> dict[str, _Moves] | None:
        """Make these fixes together; None, and nothing has changed, where that does no good."""
        by_path: dict[str, set[Edit]] = {}
        for _, found in changes:
            for edit in found.edits:
                by_path.setdefault(edit.span.path, set()).add(edit)
        new: dict[str, bytes] = {}
        texts: list[Source] = []
        for path, edits in by_path.items():
            try:
                new[path] = sources.edited(path, self.content[path], edits)
            except NotEditable:
                return None
            source = sources.decode(path, new[path])
            if not isinstance(source, Source) or not Code(path, source.text).parses:
                return None
            texts.append(source)
        run = self.run.changed(texts)
        report = run.report()
        moves = {path: _Moves(self.run.sources[path].text, edits) for path, edits in by_path.items()}
        if report.unlinted or not self._good(report, [finding for finding, _ in changes], moves):
            return None
        self.run, self.report = run, report
        self.content.update(new)
        self.fixed += len(changes)
        return moves

    def _good(self, report: Report, fixed: Sequence[Finding], moves: dict[str, _Moves]) -> bool:
        """Whether the fixed findings are gone and none is new."""
        gone = {moved for finding in fixed for moved in self._moved(_key(finding), moves)}
        old = {moved for finding in self.report.findings for moved in self._moved(_key(finding), moves)} - gone
        # What was moved by a fix is known by its line.
        lines = Counter(_line(self.run.sources.get(f.span.path), f) for f in self.report.findings)
        lines.subtract(_line(self.run.sources.get(f.span.path), f) for f in fixed)
        for finding in report.findings:
            line = _line(report.sources.get(finding.span.path), finding)
            if _key(finding) in gone or (_key(finding) not in old and lines[line] <= 0):
                return False
            lines[line] -= 1
        return True

    @staticmethod
    def _moved(key: _Key, moves: dict[str, _Moves]) -> set[_Key]:
        name, path, place = key
        return {(name, path, new) for new in moves[path].after(place)} if path in moves else {key}


class _Moves:
    """Where the places of a text are after some edits."""

    def __init__(self, text: str, edits: Iterable[Edit]) -> None:
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.edits = sorted(
            (self._offset((e.span.line, e.span.column)), self._offset((e.span.end_line, e.span.end_column)), e.text)
            for e in edits
        )
        parts: list[str] = []
        at = 0
        for start, end, new in self.edits:
            parts += [text[at:start], new]
            at = end
        self.new = [0, *(match.end() for match in re.finditer("\n", "".join([*parts, text[at:]])))]

    def _offset(self, place: Place) -> int:
        return self.lines[min(place[0], len(self.lines)) - 1] + place[1] - 1

    def after(self, place: Place) -> set[Place]:
        """Where the place may be: before or behind what was written right there."""
        offset = self._offset(place)
        before = behind = offset
        for start, end, new in self.edits:
            if end <= offset:
                behind += len(new) - (end - start)
                before += len(new) - (end - start) if start < offset else 0
            elif start < offset:
                before += start - offset
                behind += start - offset
        return {self._place(before), self._place(behind)}

    def _place(self, offset: int) -> Place:
        line = bisect.bisect_right(self.new, offset)
        return line, offset - self.new[line - 1] + 1


def _line(source: Source | None, finding: Finding) -> tuple[str, str, str]:
    line = source.line(finding.span.line) if source is not None else ""
    return finding.name, finding.span.path, line.strip()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _write(path: str, before: bytes, after: bytes) -> None:
    """Replace a file's content as a whole; of a link, that of the file it leads to."""
    target = os.path.realpath(path)
    if _read(target) != before:
        raise OSError(None, "it has changed meanwhile")
    handle, new = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".gradlint-")
    try:
        with open(handle, "wb") as file:
            file.write(after)
        os.chmod(new, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(new, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _diff(path: str, before: bytes, after: bytes) -> bytes:
    """What `diff -u` says, in the file's own encoding and line ends."""
    old, new = (re.findall(rb"[^\n]*\n|[^\n]+", content) for content in (before, after))
    name = os.fsencode(path)
    told = difflib.diff_bytes(difflib.unified_diff, old, new, name, name)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in told)
