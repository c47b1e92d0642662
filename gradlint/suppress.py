"""Comments that allow a finding: `# gradlint: allow[name] reason`, and flake8's `# noqa`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gradlint.faults import FAULTS
from gradlint.rule import Finding
from gradlint.selection import Unknown
from gradlint.sources import Source
from gradlint.text import comments

_ALLOW = re.compile(r"#\s*gradlint\s*:\s*(?P<verb>[\w-]+)(?:\s*\[(?P<names>[^\]]*)\])?")
_NOQA = re.compile(r"#\s*noqa\b(?P<codes>\s*:\s*[A-Z][0-9]*\w*(?:[\s,]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)
_FAULTS = {page.name for page in FAULTS}


@dataclass
class Allowed:
    """What the comments of one source allow."""

    warnings: list[str] = field(default_factory=list)
    """For the user: comments that name no rule."""
    names: set[str] = field(default_factory=set)
    """Allowed in the whole file."""
    by_line: dict[int, set[str]] = field(default_factory=dict)
    codes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By line, the beginnings of the codes that `noqa` allows."""

    def __contains__(self, finding: Finding) -> bool:
        if finding.name in _FAULTS:
            return False
        line = finding.span.line
        return (
            finding.name in self.names
            or finding.name in self.by_line.get(line, ())
            or finding.code.startswith(self.codes.get(line, ()))
        )


def read(source: Source, meant: Callable[[str], frozenset[str]]) -> Allowed:
    """What `source` allows.  `meant` gives the names that a selector means, or raises Unknown."""
    allowed = Allowed()
    if "gradlint" not in source.text and "noqa" not in source.text.lower():
        return allowed
    lines = source.text.split("\n")
    for line, _, comment in comments(source.text):
        alone = lines[line - 1].lstrip().startswith("#")
        for match in _ALLOW.finditer(comment):
            names = set(_names(source, line, match, meant, allowed.warnings))
            if match["verb"] == "allow-file" and alone:
                allowed.names |= names
            else:
                target = _next_code(lines, line) if alone else line
                allowed.by_line.setdefault(target, set()).update(names)
        if noqa := _NOQA.search(comment):
            codes = re.findall(r"[A-Z]+[0-9]+", (noqa["codes"] or "").upper())
            allowed.codes[line] = tuple(codes) if noqa["codes"] else ("",)
    return allowed


def _next_code(lines: list[str], line: int) -> int:
    """The line that a comment on its own line speaks about: the first below that is no comment."""
    while line < len(lines) and lines[line].lstrip().startswith("#"):
        line += 1
    return line + 1


def _names(
    source: Source,
    line: int,
    match: re.Match[str],
    meant: Callable[[str], frozenset[str]],
    warnings: list[str],
) -> Iterator[str]:
    cell, line = source.place(line)
    place = f"{source.path}:{line}" if cell is None else f"{source.path}:cell {cell}:{line}"
    if match["verb"] not in ("allow", "allow-file"):
        warnings.append(f"{place}: `gradlint: {match['verb']}` means nothing; write `gradlint: allow[name]`")
        return
    selectors = [name for name in re.split(r"[\s,]+", match["names"] or "") if name]
    if not selectors:
        warnings.append(f"{place}: `gradlint: {match['verb']}` names no rule; write `{match['verb']}[name]`")
    for selector in selectors:
        try:
            yield from meant(selector)
        except Unknown as error:
            warnings.append(f"{place}: {error}")
