"""Runs one program under torch and on shadow tensors, and looks at the same values on both sides.

A look is an expression and a line: what it is worth whenever the statement that ends on that line has run.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import libcst as cst

from gradlint.program import File, Program
from gradlint.shadow.interpreter import Choices, Interpreter, OutOfBudget, Raised
from gradlint.shadow.values import Dict, List, Set, Symbol
from gradlint.trace import MAYBE, NO, YES, Known, Tensor, Trace

MOST_PATHS = 10
STEPS = 90_000


class Unknown:
    """The value of something that only has a kind: a function, a module, or what shadow does not know."""

    def __repr__(self) -> str:
        return "..."


UNKNOWN = Unknown()


class Look(NamedTuple):
    line: int
    expression: str


class Seen(NamedTuple):
    """What one side says of a value; the first three are of tensors."""

    requires_grad: Known = MAYBE
    leaf: Known = MAYBE
    version: int | None = None
    value: object = UNKNOWN


Sights = Mapping[Look, Sequence[Seen]]


@dataclass
class Ran:
    """A program's run under torch."""

    seen: dict[Look, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    error: BaseException | None = None
    line: int = 0
    """The line of the program at which the error was raised."""
    plain_views: bool = False
    """Views were made with grad mode off."""


def run(source: str, looks: Iterable[Look] = (), argv: Sequence[str] = ("program",)) -> Ran:
    """Runs `source` as a program; an exception that it lets out is part of the answer."""
    import torch

    ran = Ran()

    def look(line: int, expression: str, value: object) -> None:
        ran.seen[Look(line, expression)].append(_of_torch(value))

    tree = _Recorder(looks).visit(ast.parse(source))
    code = compile(ast.fix_missing_locations(tree), "<program>", "exec", dont_inherit=True)
    kept, sys.argv = sys.argv, list(argv)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(), _views(ran):
            warnings.simplefilter("ignore")
            exec(code, {"__name__": "__main__", "_look": look})  # noqa: S102
    except BaseException as error:  # noqa: BLE001 - whatever the program lets out
        # What a `finally` raises after torch's refusal is a consequence of it.
        ran.error = first = next((e for e in reversed(_chain(error)) if isinstance(e, RuntimeError)), error)
        trace = first.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<program>":
                ran.line = trace.tb_lineno
            trace = trace.tb_next
    finally:
        sys.argv = kept
        torch.set_grad_enabled(True)
    return ran


def _chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *_chain(error.__context__)]


