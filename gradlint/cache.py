"""What earlier runs found, on disk, so that a run lints only what has changed.

The outcome of a file depends on its text, on which files its imports mean, on their text, on the rules asked and on
gradlint itself.  All of that is compared; the clock is not.  An entry that is damaged in any way is a miss.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import platformdirs

import gradlint
from gradlint.faults import INTERNAL
from gradlint.imports import Imports
from gradlint.outcome import Outcome
from gradlint.rule import Because, Finding
from gradlint.sources import Source
from gradlint.trace import Span

LARGEST = 100_000_000
"""So many bytes are kept at most; what was used least lately goes first."""

Asked = dict[tuple[str, int], str]
"""The imports of one file, by dotted name and dots, each with the path that was found, '' for none."""


def folder() -> Path:
    """Where the cache is."""
    return Path(platformdirs.user_cache_dir("gradlint-torch", appauthor=False))


def clean() -> None:
    """Remove the cache."""
    shutil.rmtree(folder(), ignore_errors=True)


class Cache:
    """The outcomes of the files that runs from this folder with these rules have linted."""

    def __init__(self, sources: Iterable[Source], rules: Iterable[str]) -> None:
        key = _digest("\n".join([os.getcwd(), _build(), sys.version, *sorted(rules)]))
        self._file = folder() / f"{key}.jsonl"
        self._texts = {source.path: _digest(source.text) for source in sources}
        self._imports = Imports(self._texts)
        self._kept = _Kept(self._file)
        with contextlib.suppress(OSError):
            os.utime(self._file)
        self._asked: dict[str, Asked] = defaultdict(dict)
        self._fresh: dict[str, tuple[list[str], Outcome]] = {}

    def get(self, path: str) -> Outcome | None:
        """The outcome of linting the file at `path`, None where it must be linted."""
        entry = self._kept.entry(path)
        if entry is None:
            return None
        read, findings, cut = entry
        self._look_at(self._kept, read)
        if not self._kept.fallen.isdisjoint(read):
            return None
        return Outcome(tuple(map(_finding, findings)), {}, tuple(cut))

    def read(self, path: str) -> frozenset[str]:
        """The files that the outcome which is kept of `path` depends on, itself among them."""
        states, _, _ = self._kept.entry(path) or ((), (), ())
        return frozenset(map(self._kept.path, states))

    def asked(self) -> dict[str, Asked]:
        """What the imports of each file mean that an outcome depends on which was got."""
        states = map(self._kept.state, self._kept.seen - self._kept.fallen)
        return {path: asked for path, _, asked in states}

    def _look_at(self, kept: _Kept, numbers: Iterable[int]) -> None:
        """Learn which states have fallen: the text is another one, or an import means another file."""
        for number in {*numbers}.difference(kept.seen):
            kept.seen.add(number)
            path, digest, asked = kept.state(number)
            if self._texts.get(path) != digest or any(
                self._imports.find((path, *question)) != found for question, found in asked.items()
            ):
                kept.fallen.add(number)

    def put(self, path: str, outcome: Outcome) -> None:
        """Keep an outcome; that of a failure is not kept."""
        if any(finding.name == INTERNAL.name for finding in outcome.findings):
            return
        # Thousands of files ask the same of what they all import: each question is kept once.
        for (importer, dotted, dots), found in outcome.asked.items():
            self._asked[importer][dotted, dots] = found
        read = sorted({path, *outcome.asked.values()} - {""})
        self._fresh[path] = read, replace(outcome, asked={})

    def save(self) -> None:
        """Write what is new, beside what other runs have written meanwhile.  Without a place to write, do nothing."""
        if not self._fresh:
            return
        kept = _Kept(self._file)
        # By the path of its file where a state is ours too, by the number that it has on disk where it is not.
        states: dict[str | int, int] = {}
        lines: dict[str, bytes] = {}

        def keep(path: str, read: Iterable[str | int], findings: list[Any], cut: Sequence[str]) -> None:
            numbers = [states.setdefault(state, len(states)) for state in read]
            lines[path] = _line([path, numbers, findings, cut])

        for path in kept.paths:
            entry = kept.entry(path) if path not in self._fresh else None
            if entry is not None:
                read, findings, cut = entry
                self._look_at(kept, read)
                keep(path, [number if number in kept.fallen else kept.path(number) for number in read], findings, cut)
        for number in kept.seen - kept.fallen:
            path, _, asked = kept.state(number)
            self._asked[path].update(asked)
        for path, (files, outcome) in self._fresh.items():
            keep(path, files, [_row(finding) for finding in outcome.findings], outcome.cut)
        table: dict[str, int] = {}
        rows = [self._state(kept, state, table) for state in states]
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, suffix=".new", delete=False) as new:
                new.write(_line([[*table], rows, [*lines]]))
                new.writelines(lines.values())
            # Who reads meanwhile sees the old file or the new one, whole.
            os.replace(new.name, self._file)
            _shrink(self._file.parent)

    def _state(self, kept: _Kept, state: str | int, table: dict[str, int]) -> list[Any]:
        if isinstance(state, int):
            path, digest, asked = kept.state(state)
        else:
            path, digest, asked = state, self._texts[state], self._asked[state]
        answers: list[int] = []
        for (dotted, dots), found in asked.items():
            answers += (table.setdefault(dotted, len(table)), dots, table.setdefault(found, len(table)))
        return [table.setdefault(path, len(table)), digest, answers]


class _Kept:
    """The file of a cache as it was read.  An entry is decoded when it is asked for, and not held.

    Its first line holds the texts that are named by number; the states of files that were read, each a path, the
    digest of a text, and what its imports meant; and the paths of the entries, which follow, a line each: the path, the
    states that the outcome depends on, the findings, what was cut.  Before each line stands its digest.
    """

    def __init__(self, file: Path) -> None:
        self.seen: set[int] = set()
        """The states that were compared with what is now."""
        self.fallen: set[int] = set()
        """Those among them that do not hold any more."""
        try:
            first, *self._lines = file.read_bytes().splitlines()
        except (OSError, ValueError):
            first = b""
        value = _value(first) or [[], [], []]
        self._table: list[str] = value[0]
        self._states: list[list[Any]] = value[1]
        self.paths: dict[str, int] = {path: at for at, path in enumerate(value[2])}

    def entry(self, path: str) -> list[Any] | None:
        """What is kept of the file at `path`: the numbers of states, findings, what was cut."""
        at = self.paths.get(path)
        value = _value(self._lines[at]) if at is not None and at < len(self._lines) else None
        # Where lines are lost, others stand in their place.
        return value[1:] if value is not None and value[0] == path else None

    def path(self, number: int) -> str:
        """The path of the file that a state is of."""
        name: int = self._states[number][0]
        return self._table[name]

    def state(self, number: int) -> tuple[str, str, Asked]:
        """A path, the digest of its text, and what its imports meant."""
        name = self._table
        path, digest, answers = self._states[number]
        parts = zip(answers[::3], answers[1::3], answers[2::3], strict=True)
        return name[path], digest, {(name[dotted], dots): name[found] for dotted, dots, found in parts}


def _line(value: Sequence[Any]) -> bytes:
    body = json.dumps(value, separators=(",", ":")).encode()
    return b"%s %s\n" % (_digest(body).encode(), body)


def _value(line: bytes) -> list[Any] | None:
    """What a line says, None where it is not whole."""
    digest, _, body = line.partition(b" ")
    value: list[Any] | None = json.loads(body) if digest == _digest(body).encode() else None
    return value


def _shrink(place: Path) -> None:
    """Remove the oldest files until the rest is small enough."""
    files = sorted(((file.stat(), file) for file in place.iterdir()), key=lambda pair: -pair[0].st_mtime_ns)
    total = 0
    for stat, file in files:
        total += stat.st_size
        if total > LARGEST:
            file.unlink(missing_ok=True)


def _digest(content: str | bytes) -> str:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).hexdigest()


def _build() -> str:
    """What tells this gradlint from others: its version, and its files, which change in a checkout."""
    from gradlint import rules

    folders = [Path(__file__).parent, *map(Path, rules.__path__)]
    files = [file for place in folders for file in _files(place)]
    return "\n".join([gradlint.__version__, *sorted(files)])


def _files(place: Path) -> Iterable[str]:
    for entry in os.scandir(place):
        if entry.is_dir():
            yield from _files(Path(entry.path)) if entry.name != "__pycache__" else ()
        else:
            stat = entry.stat()
            yield f"{entry.path} {stat.st_size} {stat.st_mtime_ns}"


def _row(finding: Finding) -> list[Any]:
    because = [[*reason.span, reason.text] for reason in finding.because]
    return [finding.name, finding.code, finding.severity, [*finding.span], finding.message, because, finding.instead]


def _finding(row: list[Any]) -> Finding:
    name, code, severity, span, message, because, instead = row
    reasons = tuple(Because(Span(*place), text) for *place, text in because)
    return Finding(name, code, severity, Span(*span), message, reasons, instead)
