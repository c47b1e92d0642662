"""What is said of a file that could not be linted: four names beside those of the rules.

They are findings like any other, so that a file that was not linted never looks like a clean one.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from gradlint.page import Page
from gradlint.rule import Finding
from gradlint.trace import Span


def _page(name: str, code: str, title: str, text: str) -> Page:
    return Page(name, code, "error", "none", "0.1", title, f"# {title}\n\n{text}\n")


UNREADABLE = _page(
    "unreadable-file",
    "GL003",
    "Unreadable file",
    "The file could not be read as Python source: it may not be opened, its bytes are not what its encoding "
    "says (UTF-8, unless a `# coding:` line says otherwise), it holds a NUL byte, its notebook JSON is "
    "broken, or it has more than five million characters. Nothing in it was linted.\n\n"
    "Mend the file, or name it in `exclude`.",
)
INTERNAL = _page(
    "internal-error",
    "GL004",
    "Internal error",
    "gradlint itself failed on this file. The rest of the run went on, and the exit code is 3. "
    "This is a bug in gradlint: please report it with the file, or the smallest part of it that still fails. "
    "Until it is mended, name the file in `exclude`.",
)
FAULTS = (
    _page(
        "syntax-error",
        "GL001",
        "Syntax error",
        "Python cannot parse this file, so nothing in it was linted.\n\n"
        "A file that is meant not to parse can be named in `exclude`, or the finding in `per-file-ignores`.",
    ),
    _page(
        "too-deep",
        "GL002",
        "Too deeply nested",
        "The file nests brackets or blocks deeper than Python itself can compile, so nothing was linted.",
    ),
    UNREADABLE,
    INTERNAL,
)


def unreadable(path: str, why: str, line: int = 1, column: int = 1) -> Finding:
    """The finding that the file at `path` cannot be read, because of what stands at that place."""
    return _finding(UNREADABLE, path, why, line, column)


def internal(path: str, why: str) -> Finding:
    """The finding that gradlint failed on the file at `path`."""
    hint = "please report it with the file and the output of `gradlint doctor`"
    return _finding(INTERNAL, path, f"gradlint failed on this file: {why}; {hint}", 1, 1)


def _finding(page: Page, path: str, message: str, line: int, column: int) -> Finding:
    return Finding(page.name, page.code, page.severity, Span(path, line, column, line, column), message)


def why(error: BaseException) -> str:
    """The error and the place in gradlint that led to it, which is what a report of it needs."""
    here = Path(__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if here in Path(frame.filename).parents), frames[-1])
    what = "".join(f" {line.strip()}" for line in str(error).splitlines()[:1])
    return f"{type(error).__name__}:{what} ({Path(last.filename).name}:{last.lineno})"
