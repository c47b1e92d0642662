"""A text as the protocol sees it: lines end where it says they do, and columns count in the client's units."""

from __future__ import annotations

import re
from functools import cached_property

from lsprotocol.types import Position, PositionEncodingKind, Range

_LINE_END = re.compile(r"\r\n|\r|\n")
_WIDE = re.compile("[\U00010000-\U0010ffff]")


class Text:
    """An immutable text with the client's positions in it."""

    def __init__(self, value: str, encoding: PositionEncodingKind | str) -> None:
        self.value = value
        self.encoding = encoding

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """Where each line starts, and where it ends before its line end."""
        bounds = []
        start = 0
        for end in _LINE_END.finditer(self.value):
            bounds.append((start, end.start()))
            start = end.end()
        return [*bounds, (start, len(self.value))]

    def line(self, number: int) -> str:
        """The line of that number, from 0, without its end; '' where there is none."""
        if not 0 <= number < len(self._bounds):
            return ""
        start, end = self._bounds[number]
        return self.value[start:end]

    def position(self, line: int, column: int) -> Position:
        """The client's position of a line and a column in characters, both from 1."""
        number = max(line - 1, 0)
        return Position(number, self._units(self.line(number)[: max(column - 1, 0)]))

    def range(self, line: int, column: int, end_line: int, end_column: int) -> Range:
        """As `position`, from the first place to the last."""
        return Range(self.position(line, column), self.position(end_line, end_column))

    def place(self, position: Position) -> tuple[int, int]:
        """The line and the column in characters, from 1, of a client's position; what is outside is moved inside."""
        number = min(max(position.line, 0), len(self._bounds) - 1)
        return number + 1, self._characters(self.line(number), position.character) + 1

    def edited(self, range_: Range | None, new: str) -> Text:
        """The text with `new` in the place of a range, or of all."""
        if range_ is None:
            return Text(new, self.encoding)
        start, end = sorted((self._offset(range_.start), self._offset(range_.end)))
        return Text(self.value[:start] + new + self.value[end:], self.encoding)

    def _offset(self, position: Position) -> int:
        if position.line >= len(self._bounds):
            return len(self.value)
        line, column = self.place(position)
        return self._bounds[line - 1][0] + column - 1

    def _units(self, text: str) -> int:
        if self.encoding == PositionEncodingKind.Utf32 or text.isascii():
            return len(text)
        if self.encoding == PositionEncodingKind.Utf8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + len(_WIDE.findall(text))

    def _characters(self, line: str, units: int) -> int:
        """How many characters of `line` lie before so many units; a position within a character is before it."""
        if self.encoding == PositionEncodingKind.Utf32 or line.isascii():
            return min(max(units, 0), len(line))
        passed = 0
        for number, character in enumerate(line):
            passed += self._units(character)
            if passed > units:
                return number
        return len(line)
