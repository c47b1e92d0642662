"""Instruments the program's own files: every loop counts its turns, and flagged statements say that they ran.

Nothing else is changed: statements are only put before and after those of the program, with their positions, so that
tracebacks and `co_positions` stay those of the source.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

NAME = "@gradlint"
"""The one name in builtins; it is no identifier, so that no program has it."""


class Flag(NamedTuple):
    """A place that somebody asks about, by its number; columns are byte offsets, lines count from 1."""

    number: int
    line: int
    column: int
    end_line: int
    end_column: int


class Watch(NamedTuple):
    """What a flagged statement changes: `kind` 'assign', 'append' or '', and the path of names to it."""

    flag: int
    kind: str
    path: tuple[str, ...]
    attribute: str
    span: tuple[int, int, int, int]
    names: tuple[str, ...]
    """The variables that it reads."""


class Instrumented(NamedTuple):
    code: CodeType
    loops: dict[int, tuple[int, ...]]
    """Per loop the loops around it, outermost first."""
    spans: dict[int, tuple[int, int, int, int]]
    """Per loop where it stands: line, column, end line, end column."""
    watches: list[Watch]


def instrument(
    source: bytes | str, path: str, flags: Sequence[Flag], first_loop: int, first_watch: int
) -> Instrumented:
    tree = ast.parse(source, path)
    writer = _Writer(flags, first_loop, first_watch)
    writer.block_of(tree)
    code = compile(tree, path, "exec", dont_inherit=True)
    return Instrumented(code, writer.loops, writer.spans, writer.watches)


class _Writer:
    def __init__(self, flags: Sequence[Flag], first_loop: int, first_watch: int) -> None:
        self.flags = list(flags)
        self.next_loop = first_loop
        self.next_watch = first_watch
        self.loops: dict[int, tuple[int, ...]] = {}
        self.spans: dict[int, tuple[int, int, int, int]] = {}
        self.watches: list[Watch] = []
        self.around: tuple[int, ...] = ()
        self.in_forward = False

    def block_of(self, node: ast.AST) -> None:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, self.block(block, docstring=name == "body" and _holds_docstring(node)))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)
        for case in getattr(node, "cases", ()):
            case.body = self.block(case.body)

    def block(self, body: list[ast.stmt], *, docstring: bool = False) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for at, statement in enumerate(body):
            before, after = self.flagged(statement)
            if isinstance(statement, ast.Return) and self.in_forward:
                before.append(self.probe("returning", self.watch(-1, statement, Target()), statement))
            self.inside(statement)
            first = docstring and at == 0 and _is_text(statement)
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not (first or future):
                out += before
            out.append(statement)
            if not (first or future):
                out += after
        return out

    def inside(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            around, self.around = self.around, ()
            forward, self.in_forward = self.in_forward, getattr(statement, "name", "") == "forward"
            self.block_of(statement)
            self.around, self.in_forward = around, forward
        elif isinstance(statement, (ast.For, ast.While, ast.AsyncFor)):
            number = self.next_loop
            self.next_loop += 1
            self.loops[number] = self.around
            self.spans[number] = _span(statement)
            around = self.around
            self.around = (*around, number)
            self.block_of(statement)
            self.around = around
            statement.body.insert(0, self.probe("turn", number, statement.body[0]))
        else:
            self.block_of(statement)

    def flagged(self, statement: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        for flag in [f for f in self.flags if _is_about(statement, f)]:
            self.flags.remove(flag)
            for target in _targets(statement):
                number = self.watch(flag.number, statement, target)
                before.append(self.probe("before", number, statement))
                if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)):
                    after.append(self.probe("after", number, statement))
                if target.kind == "append" and not self.watches[-1].path and target.value is not None:
                    self.hold(number, target.value, statement)
        return before, after

    def hold(self, number: int, value: ast.expr, statement: ast.stmt) -> None:
        """Look at the value of an expression that is no path of names, as the statement computes it."""
        held: Any = self.probe("held", number, statement).value
        held.args.append(value)
        whole: Any = statement
        whole.value.func.value = ast.copy_location(held, value)

    def watch(self, flag: int, statement: ast.stmt, target: Target) -> int:
        read = _read(statement) if flag >= 0 else ()
        self.watches.append(Watch(flag, target.kind, _path(target.value), target.name, _span(statement), read))
        self.next_watch += 1
        return self.next_watch - 1

    def probe(self, method: str, number: int, at: ast.stmt) -> ast.Expr:
        call = ast.Expr(
            ast.Call(
                func=ast.Attribute(value=ast.Name(id=NAME, ctx=ast.Load()), attr=method, ctx=ast.Load()),
                args=[ast.Constant(number)],
                keywords=[],
            )
        )
        # All at the start of the statement: a traceback or a coverage report sees nothing new.
        for node in ast.walk(call):
            if isinstance(node, (ast.expr, ast.stmt)):
                node.lineno, node.col_offset = at.lineno, at.col_offset
                node.end_lineno, node.end_col_offset = at.lineno, at.col_offset
        return call


def _is_about(statement: ast.stmt, flag: Flag) -> bool:
    """Whether the flag's beginning lies in this statement and in no statement inside it."""
    start = (flag.line, flag.column)
    line, column, end_line, end_column = _span(statement)
    for decorator in getattr(statement, "decorator_list", ()):
        line = min(line, decorator.lineno)
    if flag.column < 0:
        inside = line <= flag.line <= end_line
        start = (flag.line, -1)
        if inside and flag.line == line:
            return True
    else:
        inside = (line, column) <= start < (end_line, end_column) or (start == (line, column))
    if not inside:
        return False
    return not any(
        (_span(inner)[0] <= flag.line <= _span(inner)[2])
        if flag.column < 0
        else (_span(inner)[:2] <= start < _span(inner)[2:])
        for inner in _blocks(statement)
    )


