"""The libcst tree of an edited text, made from the tree of the text before: only the statement that changed is parsed.

libcst takes ten times as long as `ast`, and an edit changes one statement of hundreds.  Nodes know nothing of where
they stand, so those around the edit serve again.  Where it is not plain that they are what a whole parse would give,
the answer is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import libcst as cst


class Lines(NamedTuple):
    """The lines of a statement, counted from 1, and the blocks of statements in it with the way to each in libcst."""

    first: int
    last: int
    column: int
    blocks: Sequence[tuple[tuple[str, ...], Sequence[Lines]]]


def lines_in(tree: ast.Module) -> Sequence[Lines]:
    """Where the statements of a text are."""
    return _lines(tree.body)


def unchanged(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines at the beginning, and how many of the rest at the end, are the same."""
    most = min(len(old), len(new))
    above = next((i for i in range(most) if old[i] != new[i]), most)
    return above, next((i for i in range(most - above) if old[-1 - i] != new[-1 - i]), most - above)


def _lines(body: Sequence[ast.stmt]) -> Sequence[Lines]:
    found = []
    for node in body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        blocks = list(_blocks(node, ())) if isinstance(node, _COMPOUND) else ()
        found.append(Lines(first, node.end_lineno or node.lineno, node.col_offset, blocks))
    return found


def _blocks(node: Any, way: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Sequence[Lines]]]:
    yield (*way, "body"), _lines(node.body)
    rest: list[ast.stmt] = getattr(node, "orelse", [])
    if (
        isinstance(node, ast.If)
        and len(rest) == 1
        and isinstance(rest[0], ast.If)
        and rest[0].col_offset == node.col_offset
    ):
        # An `elif`: libcst has it in the place of the `else`.
        yield from _blocks(rest[0], (*way, "orelse"))
    elif rest:
        yield (*way, "orelse", "body"), _lines(rest)
    if last := getattr(node, "finalbody", []):
        yield (*way, "finalbody", "body"), _lines(last)


_COMPOUND = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith,
    ast.If, ast.Try,
)  # fmt: skip


class _Edit(NamedTuple):
    """What changed: the lines after `above` and before the last `below` ones."""

    old: Sequence[str]
    new: Sequence[str]
    above: int
    below: int
    indent: str

    def inside(self, old: Lines, new: Lines) -> bool:
        """Whether all of it is in a statement."""
        return (
            min(old.first, new.first) > 0
            and max(old.first, new.first) <= self.above + 1
            and len(self.old) - self.below <= old.last
            and len(self.new) - self.below <= new.last
        )

    def remark_after(self, new: Lines) -> bool:
        """Whether a remark follows a statement: to which block it belongs is libcst's to say."""
        following = next((line.strip() for line in self.new[new.last :] if line.strip()), "")
        return following.startswith("#")


def spliced(
    module: cst.Module, old_text: str, new_text: str, old: Sequence[Lines], new: Sequence[Lines]
) -> cst.Module | None:
    """The tree of `new_text`, given that of `old_text`; None where it must be parsed as a whole."""
    if "\f" in new_text or "\f" in old_text:
        return None
    before, after = old_text.split("\n"), new_text.split("\n")
    edit = _Edit(before, after, *unchanged(before, after), module.default_indent)
    body = _body(edit, module.body, old, new, ())
    return module.with_changes(body=body) if body is not None else None


def _body(
    edit: _Edit, body: Sequence[Any], old: Sequence[Lines], new: Sequence[Lines], around: tuple[int, ...]
) -> Sequence[Any] | None:
    """The statements of a block, one of them edited; `around` are the columns of the statements around the block."""
    if len(old) != len(new) or len(old) != len(body):
        return None
    for at, (was, now) in enumerate(zip(old, new, strict=True)):
        if was.column != now.column:
            return None
        if edit.inside(was, now):
            made = _statement(edit, body[at], was, now, around)
            return [*body[:at], made, *body[at + 1 :]] if made is not None else None
    return None


def _statement(edit: _Edit, node: Any, old: Lines, new: Lines, around: tuple[int, ...]) -> Any:
    if edit.remark_after(new):
        return None
    for (way, was), (other, now) in zip(old.blocks, new.blocks, strict=False):
        if way != other:
            break
        block = node
        for step in way:
            block = getattr(block, step)
        if isinstance(block, cst.IndentedBlock):
            body = _body(edit, block.body, was, now, (*around, new.column))
            if body is not None:
                return _put(node, way, block.with_changes(body=body))
    if not around:
        return None
    wrapped = [" " * column + "if 1:" for column in around] + list(edit.new[new.first - 1 : new.last])
    config = cst.PartialParserConfig(default_indent=edit.indent)
    parsed: Any = cst.parse_module("\n".join(wrapped) + "\n", config).body
    for _ in around:
        parsed = parsed[0].body.body
    return parsed[0].with_changes(leading_lines=node.leading_lines) if len(parsed) == 1 else None


def _put(node: Any, way: tuple[str, ...], block: cst.IndentedBlock) -> Any:
    """`node` with `block` in the place that `way` leads to."""
    if len(way) == 1:
        return node.with_changes(**{way[0]: block})
    return node.with_changes(**{way[0]: _put(getattr(node, way[0]), way[1:], block)})
