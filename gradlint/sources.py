"""From paths to sources: which files a run lints, and their text.

Everything that is wrong with a file is a finding on it; only a path that is not there is an error.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from gradlint import notebook
from gradlint.faults import unreadable
from gradlint.notebook import Cell
from gradlint.rule import Edit, Finding

SUFFIXES = (".py", ".pyi", ".ipynb")
LARGEST = 5_000_000
"""A longer text, in characters, is data or generated; it gets a finding in place of minutes of work."""
DEFAULT_EXCLUDE = (
    ".bzr",
    ".direnv",
    ".eggs",
    ".git",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "__pypackages__",
    "_build",
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "venv",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file's text, decoded, without byte order mark, every line ended by a newline character alone."""

    path: str
    """As given by the user and printed."""
    text: str
    cells: tuple[Cell, ...] = ()
    """For a notebook its code cells, whose lines `text` joins."""

    def line(self, number: int) -> str:
        """The line of that number, from 1; '' where there is none."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def place(self, line: int) -> tuple[int | None, int]:
        """The cell that a line of `text` stands in and the line in it; no cell in a plain file."""
        for cell in self.cells:
            if line < cell.first_line + cell.lines:
                return cell.number, line - cell.first_line + 1
        return None, line


class PathMissing(ValueError):
    """A path that the user gave is not there."""


@dataclass(frozen=True, slots=True)
class Excludes:
    """Patterns as in .gitignore, read from the folder `root`."""

    root: Path
    patterns: tuple[str, ...] = DEFAULT_EXCLUDE
    force: bool = False
    """Also leave out what the user named; pre-commit names every file."""


def find(paths: Sequence[str], excludes: Excludes) -> tuple[list[str], list[Finding]]:
    """The files to lint under `paths`, each once, in a fixed order; and a finding for every closed folder.

    A file that is named is linted whatever it is called, and a folder that is named is entered, unless
    `excludes.force`.  Raises PathMissing.
    """
    spec = GitIgnoreSpec.from_lines(excludes.patterns)
    found: dict[str, str] = {}
    closed: list[Finding] = []
    for given in paths:
        path = os.path.normpath(given)
        if not os.path.exists(path):
            raise PathMissing(f"no such file or folder: {given}")
        if excludes.force and _matches(spec, path, excludes.root, folder=os.path.isdir(path)):
            continue
        if os.path.isdir(path):
            root = _root(spec, path, excludes)
            files: Iterable[str] = _walk(path, spec, root, _ignores_above(path), closed)
        else:
            files = [path]
        for file in files:
            found.setdefault(os.path.realpath(file), file)
    return sorted(found.values(), key=lambda file: file.split(os.sep)), closed


def excluded(path: str, excludes: Excludes, folder: str) -> bool:
    """Whether a file is left out of `folder`; who names an excluded folder wants what is in it."""
    spec = GitIgnoreSpec.from_lines(excludes.patterns)
    return _matches(spec, path, _root(spec, folder, excludes), folder=False)


def _root(spec: GitIgnoreSpec, folder: str, excludes: Excludes) -> Path:
    """Where patterns are read from: one that hits the named folder itself would hit everything in it."""
    return Path(folder) if _matches(spec, folder, excludes.root, folder=True) else excludes.root


def found_in(folder: str, path: str, excludes: Excludes) -> bool:
    """Whether `find` gives the file at `path` when it is asked for `folder`."""
    here = os.path.normpath(folder)
    spec = GitIgnoreSpec.from_lines(excludes.patterns)
    root = _root(spec, here, excludes)
    ignores = _ignores_above(here)
    for part in os.path.relpath(path, here).split(os.sep):
        ignores += _read_ignores(here)
        here = os.path.join(here, part)
        is_folder = os.path.isdir(here)
        if is_folder and os.path.islink(here):
            return False
        if _matches(spec, here, root, folder=is_folder) or _ignored(ignores, here, folder=is_folder):
            return False
    return path.endswith(SUFFIXES) and os.path.isfile(path)


def _matches(spec: GitIgnoreSpec, path: str, root: Path, *, folder: bool) -> bool:
    relative = os.path.relpath(os.path.abspath(path), root.absolute())
    if relative == os.curdir or relative.split(os.sep)[0] == os.pardir:
        relative = os.path.basename(os.path.abspath(path))
    return bool(relative) and spec.match_file(relative.replace(os.sep, "/") + "/" * folder)


Ignores = tuple[tuple[str, GitIgnoreSpec], ...]
"""The .gitignore files in force, each with its folder, the nearest last."""


def _ignored(ignores: Ignores, path: str, *, folder: bool) -> bool:
    absolute = os.path.abspath(path)
    for base, spec in reversed(ignores):
        relative = os.path.relpath(absolute, base).replace(os.sep, "/") + "/" * folder
        verdict = spec.check_file(relative).include
        if verdict is not None:
            return verdict
    return False


def _read_ignores(folder: str, name: str = ".gitignore") -> Ignores:
    try:
        with open(os.path.join(folder, name), encoding="utf-8-sig", errors="replace") as lines:
            return ((os.path.abspath(folder), GitIgnoreSpec.from_lines(lines.read().splitlines())),)
    except (OSError, ValueError):
        return ()


def _ignores_above(path: str) -> Ignores:
    """What the folders from the repository's root down to the parent of `path` ignore in it."""
    folder = os.path.abspath(path)
    above: Ignores = ()
    if os.path.exists(os.path.join(folder, ".git")):
        return _read_ignores(folder, os.path.join(".git", "info", "exclude"))
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        above = _read_ignores(folder) + above
        if os.path.exists(os.path.join(folder, ".git")):
            above = _read_ignores(folder, os.path.join(".git", "info", "exclude")) + above
            # Who names an ignored folder wants it linted.
            return () if _ignored(above, path, folder=True) else above
    return ()


