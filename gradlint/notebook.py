"""Jupyter notebooks as one Python text: the code cells in order, magics masked so that no place moves."""

from __future__ import annotations

import ast
import json
import re
import warnings
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
_CELL_MAGIC = re.compile(r"(?P<before>\s*)(?P<name>%%(?!\w+\?)\S*)[^\n]*\n?")
# No such line is Python, so nothing is lost: its first sign, or its last, is none that Python has there.
_MAGIC = re.compile(
    r"""
    (?P<indent> [ \t]* ) (?! [ \t] )
    (?: [%!?,;/]
      | (?: [^\n\#'"\\] | '[^'\n]*' | "[^"\n]*" )* [\w*] (?: \[-?\d+\] )* \?{1,2} [ \t]* (?: \n | \Z ) )
    """,
    re.VERBOSE,
)
_ASSIGNED_MAGIC = re.compile(r"""(?P<target>(?:[^\n=#'"\\]|'[^'\n]*'|"[^"\n]*")+=[ \t]*)(?:!|%[^\W\d])""")
_TIMED = re.compile(r"(?P<indent>[ \t]*)%time (?P<statement>[^\n]*)")
_LINE = re.compile(r"(?:[^\n]*\\\n)*[^\n]*(?:\n|\Z)")
# What a doctest or a session of IPython shows before its input, as IPython takes it off again.
_PROMPTS = (
    (re.compile(r"\s*>>>(?: |$)", re.MULTILINE), re.compile(r"^[ \t]*(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)),
    (re.compile(r"\s*In \[\d+\]: "), re.compile(r"^(?:In \[\d+\]: |[ \t]*\.{3,}: ?)", re.MULTILINE)),
)
# A cell of a single line may leave out the `%` before these: what a Jupyter kernel for Python has at its start.
_AUTOMAGIC = re.compile(
    r"""
    \s*
    (?: alias | alias_magic | autoawait | autocall | automagic | autosave | bookmark | cat | cd | clear
      | code_wrap | colors | conda | config | connect_info | cp | debug | dhist | dirs | doctest_mode | ed | edit
      | env | gui | hist | history | killbgscripts | ldir | less | lf | lk | ll | load | load_ext | loadpy
      | logoff | logon | logstart | logstate | logstop | ls | lsmagic | lx | macro | magic | mamba | man
      | matplotlib | micromamba | mkdir | more | mv | notebook | page | pastebin | pdb | pdef | pdoc | pfile
      | pinfo | pinfo2 | pip | popd | pprint | precision | prun | psearch | psource | pushd | pwd | pycat | pylab
      | qtconsole | quickref | recall | rehashx | reload_ext | rep | rerun | reset | reset_selective | rm
      | rmdir | run | save | sc | set_env | sx | system | tb | time | timeit | unalias | unload_ext | uv | who
      | who_ls | whos | xdel | xmode
    )
    \b [^\n]* \n? \Z
    """,
    re.VERBOSE,
)
# The indentation of the first line that is code, if a line is.
_CODE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(?P<indent>[ \t]*)[^\s#]")
_INDENTED = re.compile(r"(?:[ \t]*\n)*[ \t]+\S")
_BLOCK = "if 1:\n"


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
        # IPython takes the indentation of a cell off.  In a block of its own it may stay, and with it every column.
        if _INDENTED.match(masked) and _indent(masked):
            parts.append(_BLOCK)
            line += 1
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
    for first, prompt in _PROMPTS:
        if first.match(cell):
            cell = prompt.sub(lambda found: " " * len(found[0]), cell)
    heads: list[str] = []
    at = 0
    # A cell magic may stand in the cell of another.
    while magic := _CELL_MAGIC.match(cell, at):
        if not _PYTHON_CELL.match(magic["name"]):
            return "\n" * cell.count("\n")
        heads.append(magic["before"])
        at = magic.end()
    parts = [_lines(cell[at:])]
    inner = _indent(parts[0])
    for before in reversed(heads):
        own = before.rpartition("\n")[2]
        parts.append(before + (_BLOCK if len(inner) > len(own) else "pass\n"))
        inner = own
    return "".join(reversed(parts))


def _lines(cell: str) -> str:
    """A cell without cell magics, its lines masked."""
    if _AUTOMAGIC.match(cell) and not _is_python(cell.strip()):
        return "\n" * cell.count("\n")
    parts: list[str] = []
    at = 0
    while at < len(cell):
        # A magic may hold lone quotes and brackets, so it goes before anything reads strings in it.
        found = _ASSIGNED_MAGIC.match(cell, at) or _MAGIC.match(cell, at)
        timed = _TIMED.match(cell, at)
        if timed and _is_python(f"pass; {timed['statement']}"):
            # Six characters stand for six: the statement stays where it is.
            parts.append(f"{timed['indent']}pass; ")
            at, found = timed.start("statement"), None
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


def _indent(text: str) -> str:
    code = _CODE.match(text)
    return code["indent"] if code else ""


def _is_python(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True
