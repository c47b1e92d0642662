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
from array import array
from collections.abc import Iterable
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
        self._names, self._known = _read(self._file)
        self._table: dict[str, int] = {}
        self._fresh: dict[str, list[Any]] = {}

    def get(self, path: str) -> Outcome | None:
        """The outcome of linting the file at `path`, None where it must be linted."""
        entry = self._known.get(path)
        if entry is None:
            return None
        names = self._names
        try:
            _, texts, asked, findings, cut = entry
            pairs = zip(texts[::2], texts[1::2], strict=True)
            if any(self._texts.get(names[name]) != names[text] for name, text in pairs):
                return None
            questions = {}
            for importer, dotted, dots, found in zip(*(asked[part::4] for part in range(4)), strict=True):
                question = names[importer], names[dotted], dots
                if self._imports.find(question) != names[found]:
                    return None
                questions[question] = names[found]
            return Outcome(tuple(map(_finding, findings)), questions, tuple(cut))
        except (TypeError, ValueError, AttributeError, IndexError):
            return None

    def put(self, path: str, outcome: Outcome) -> None:
        """Keep an outcome; that of a failure is not kept."""
        if any(finding.name == INTERNAL.name for finding in outcome.findings):
            return
        # Thousands of files ask the same questions: each text is kept once.
        number = self._number
        texts = array("I")
        for name in sorted({path, *outcome.asked.values()} - {""}):
            texts.extend((number(name), number(self._texts[name])))
        asked = array("I")
        for (importer, dotted, dots), found in outcome.asked.items():
            asked.extend((number(importer), number(dotted), dots, number(found)))
        self._fresh[path] = [number(path), texts, asked, [_row(finding) for finding in outcome.findings], outcome.cut]

    def _number(self, text: str) -> int:
        return self._table.setdefault(text, len(self._table))

    def save(self) -> None:
        """Write what is new, beside what other runs have written meanwhile.  Without a place to write, do nothing."""
        if not self._fresh:
            return
        names, others = _read(self._file)
        entries = [self._translated(entry, names) for path, entry in others.items() if path not in self._fresh]
        entries += self._fresh.values()
        lines = []
        for value in ([*self._table], *entries):
            line = json.dumps(value, separators=(",", ":"), default=list)
            lines.append(f"{_digest(line)} {line}\n")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self._file.parent, suffix=".new", delete=False
            ) as new:
                new.writelines(lines)
            # Who reads meanwhile sees the old file or the new one, whole.
            os.replace(new.name, self._file)
            _shrink(self._file.parent)

    def _translated(self, entry: list[Any], names: list[str]) -> list[Any]:
        """An entry that another table of texts was written with, for ours."""
        path, texts, asked, *rest = entry
        number = self._number
        asked = [part if at % 4 == 2 else number(names[part]) for at, part in enumerate(asked)]
        return [number(names[path]), [number(names[text]) for text in texts], asked, *rest]


def _shrink(place: Path) -> None:
    """Remove the oldest files until the rest is small enough."""
    files = sorted(((file.stat(), file) for file in place.iterdir()), key=lambda pair: -pair[0].st_mtime_ns)
    total = 0
    for stat, file in files:
        total += stat.st_size
        if total > LARGEST:
            file.unlink(missing_ok=True)


def _read(file: Path) -> tuple[list[str], dict[str, list[Any]]]:
    """The texts that a file's entries name by number, and the entries by path."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return [], {}
    whole = [body for line in lines for digest, _, body in [line.partition(" ")] if digest == _digest(body)]
    if not whole or not lines[0].endswith(whole[0]):
        # Without the texts the entries mean nothing.
        return [], {}
    names, *entries = map(json.loads, whole)
    return names, {names[entry[0]]: entry for entry in entries}


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


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
