"""Jupyter notebooks as one Python text: the code cells in order, magics masked so that no place moves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradlint.text import logical_line_end


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell and the stretch of lines that it has in the notebook's text."""

    number: int
    """Its place among all cells of the notebook, Markdown included, from 1."""
    first_line: int
    lines: int


class NotANotebook(ValueError):
    """The text is no notebook of version 4; `line` and `column` say where that shows."""

    def __init__(self, why: str, line: int = 1, column: int = 1) -> None:
        super().__init__(why)
        self.line, self.column = line, column


# IPython runs the rest of such a cell as Python; any other `%%` magic makes the cell something else.
_PYTHON_CELL = re.compile(r"%%(?:capture|debug|prun|pypy|python3?|time|timeit)\b")
_CELL_MAGIC = re.compile(r"\s*(%%\w+)")
_MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:[%!?]|[\w.]+\?{1,2}[ \t]*(?:\n|\Z))")
_ASSIGNED_MAGIC = re.compile(r"(?P<target>[ \t]*[\w.]+(?:[ \t]*,[ \t]*\w+)*[ \t]*=[ \t]*)(?:!|%\w)")
# Six characters, as `pass; ` has: the statement behind it is timed Python and stays where it is.
_TIMED = re.compile(r"(?P<indent>[ \t]*)%time (?=[^-\s])")
_LINE = re.compile(r"(?:[^\\\n]|\\[^\n]|\\\n|\\\Z)*(?:\n|\Z)")


def read(text: str) -> tuple[str, tuple[Cell, ...]]:
    """The Python text of a notebook, and where its cells are in it; ('', ()) for another language's notebook.

    Raises NotANotebook.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotANotebook(f"not a notebook: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise NotANotebook("not a notebook: its JSON is nested too deeply") from None
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise NotANotebook("not a notebook of version 4: it has no list of cells")
    if _language(document) not in ("python", "ipython", ""):
        return "", ()
    return joined(_code(document["cells"]))


def joined(sources: Iterable[tuple[int, str]]) -> tuple[str, tuple[Cell, ...]]:
    """The Python text of code cells, each given with its number, and where they are in it."""
    parts: list[str] = []
    cells: list[Cell] = []
    line = 1
    for number, source in sources:
        masked = mask(_ended(source))
        lines = masked.count("\n")
        cells.append(Cell(number, line, lines))
        parts.append(masked)
        line += lines
    return "".join(parts), tuple(cells)


def _language(document: dict[str, object]) -> str:
    metadata = document.get("metadata")
    for key, field in (("language_info", "name"), ("kernelspec", "language")):
        part = metadata.get(key) if isinstance(metadata, dict) else None
        name = part.get(field) if isinstance(part, dict) else None
        if isinstance(name, str):
            return name.lower()
    return ""


def _code(cells: list[object]) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        if isinstance(source, str) and source:
            yield number, source


def _ended(source: str) -> str:
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return source if source.endswith("\n") else source + "\n"


def mask(cell: str) -> str:
    """The cell with every magic turned into Python that says nothing, line for line."""
    magic = _CELL_MAGIC.match(cell)
    if magic is not None and not _PYTHON_CELL.match(magic[1]):
        return "\n" * cell.count("\n")
    parts: list[str] = []
    at = 0
    while at < len(cell):
        if timed := _TIMED.match(cell, at):
            parts.append(f"{timed['indent']}pass; ")
            at = timed.end()
        # A magic may hold lone quotes and brackets, so it goes before anything reads strings in it.
        found = _ASSIGNED_MAGIC.match(cell, at) or _MAGIC.match(cell, at)
        if found is None:
            end = logical_line_end(cell, at)
            parts.append(cell[at:end])
        else:
            end = _LINE.match(cell, at).end()  # type: ignore[union-attr]  # it matches anywhere
            # What IPython assigns is unknown to us, and `get_ipython()` is a call that any notebook can make.
            kept = found.groupdict()
            parts.append(f"{kept['target']}get_ipython()" if "target" in kept else f"{kept['indent']}pass")
            parts.append("\n" * cell.count("\n", at, end))
        at = end
    return "".join(parts)
