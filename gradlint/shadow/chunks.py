"""A source file cut into its top-level statements, each parsed by libcst when it is first needed.

The cut comes from `ast`, which costs a tenth of a libcst parse; it says only where statements begin and end and
which words they use.  Meaning comes from libcst alone.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from gradlint.trace import Site, Span

if TYPE_CHECKING:
    from collections.abc import Sequence


class Chunk:
    """One top-level statement (or several that share a line)."""

    __slots__ = ("__dict__", "defines", "kind", "line", "methods", "path", "text")

    def __init__(self, path: str, line: int, text: str, kind: str, defines: str) -> None:
        self.path = path
        self.line = line
        """The line of the file at which the chunk begins."""
        self.text = text
        self.kind = kind
        """'def', 'class', 'plain' (imports and assignments) or 'statement'."""
        self.defines = defines
        """The name that a 'def' or 'class' binds."""
        self.methods: dict[str, str] = {}
        """The text of each method of a 'class'."""

    @cached_property
    def module(self) -> cst.Module:
        # libcst takes a form feed at the start of a line for indentation.
        try:
            return cst.parse_module(re.sub(r"^\f+", "", self.text, flags=re.MULTILINE))
        except cst.ParserSyntaxError:
            # Python reads it and libcst does not (`(x): int = 1`): what it says stays unknown.
            return cst.parse_module("")

    @cached_property
    def body(self) -> Sequence[cst.CSTNode]:
        return self.module.body

    @cached_property
    def sites(self) -> dict[int, ShadowSite]:
        return {}

    @cached_property
    def positions(self) -> dict[cst.CSTNode, object]:
        # Only files with a finding come here: this costs twice the parse.
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        return dict(wrapper.resolve(PositionProvider))

    def site(self, node: cst.CSTNode) -> ShadowSite:
        found = self.sites.get(id(node))
        if found is None:
            found = self.sites[id(node)] = ShadowSite(self, node)
        return found


def _calls(statement: ast.stmt, defined: set[str]) -> bool:
    """Whether a top-level statement calls something that its own file defines."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined
        for node in ast.walk(statement)
    )


_DEFINES_NOTHING_THAT_RUNS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Pass)


class ShadowSite(Site):
    """A libcst node as a place in the source; its span is computed when it is first asked for."""

    __slots__ = ("chunk", "node")
    known = True

    def __init__(self, chunk: Chunk, node: cst.CSTNode) -> None:
        self.chunk = chunk
        self.node = node

    @property
    def span(self) -> Span:
        place = self.chunk.positions[self.node]
        start, end = place.start, place.end  # type: ignore[attr-defined]
        above = self.chunk.line - 1
        return Span(self.chunk.path, start.line + above, start.column + 1, end.line + above, end.column + 1)


def chunks(path: str, text: str) -> list[Chunk]:
    """The top-level statements of `text`, in order.  Raises SyntaxError where `ast` does."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    defined = {s.name for s in tree.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    found: list[Chunk] = []
    last_end = 0
    for statement in tree.body:
        decorators = getattr(statement, "decorator_list", [])
        start = min([statement.lineno, *(d.lineno for d in decorators)])
        end = statement.end_lineno or statement.lineno
        if start <= last_end and found:
            # Statements that share a line stay together.
            previous = found.pop()
            start, kind, defines = previous.line, "statement", ""
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kind, defines = "def", statement.name
        elif isinstance(statement, ast.ClassDef):
            kind, defines = "class", statement.name
        else:
            kind, defines = "statement", ""
        chunk = Chunk(path, start, "".join(lines[start - 1 : end]), kind, defines)
        found.append(chunk)
        last_end = max(end, last_end)
        if isinstance(statement, ast.ClassDef) and kind == "class":
            for method in statement.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    chunk.methods[method.name] = "".join(lines[method.lineno - 1 : method.end_lineno])
        elif isinstance(statement, _DEFINES_NOTHING_THAT_RUNS) and not _calls(statement, defined):
            chunk.kind = "plain"
    return found
