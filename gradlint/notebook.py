"""Jupyter notebooks as one Python text: the code cells in order, magics masked so that no place moves."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradlint.rule import Edit
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


class Masked(ValueError):
    """An edit of what is not the notebook's own text, or of two cells at once."""


# One character of a string as JSON writes it; those beyond 16 bits may be two escapes.
_WRITTEN = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_SPACE = re.compile(r"[ \t\n\r]*")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The JSON of a notebook with these edits of its Python text; nothing else of it changes.

    Raises Masked where an edit touches a magic.
    """
    whole, cells = read(text)
    masked = whole.split("\n")
    places = _sources(text)
    changes: list[tuple[int, int, str]] = []
    todo = sorted(edits)
    for cell in cells:
        end = cell.first_line + cell.lines
        own = [edit for edit in todo if cell.first_line <= edit.span.line < end]
        todo = [edit for edit in todo if edit not in own]
        if own:
            source = _Written(text, *places[cell.number - 1])
            changes.append((*places[cell.number - 1], source.edited(own, masked, cell)))
    if todo:
        raise Masked("an edit outside of the cells")
    for start, stop, new in reversed(changes):
        text = text[:start] + new + text[stop:]
    return text


def _sources(text: str) -> list[tuple[int, int]]:
    """Where the JSON of each cell's source is."""
    start, _ = _members(text, _SPACE.match(text).end())["cells"]  # type: ignore[union-attr]  # it matches anywhere
    return [_members(text, cell).get("source", (cell, cell)) for cell, _ in _items(text, start)]


def _members(text: str, at: int) -> dict[str, tuple[int, int]]:
    """Where the values of an object are; of two with one name the last counts."""
    if text[at] != "{":
        return {}
    found = {}
    names = _values(text, at, "}")
    for start, end in names:
        name = json.loads(text[start:end])
        found[name] = next(names)
    return found


def _items(text: str, at: int) -> list[tuple[int, int]]:
    """Where the items of an array are."""
    return list(_values(text, at, "]"))


def _values(text: str, at: int, last: str) -> Iterator[tuple[int, int]]:
    """Where the values up to the closing bracket are, an object's names among them."""
    decoder = json.JSONDecoder()
    while True:
        at = _SPACE.match(text, at + 1).end()  # type: ignore[union-attr]  # it matches anywhere
        if text[at] == last:
            return
        end = decoder.raw_decode(text, at)[1]
        yield at, end
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # it matches anywhere
        if text[at] == last:
            return


class _Written:
    """The source of a cell as JSON writes it: one string, or a list of them."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end
        self.listed = text[start] == "["
        strings = _items(text, start) if self.listed else [(start, end)]
        self.strings = [place for place in strings if text[place[0]] == '"']
        # Each character as it is read, where it is written, and in which string.
        self.characters: list[tuple[str, int, int, int]] = []
        for number, (first, last) in enumerate(self.strings):
            for written in _WRITTEN.finditer(text, first + 1, last - 1):
                read = json.loads(f'"{written[0]}"', strict=False)
                before = self.characters[-1] if self.characters else ("", 0, 0, -1)
                if read == "\n" and before[0] == "\r" and before[3] == number:
                    self.characters[-1] = "\n", before[1], written.end(), number
                else:
                    self.characters.append((read, written.start(), written.end(), number))
        self.read = "".join("\n" if one[0] == "\r" else one[0] for one in self.characters)
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.read))]

    def edited(self, edits: list[Edit], masked: list[str], cell: Cell) -> str:
        """The JSON with these edits."""
        lines = self.read.split("\n")
        inserted: dict[int, str] = {}
        gone: set[int] = set()
        for edit in edits:
            first, last = edit.span.line - cell.first_line, edit.span.end_line - cell.first_line
            # Of the line that an edit ends before, nothing is touched.
            touched = range(first, last + (edit.span.end_column > 1 or last == first))
            if any(number < len(lines) and lines[number] != masked[cell.first_line + number - 1] for number in touched):
                raise Masked("a magic stands there")
            start, end = self._offset(first, edit.span.column), self._offset(last, edit.span.end_column)
            if last > cell.lines or (edit.span.end_line == cell.first_line + cell.lines and edit.span.end_column > 1):
                raise Masked("an edit of two cells")
            inserted[start] = inserted.get(start, "") + edit.text
            gone.update(range(start, end))
        return self._written(inserted, gone)

    def _offset(self, line: int, column: int) -> int:
        # The newline at the end of a cell may be ours.
        return min(self.starts[line] + column - 1, len(self.read)) if line < len(self.starts) else len(self.read)

    def _written(self, inserted: dict[int, str], gone: set[int]) -> str:
        text = self.text
        new: list[list[str]] = [[""] for _ in self.strings]
        ended: set[int] = set()

        def write(number: int, what: str, *, line_ends: bool = False) -> None:
            # As Jupyter does it, every line is a string of its own.
            if number in ended and self.listed:
                new[number].append("")
            ended.discard(number)
            new[number][-1] += what
            if line_ends:
                ended.add(number)

        newline = next((text[one[1] : one[2]] for one in self.characters if one[0] == "\n"), "\\n")
        for at in range(len(self.characters) + 1):
            number = self.characters[at][3] if at < len(self.characters) else len(self.strings) - 1
            for line in re.findall(r"[^\n]*\n|[^\n]+", inserted.get(at, "")):
                escaped = json.dumps(line.removesuffix("\n"), ensure_ascii=text.isascii())[1:-1]
                write(number, escaped + newline * line.endswith("\n"), line_ends=line.endswith("\n"))
            if at < len(self.characters) and at not in gone:
                write(number, text[self.characters[at][1] : self.characters[at][2]])
        if not self.listed:
            return f'"{new[0][0]}"'
        return self._listed(new)

    def _listed(self, new: list[list[str]]) -> str:
        """The list, without the strings of which nothing is left."""
        text = self.text
        starts = [start for start, _ in self.strings]
        ends = [end for _, end in self.strings]
        lead = text[self.start + 1 : starts[0]]
        between = text[ends[0] : starts[1]] if len(starts) > 1 else f",{lead}"
        kept = [number for number, parts in enumerate(new) if parts != [""] or ends[number] - starts[number] == 2]
        kept = kept or [0]
        written = text[self.start : starts[0]]
        for place, number in enumerate(kept):
            written += between.join(f'"{part}"' for part in new[number])
            if place + 1 < len(kept):
                written += text[ends[number] : starts[number + 1]]
        return written + text[ends[-1] : self.end]
