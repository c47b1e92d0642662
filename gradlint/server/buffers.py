"""What the client has open: text documents and notebooks, each one source to lint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from lsprotocol.types import Location, NotebookCell, NotebookCellKind, Position, Range

from gradlint import notebook, sources
from gradlint.rule import Finding
from gradlint.server.text import Text
from gradlint.sources import Source
from gradlint.trace import Span


class Buffer(Protocol):
    """Something open that is linted as one file."""

    uri: str
    path: str
    """The file that it stands for; for one that is not saved yet, where it would be."""
    version: int

    def source(self) -> Source | Finding:
        """What is linted, or why it cannot be."""

    def parts(self) -> Sequence[tuple[str, Text]]:
        """The documents that diagnostics are told for."""

    def location(self, span: Span) -> Location:
        """Where the client shows a span of the source."""

    def place(self, uri: str, position: Position) -> tuple[int, int]:
        """The line and column of the source that a position in one of the parts means."""

    def shows(self, span: Span) -> bool:
        """Whether the lines of a span stand in the client's text as they do in the source."""


@dataclass
class Document:
    """A text document."""

    uri: str
    path: str
    version: int
    text: Text

    def source(self) -> Source | Finding:
        """The text with its line ends made one."""
        text = self.text.value.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        return sources.checked(Source(self.path, text))

    def parts(self) -> Sequence[tuple[str, Text]]:
        """Itself."""
        return ((self.uri, self.text),)

    def location(self, span: Span) -> Location:
        """In it, line by line."""
        shift = self._mark
        line, column, end_line, end_column = span.line, span.column, span.end_line, span.end_column
        column += shift if line == 1 else 0
        end_column += shift if end_line == 1 else 0
        return Location(self.uri, self.text.range(line, column, end_line, end_column))

    def place(self, uri: str, position: Position) -> tuple[int, int]:
        """In it, line by line."""
        line, column = self.text.place(position)
        return line, column - self._mark if line == 1 else column

    def shows(self, span: Span) -> bool:
        """All of them do."""
        return True

    @property
    def _mark(self) -> int:
        """How many characters a byte order mark takes, which a client may leave in the text."""
        return 1 if self.text.value.startswith("\ufeff") else 0


@dataclass
class Notebook:
    """A notebook: its code cells are one program."""

    uri: str
    path: str
    version: int
    cells: list[NotebookCell]
    texts: dict[str, Text] = field(default_factory=dict)
    """By the URI of the cell."""

    def source(self) -> Source | Finding:
        """The code cells, joined."""
        return sources.checked(self._joined)

    @cached_property
    def _joined(self) -> Source:
        text, cells = notebook.joined(
            (number, self.texts[cell.document].value)
            for number, cell in enumerate(self.cells, 1)
            if cell.kind == NotebookCellKind.Code and self._value(cell.document)
        )
        return Source(self.path, text, cells)

    def _value(self, uri: str) -> str:
        return self.texts[uri].value if uri in self.texts else ""

    def parts(self) -> Sequence[tuple[str, Text]]:
        """The cells that have a text here, in order."""
        return [(cell.document, self.texts[cell.document]) for cell in self.cells if cell.document in self.texts]

    def location(self, span: Span) -> Location:
        """In the cell that it begins in."""
        number, line = self._joined.place(span.line)
        if number is None:
            # Of the notebook as a whole: its first cell shows it.
            uri = next((uri for uri, _ in self.parts()), self.uri)
            return Location(uri, Range(Position(0, 0), Position(0, 0)))
        uri = self.cells[number - 1].document
        end_line = span.end_line - span.line + line
        return Location(uri, self.texts[uri].range(line, span.column, end_line, span.end_column))

    def place(self, uri: str, position: Position) -> tuple[int, int]:
        """In the joined text."""
        numbers = {cell.document: number for number, cell in enumerate(self.cells, 1)}
        line, column = self.texts[uri].place(position)
        for cell in self._joined.cells:
            if cell.number == numbers.get(uri):
                return cell.first_line + line - 1, column
        return 0, 0

    def shows(self, span: Span) -> bool:
        """What stands for a magic does not."""
        lines = self._joined.text.split("\n")
        number, first = self._joined.place(span.line)
        if number is None or self._joined.place(span.end_line)[0] != number:
            return False
        text = self.texts[self.cells[number - 1].document]
        shift = first - span.line
        return all(text.line(line + shift - 1) == lines[line - 1] for line in range(span.line, span.end_line + 1))
