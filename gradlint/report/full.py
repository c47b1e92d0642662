"""For people: every finding with its source, the places that explain it, and what to write instead."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gradlint.report import Report
from gradlint.rule import Finding
from gradlint.trace import Span

CLOSE = 6
"""Places at most so many lines apart are shown in one excerpt."""
GAP = 2
"""So many unmarked lines between two marked ones are shown, more become dots."""
TAB = 4
WIDTH = 140
"""A line of source wider than this is cut around what it is shown for."""

Piece = tuple[str, str]
"""Some text and its style."""

_QUIET = "blue bold"
_STYLES = {"error": "red bold", "warning": "yellow bold", "info": "cyan bold"}


@dataclass(frozen=True, slots=True)
class _Mark:
    span: Span
    label: str
    style: str
    sign: str


def render(report: Report) -> str:
    """The report as plain text."""
    return "".join(text for text, _ in pieces(report))


def pieces(report: Report) -> Iterator[Piece]:
    """The report as styled text; newlines are in the pieces."""
    for finding in report.findings:
        yield from _finding(report, finding)
        yield "\n", ""
    yield f"{report.summary()}\n", ""


def _finding(report: Report, finding: Finding) -> Iterator[Piece]:
    head = (
        (f"{finding.severity}[{finding.code}]", _STYLES[finding.severity]),
        (f" {finding.name}: {' '.join(finding.message.split())}\n", "bold"),
    )
    yield from told(report, finding, head, ())


def told(
    report: Report, finding: Finding, head: Sequence[Piece], footers: Sequence[tuple[str, str]]
) -> Iterator[Piece]:
    """A finding under `head` with its source, its reasons, and `footers` (a word and a text each) below them."""
    style = head[0][1]
    for text, own in head:
        yield _clean(text), own
    blocks = _blocks(report, finding, style)
    widest = max((report.cell(mark.span)[1].line for block in blocks for mark in block), default=1)
    margin = " " * (len(str(widest)) + 1)
    for number, block in enumerate(blocks):
        first = finding.span if number == 0 else block[0].span
        if number:
            yield f"{margin}|\n", _QUIET
        yield f"{margin[1:]}{'::: ' if number else '--> '}", _QUIET
        yield f"{_clean(report.place(first))}\n", ""
        if first.path in report.sources:
            yield f"{margin}|\n", _QUIET
            yield from _excerpt(report, block, margin)
    yield f"{margin}|\n", _QUIET
    for word, text in footers:
        yield from _footer(margin, word, text)
    if finding.instead:
        yield from _footer(margin, "instead", finding.instead)
    if finding.fix is not None:
        option = "--fix" if finding.fix.safe else "--fix --unsafe-fixes"
        yield from _footer(margin, "fix", f"{finding.fix.message} ({option})")
    yield from _footer(margin, "more", f"gradlint explain {finding.name}")


def _footer(margin: str, word: str, text: str) -> Iterator[Piece]:
    yield f"{margin}= ", _QUIET
    yield f"{word}: ", "bold"
    indent = " " * (len(margin) + len(word) + 4)
    yield f"\n{indent}".join(map(_clean, text.strip("\n").split("\n"))) + "\n", ""


def _blocks(report: Report, finding: Finding, style: str) -> list[list[_Mark]]:
    """The places of a finding, those that stand close in one block; the finding's own block first."""
    labels: dict[Span, list[str]] = {finding.span: []}
    for because in finding.because:
        labels.setdefault(because.span, []).append(because.text)
    own, *others = [_Mark(span, "; ".join(texts), _QUIET, "-") for span, texts in labels.items()]
    blocks = [[replace(own, style=style, sign="^")]]
    for mark in others:
        near = [block for block in blocks if any(_close(report, mark, other) for other in block)]
        if near:
            # A place between two blocks joins them.
            for block in near[1:]:
                near[0] += block
                blocks.remove(block)
            near[0].append(mark)
        else:
            blocks.append([mark])
    for block in blocks:
        block.sort(key=lambda mark: (mark.span.line, mark.span.column))
    return blocks


def _close(report: Report, one: _Mark, other: _Mark) -> bool:
    if one.span.path != other.span.path or report.cell(one.span)[0] != report.cell(other.span)[0]:
        return False
    return abs(one.span.line - other.span.line) <= CLOSE


def _excerpt(report: Report, block: list[_Mark], margin: str) -> Iterator[Piece]:
    lines = report.sources[block[0].span.path].text.split("\n")
    shift = report.cell(block[0].span)[1].line - block[0].span.line
    shown = 0
    for line in sorted({mark.span.line for mark in block}):
        between = range(shown + 1, line) if shown else range(0)
        if len(between) > GAP:
            yield "...\n", _QUIET
        else:
            for number in between:
                yield from _line(lines, number, shift, margin, [])
        yield from _line(lines, line, shift, margin, [mark for mark in block if mark.span.line == line])
        shown = line


def _line(lines: list[str], number: int, shift: int, margin: str, marks: list[_Mark]) -> Iterator[Piece]:
    text = lines[number - 1] if number <= len(lines) else ""
    cells = _cells(text)
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + cell[1])
    left, right = _window(offsets, min((mark.span.column - 1 for mark in marks), default=0))
    cut = "..." if left else ""
    shown = cut + "".join(cell[0] for cell in cells[left:right]) + ("..." if right < len(cells) else "")
    yield f"{number + shift:>{len(margin) - 1}} |", _QUIET
    yield f" {shown}".rstrip() + "\n", ""
    for mark in marks:
        start = min(mark.span.column - 1, right)
        last = mark.span.end_column - 1 if mark.span.end_line == mark.span.line else len(text.rstrip())
        end = min(max(last, start), right)
        indent = offsets[start] - offsets[left] + len(cut)
        signs = mark.sign * max(1, offsets[end] - offsets[start])
        yield f"{margin}|", _QUIET
        yield f" {' ' * indent}{signs} {_clean(mark.label)}".rstrip() + "\n", mark.style


def _window(offsets: list[int], start: int) -> tuple[int, int]:
    """Which characters of a line to show so that the one at `start` is seen."""
    left = 0
    start = min(start, len(offsets) - 1)
    if offsets[-1] > WIDTH and offsets[start] > WIDTH * 2 // 3:
        while offsets[start] - offsets[left] > WIDTH // 3:
            left += 1
    right = len(offsets) - 1
    while offsets[right] - offsets[left] > WIDTH:
        right -= 1
    return left, right


def _cells(text: str) -> list[tuple[str, int]]:
    """What a terminal shows for each character, and how many columns that takes."""
    cells: list[tuple[str, int]] = []
    column = 0
    for character in text:
        if character == "\t":
            width = TAB - column % TAB
            cells.append((" " * width, width))
        elif character < "\x7f":
            width = 1
            cells.append((_clean(character), 1))
        else:
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            width = 0 if unicodedata.combining(character) else width
            cells.append((_clean(character), width))
        column += width
    return cells


def _clean(text: str) -> str:
    """The text without what would make a terminal do more than show it: controls and changes of direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else _PICTURES.get(ord(character), "\ufffd")
        for character in text
    )


_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421", 0xA0: " ", 0x3000: "\u3000"}