def _views(ran: Ran) -> contextlib.AbstractContextManager[object]:
    """Irons out two oddities of torch (2.13) about views.

    It says that `x[0]` requires grad where `x` does, also under `no_grad`; yet that is a leaf, nothing flows through
    it to `x`, and torch refuses to change it in place.  For shadow it is cut like any other result there.
    And it takes a view for a leaf whose base has since become part of a graph, unless someone asks for `grad_fn`.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
            if "__get__" not in getattr(func, "__qualname__", "__get__"):
                for value in given:
                    if value._is_view():
                        _ = value.grad_fn
            result = func(*args, **(kwargs or {}))
            if torch.is_grad_enabled():
                return result

            def plain(value: object) -> object:
                if not isinstance(value, torch.Tensor) or any(value is one for one in given) or not value._is_view():
                    return value
                if not value.requires_grad or not value.is_leaf:
                    return value
                ran.plain_views = True
                return value.detach()

            return tree_map(plain, result)

    return Mode()


class _Recorder(ast.NodeTransformer):
    """Puts the looks behind their statements."""

    def __init__(self, looks: Iterable[Look]) -> None:
        self.looks: dict[int, list[Look]] = defaultdict(list)
        for look in looks:
            self.looks[look.line].append(look)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, [made for statement in body for made in self.looked_at(statement)])
        return node

    def looked_at(self, statement: ast.stmt) -> list[ast.stmt]:
        if hasattr(statement, "body"):
            return [statement]
        made = [statement]
        for look in self.looks.get(statement.end_lineno or 0, ()):
            made += ast.parse(f"_look({look.line}, {look.expression!r}, {look.expression})").body
        for added in made[1:]:
            for node in ast.walk(added):
                if isinstance(node, (ast.expr, ast.stmt)):
                    node.lineno = node.end_lineno = statement.lineno
        return made


def _of_torch(value: object) -> Seen:
    import torch

    if isinstance(value, torch.Tensor):
        version = None if value.is_inference() else value._version
        return Seen(Known.of(value.requires_grad), Known.of(value.is_leaf), version, UNKNOWN)
    return Seen(NO, NO, None, _plain(value))


def _plain(value: object) -> object:
    """A value that both sides can have, containers opened."""
    if isinstance(value, (bool, float, str, type(None))):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (Dict, List)) and value.open:
        return UNKNOWN
    if isinstance(value, (set, frozenset, Set)):
        return {_plain(item) for item in value}
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return UNKNOWN


@dataclass
class Path:
    """One path of the shadow teller."""

    trace: Trace
    seen: dict[Look, list[Seen]]


class _Watcher(Interpreter):
    """Looks at names while the teller walks."""

    looks: Mapping[int, Sequence[tuple[Look, cst.BaseExpression]]]
    seen: dict[Look, list[Seen]]

    def statement(self, node: cst.CSTNode) -> str | None:
        signal = super().statement(node)
        if self.looks and isinstance(node, cst.SimpleStatementLine):
            for look, expression in self.looks.get(self.site(node).span.end_line, ()):
                self.seen[look].append(_of_shadow(self, self.evaluate(expression)))
        return signal


def _of_shadow(run: Interpreter, value: object) -> Seen:
    if isinstance(value, Symbol) and value.tensor is not None:
        value = value.tensor
    if isinstance(value, Tensor):
        requires_grad = value.requires_grad
        leaf = YES if requires_grad is NO else MAYBE if requires_grad is MAYBE else Known.of(value.is_leaf)
        if value.note == "converted":
            # `x.to(...)` may give `x` itself, which depends on the machine.
            leaf = MAYBE
        # `.data` counts its versions by itself, which no rule needs.
        version = value.storage.version if value.data_of is None and value.certain else None
        return Seen(requires_grad, leaf, version, UNKNOWN)
    if isinstance(value, Symbol):
        truth = run.known_truth(value)
        return Seen(MAYBE, MAYBE, None, UNKNOWN if truth is None else truth)
    return Seen(NO, NO, None, _plain(value))


def tell(source: str, looks: Iterable[Look] = (), most_paths: int = MOST_PATHS) -> list[Path]:
    """The paths that the shadow teller takes through `source` as a program."""
    file = File("program.py", source)
    program = Program([file])
    choices = Choices()
    by_line: dict[int, list[tuple[Look, cst.BaseExpression]]] = defaultdict(list)
    for look in looks:
        by_line[look.line].append((look, cst.parse_expression(look.expression)))
    paths = []
    for _ in range(most_paths):
        choices.begin_walk(0)
        walk = _Watcher(program, choices, "program.py", steps=STEPS)
        walk.looks, walk.seen = by_line, defaultdict(list)
        walk.chunk = file.chunks[0]
        walk.trace.whole_program = True
        try:
            walk.file(file, main=True)
        except OutOfBudget:
            walk.trace.complete = False
        except Raised:
            pass
        walk.forget()
        paths.append(Path(walk.trace, walk.seen))
        if not choices.fresh:
            break
    return paths


def bound_names(source: str) -> list[Look]:
    """A look at every name that a simple statement binds, changes or calls a method of."""
    looks = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            targets = [node.value.func]
        for target in targets:
            root: ast.expr = target
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(root, ast.Name) and root.id != "super" and not root.id.startswith("_"):
                looks.append(Look(node.end_lineno or 0, root.id))
    return looks