def _blocks(statement: ast.stmt) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            found += [s for s in block if isinstance(s, ast.stmt)]
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        found += part.body
    return found


def _span(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


class Target(NamedTuple):
    """One thing that a statement changes."""

    kind: str = ""
    value: ast.expr | None = None
    name: str = ""


def _targets(statement: ast.stmt) -> list[Target]:
    """What a statement changes: one target at least, of kind '' where it is nothing that can be looked at."""
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, (ast.Tuple, ast.List)):
            each = [_target(one) for one in target.elts if isinstance(one, (ast.Name, ast.Attribute))]
            return each or [Target()]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        target = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        if isinstance(called, ast.Attribute) and called.attr in ("append", "extend", "insert", "appendleft", "add"):
            return [Target("append", called.value, called.attr)]
    if isinstance(target, ast.Subscript) and isinstance(statement, ast.Assign):
        # What is put there, where it has a name.
        return [Target("item", statement.value)]
    return [_target(target)]


def _target(target: ast.expr | None) -> Target:
    if isinstance(target, ast.Attribute):
        return Target("attribute", target.value, target.attr)
    if isinstance(target, ast.Name):
        return Target("name", target, target.id)
    return Target()


def _read(statement: ast.stmt) -> tuple[str, ...]:
    """The variables that the statement reads, those of the statements inside it excluded."""
    inner = _blocks(statement)
    found: dict[str, None] = {}
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] = None
        todo.extend(child for child in ast.iter_child_nodes(node) if child not in inner)
    return tuple(found)


def _path(node: ast.expr | None) -> tuple[str, ...]:
    """`self.model.layers` as its names; empty where it is more than names."""
    names: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, (int, str)):
            names.append(f"[{node.slice.value!r}")
        else:
            return ()
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    names.append(node.id)
    return tuple(reversed(names))


def _holds_docstring(node: ast.AST) -> bool:
    return isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