def _walk(folder: str, spec: GitIgnoreSpec, root: Path, ignores: Ignores, closed: list[Finding]) -> Iterator[str]:
    """The files under `folder`.  Linked folders are not entered, so there are no loops."""
    ignores += _read_ignores(folder)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        closed.append(unreadable(folder, f"the folder cannot be listed: {error.strerror}"))
        return
    for entry in entries:
        path = os.path.normpath(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not (entry.name.endswith(SUFFIXES) and os.path.isfile(path)):
            continue
        # An ignored folder is left out as a whole: git does not look in it for exceptions either.
        if _matches(spec, path, root, folder=is_folder) or _ignored(ignores, path, folder=is_folder):
            continue
        if is_folder:
            yield from _walk(path, spec, root, ignores, closed)
        else:
            yield path


def read(path: str) -> Source | Finding | None:
    """The source at `path`; a finding where it cannot be read; None for another language's notebook."""
    try:
        with open(path, "rb") as file:
            # A device has no end.
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read() if regular else file.read(LARGEST * 4)
    except OSError as error:
        return unreadable(path, f"the file cannot be read: {error.strerror}")
    except ValueError as error:
        return unreadable(path, f"the file cannot be read: {error}")
    return decode(path, content)


def decode(path: str, content: bytes) -> Source | Finding | None:
    """As `read`, with the bytes given; `path` says by its name whether they are a notebook."""
    is_notebook = path.endswith(".ipynb")
    text = _text(path, content, cookie=not is_notebook)
    if isinstance(text, Finding):
        return text
    cells: tuple[Cell, ...] = ()
    if is_notebook:
        try:
            text, cells = notebook.read(text)
        except notebook.NotANotebook as error:
            return unreadable(path, str(error), error.line, error.column)
        if not cells:
            return None
    return checked(Source(path, text, cells))


def checked(source: Source) -> Source | Finding:
    """The source, or a finding where its text is longer than is linted or holds what no parser takes."""
    path, text = source.path, source.text
    if len(text) > LARGEST:
        return unreadable(path, f"the file has {len(text):,} characters; more than {LARGEST:,} are not linted")
    # NUL bytes and lone surrogates can come out of JSON and odd codecs too.
    if odd := re.search("[\0\ud800-\udfff]", text):
        line = text.count("\n", 0, odd.start()) + 1
        what = "a NUL byte" if odd[0] == "\0" else "half of a surrogate pair"
        return unreadable(path, f"the file holds {what}", line, odd.start() - text.rfind("\n", 0, odd.start()))
    return source


class NotEditable(ValueError):
    """The bytes cannot be changed there without a change elsewhere; the message says why."""


def edited(path: str, content: bytes, edits: Iterable[Edit]) -> bytes:
    """The bytes of a file with these edits of its text; every byte outside of them stays as it is.

    The edits are places in the text that `decode` reads from the bytes, and touch each other nowhere.  New lines end
    as the line does that they are written into.  Raises NotEditable.
    """
    is_notebook = path.endswith(".ipynb")
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    body = content.removeprefix(mark)
    encoding = _encoding(content) if not is_notebook else "utf-8"
    try:
        text = body.decode(encoding)
        if text.encode(encoding) != body:
            raise NotEditable(f"its bytes are not what {encoding.upper()} writes")
        text = notebook.edited(text, edits) if is_notebook else _edited(text, edits)
        return mark + text.encode(encoding)
    except UnicodeError as error:
        raise NotEditable(str(error)) from None
    except notebook.Masked as error:
        raise NotEditable(str(error)) from None


def _edited(text: str, edits: Iterable[Edit]) -> str:
    ends = [*re.finditer("\r\n|\r|\n", text)]
    starts = [0, *(end.end() for end in ends)]

    def offset(line: int, column: int) -> int:
        last = ends[line - 1].start() if line <= len(ends) else len(text)
        return min(starts[line - 1] + column - 1, last)

    parts: list[str] = []
    at = 0
    for edit in sorted(edits):
        start = offset(edit.span.line, edit.span.column)
        # The last line has no end of its own, and is ended as the one before.
        newline = ends[min(edit.span.line, len(ends)) - 1][0] if ends else "\n"
        parts += [text[at:start], edit.text.replace("\n", newline)]
        at = offset(edit.span.end_line, edit.span.end_column)
    return "".join([*parts, text[at:]])


def _encoding(content: bytes) -> str:
    """The encoding that a Python file names.  Raises SyntaxError for one that is not known."""
    return tokenize.detect_encoding(io.BytesIO(content).readline)[0].removesuffix("-sig")


def _text(path: str, content: bytes, *, cookie: bool) -> str | Finding:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return unreadable(path, "the file is UTF-16, which Python does not read; save it as UTF-8")
    encoding = "utf-8"
    if cookie:
        try:
            encoding = _encoding(content)
        except (SyntaxError, ValueError) as error:
            # The same error stands for bytes that are no UTF-8 in the first two lines; decoding says more.
            if "unknown encoding" in str(error) or "encoding problem" in str(error):
                return unreadable(path, f"{error}, named by the file's first lines")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return _lines(content.decode(encoding))
    except UnicodeDecodeError as error:
        before = _lines(content[: error.start].decode(encoding, "replace"))
        what = f"the byte 0x{content[error.start]:02x} is not valid {encoding.upper()}"
        hint = "save the file as UTF-8 or name its encoding (`# coding: ...`)"
        return unreadable(path, f"{what}; {hint}", before.count("\n") + 1, len(before) - before.rfind("\n"))
    except (UnicodeError, LookupError) as error:
        return unreadable(path, f"the file's bytes are not what its encoding says: {error}")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
