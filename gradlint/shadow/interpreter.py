"""Walks the statements and expressions of one path through a program.

There is no control-flow graph and nothing is merged: a condition that cannot be known is decided, the decision
holds for the rest of the path, and `tell` walks again to see the other side.  The walk goes over the fields that
carry meaning, never through `visit` or `children`.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import libcst as cst

from gradlint import facts
from gradlint.program import File, Program
from gradlint.shadow import python, torch
from gradlint.shadow.autograd import Autograd
from gradlint.shadow.chunks import Chunk, ShadowSite
from gradlint.shadow.values import (
    Bound,
    Builtin,
    Class,
    Dict,
    External,
    Function,
    GradContext,
    List,
    Managed,
    ModuleObject,
    Number,
    Object,
    OptimizerObject,
    Partial,
    Pending,
    PythonException,
    PythonIterator,
    Scope,
    Set,
    Super,
    Symbol,
    TensorMethod,
    Turn,
    Value,
)
from gradlint.trace import (
    MAYBE,
    NO,
    YES,
    Called,
    Discarded,
    Frame,
    GradMode,
    Rebound,
    Returned,
    Stored,
    Tensor,
)

BREAK, CONTINUE, RETURN = "break", "continue", "return"

# Loops: a loop of unknown length is told twice; the second turn meets what the first left behind.
_UNKNOWN_TURNS = 2
_TURNS_WITH_BACKWARD = 3
_MOST_TURNS = 16
# `range(12)` repeats one thing twelve times: what the third turn does not show, the twelfth does not either.
_COUNTED_TURNS = 3
_DEEPEST_CALL = 24
_STEPS = 60_000
_STEPS_BETWEEN_POLLS = 1_000
# For the statements that bind one name of a file, when it is first read.
_STEPS_OF_A_NAME = 20_000


class OutOfBudget(Exception):
    """The entry has used its steps: what is left of the path stays untold."""


class Raised(Exception):
    """The program raises."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class Stopped(Exception):
    """Whoever asked for the findings does not want them any more."""


class Choices:
    """Which sides of which conditions the walks so far have taken."""

    def __init__(self, poll: Callable[[], None] | None = None) -> None:
        self.poll = poll
        """Called every few milliseconds of a walk; it may raise Stopped."""
        self.left = 0
        """How many steps all entries together may still take."""
        self.taken: dict[int, set[bool]] = {}
        self.sides: dict[int, set[bool]] = {}
        """Which sides of each `if` have been told, known conditions included."""
        self.told: set[int] = set()
        """The functions that some walk has entered."""
        self.begin()

    def begin(self) -> None:
        """Begin an entry: from here on it is noted what the entry finds told already, and what it adds."""
        self.found_taken: dict[int, frozenset[bool]] = {}
        self.found_told: list[tuple[int, bool, Mapping[int, frozenset[bool]], bool]] = []
        self.new_sides: dict[int, set[bool]] = {}
        self.new_told: set[int] = set()
        self.imported: dict[str, Scope] = {}
        """The names of imported files: one run of a file's statements serves all walks of an entry."""
        self.begin_walk(0)

    def begin_walk(self, number: int) -> None:
        self.fresh = False
        """The present walk took a side that no walk took before."""
        self.odd = number % 2 == 1
        self.turning = False
        """The present walk has decided something in a loop that could go either way."""
        self.passed: set[int] = set()
        """The checks that the present walk is the first to pass."""
        self.turned: set[int] = set()
        """The conditions in loops that the present walk has decided an odd number of times."""

    def end(self) -> Coverage:
        """End an entry: later ones find what it has told."""
        after = {node: frozenset(self.taken[node]) for node in self.found_taken}
        coverage = Coverage(self.found_taken, tuple(self.found_told), after, self.new_sides, self.new_told)
        coverage.add_to(self)
        for scope in self.imported.values():
            scope.names.clear()
        return coverage

    def untold(self, function: Function, whole: bool = True) -> bool:
        """Whether nothing has entered a function or, of the `whole`, some side of an `if` is still to be seen."""
        key = id(function.node)
        inside = _conditions(function) if whole else ()
        conditions = {node: frozenset(self.new_sides.get(node, ())) for node in inside}
        seen = key in self.new_told
        answer = self.is_untold(key, seen, conditions)
        self.found_told.append((key, seen, conditions, answer))
        return answer

    def is_untold(self, function: int, seen: bool, conditions: Mapping[int, frozenset[bool]]) -> bool:
        """`untold` of a function that the entry itself has `seen`, with its conditions' sides."""
        if function not in self.told and not seen:
            return True
        return any(len(sides.union(self.sides.get(node, ()))) < 2 for node, sides in conditions.items())

    def decide(self, node: cst.CSTNode, default: bool, again: bool = False) -> bool:
        """The side of an open condition that the present walk takes.

        The walk that is the first to pass a check that raises passes it each time; a later walk fails it.  Otherwise a
        helper that checks what it is given would end most walks where it is called the second time.
        """
        self.turning = self.turning or again
        key = id(node)
        taken = self.taken.get(key)
        if taken is None:
            taken = self.taken[key] = set()
        if key not in self.found_taken:
            self.found_taken[key] = frozenset(taken)
        if len(taken) == 1:
            side = not next(iter(taken))
            if side and key in self.passed:
                side = False
        elif taken and again:
            # Both sides are known.  A walk that is odd takes a loop's turns in the other order.
            side = default is not (self.odd and key not in self.turned)
            self.turned ^= {key}
        else:
            side = default
        if not side and not taken and _raises(node):
            self.passed.add(key)
        if side not in taken:
            taken.add(side)
            self.fresh = True
        return side

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Decide for a while as if nothing had been decided, and leave no decision behind.

        What an imported file's statements bind must not depend on which entry is the first to need it.
        """
        outer = self.taken, self.found_taken, self.passed, self.turned
        walk = self.fresh, self.odd, self.turning
        self.taken, self.found_taken, self.passed, self.turned, self.odd = {}, {}, set(), set(), False
        try:
            yield
        finally:
            self.taken, self.found_taken, self.passed, self.turned = outer
            self.fresh, self.odd, self.turning = walk


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an entry found told when it began, as far as it mattered, and what it added.  Nodes are named by `id`."""

    found_taken: Mapping[int, frozenset[bool]]
    found_told: Sequence[tuple[int, bool, Mapping[int, frozenset[bool]], bool]]
    taken: Mapping[int, frozenset[bool]]
    sides: Mapping[int, set[bool]]
    told: set[int]

    def holds(self, choices: Choices) -> bool:
        """Whether the entry would find the same now."""
        return all(choices.taken.get(node, set()) == sides for node, sides in self.found_taken.items()) and all(
            choices.is_untold(function, seen, conditions) is answer
            for function, seen, conditions, answer in self.found_told
        )

    def add_to(self, choices: Choices) -> None:
        choices.taken.update((node, set(sides)) for node, sides in self.taken.items())
        choices.told |= self.told
        for node, sides in self.sides.items():
            choices.sides.setdefault(node, set()).update(sides)


def _conditions(function: Function) -> Iterator[int]:
    """The `if` statements of a function, by `id`; those of functions inside it left out."""
    todo: list[cst.CSTNode] = [function.whole.body]
    while todo:
        node = todo.pop()
        if type(node) is cst.If:
            yield id(node)
        if type(node) in _BLOCKS:
            todo.extend(child for child in node.children if not isinstance(child, cst.BaseExpression))


_Name = cst.Name
_BLOCKS = frozenset([cst.IndentedBlock, cst.If, cst.Else, cst.For, cst.While, cst.With, cst.Try])
_BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    cst.Add: ("add", operator.add),
    cst.Subtract: ("sub", operator.sub),
    cst.Multiply: ("mul", operator.mul),
    cst.Divide: ("div", operator.truediv),
    cst.FloorDivide: ("floor_divide", operator.floordiv),
    cst.Modulo: ("remainder", operator.mod),
    cst.Power: ("pow", operator.pow),
    cst.MatrixMultiply: ("matmul", operator.matmul),
    cst.BitAnd: ("bitwise_and", operator.and_),
    cst.BitOr: ("bitwise_or", operator.or_),
    cst.BitXor: ("bitwise_xor", operator.xor),
    cst.LeftShift: ("bitwise_left_shift", operator.lshift),
    cst.RightShift: ("bitwise_right_shift", operator.rshift),
}
_AUGMENTED: dict[type, type] = {
    cst.AddAssign: cst.Add,
    cst.SubtractAssign: cst.Subtract,
    cst.MultiplyAssign: cst.Multiply,
    cst.DivideAssign: cst.Divide,
    cst.FloorDivideAssign: cst.FloorDivide,
    cst.ModuloAssign: cst.Modulo,
    cst.PowerAssign: cst.Power,
    cst.MatrixMultiplyAssign: cst.MatrixMultiply,
    cst.BitAndAssign: cst.BitAnd,
    cst.BitOrAssign: cst.BitOr,
    cst.BitXorAssign: cst.BitXor,
    cst.LeftShiftAssign: cst.LeftShift,
    cst.RightShiftAssign: cst.RightShift,
}
_COMPARE: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    cst.Equal: ("eq", operator.eq),
    cst.NotEqual: ("ne", operator.ne),
    cst.LessThan: ("lt", operator.lt),
    cst.LessThanEqual: ("le", operator.le),
    cst.GreaterThan: ("gt", operator.gt),
    cst.GreaterThanEqual: ("ge", operator.ge),
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_OF_TENSORS = frozenset(["data", "grad", "T", "mT", "requires_grad", "is_leaf", "grad_fn"])
_PLAIN_OR_TUPLE = (*_PLAIN, tuple)
_ABSENT: Any = object()
_NAMED_CONSTANTS = {"True": True, "False": False, "None": None}


class Interpreter(Autograd):
    """One walk from an entry to its end."""

    def __init__(self, program: Program, choices: Choices, entry: str, steps: int = _STEPS) -> None:
        super().__init__(entry)
        self.program = program
        self.choices = choices
        self.steps = steps
        self.reserve = 0
        """Steps that come after these: in between, the caller is asked whether the walk is still wanted."""
        if choices.poll is not None:
            self.steps, self.reserve = 0, steps
        self.read = program.read
        self.main: Scope | None = None
        self.walked: set[tuple[int, bool]] = set()
        """The sides of each `if` that this walk has taken."""
        self.depth = 0
        self.running: list[int] = []
        self.pure: dict[tuple[object, ...], Value] = {}
        """What was computed from unknowns, so that the same question gets the same answer."""
        self.chunk = program.empty
        self.root = self.frame
        self.scope = Scope({})
        self.result: Value = None
        self.yielded: list[List] = []
        self.at_yield: list[Callable[[Value], None] | None] = []
        """What runs where each of these generators yields."""
        self.next_yield: Callable[[Value], None] | None = None
        self.handling: list[Value] = []
        self.classes: list[Class | None] = []
        self._consequences = {}
        self.gradients: dict[Tensor, Tensor] = {}
        self.tensor_attributes: dict[tuple[Tensor, str], Value] = {}
        self.stand_ins: dict[Symbol, Any] = {}
        """Optimizers and modules that only their use tells of."""

    def forget(self) -> None:
        """Undo the path's decisions, for unknowns that other paths will meet too, and let go of what only it needed."""
        for symbol in self.decided:
            symbol.truth = symbol.absent = symbol.tensor = None
            symbol.equal = ...
            symbol.unequal = frozenset()
        # These point at the walk in circles, and so would keep all of it until someone looks for garbage.
        self._consequences.clear()
        self.pure.clear()
        self.decided.clear()
        self.tensor_attributes.clear()
        if self.main is not None:
            self.main.names.clear()

    # -- places

    def site(self, node: cst.CSTNode) -> ShadowSite:
        chunk = self.chunk
        return chunk.sites.get(id(node)) or chunk.site(node)

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            self.refill()

    def refill(self) -> None:
        """Go on with the steps in reserve; raises OutOfBudget where there are none."""
        if self.choices.poll is not None:
            self.choices.poll()
        if self.reserve <= 0:
            raise OutOfBudget
        steps = min(self.reserve, _STEPS_BETWEEN_POLLS)
        self.reserve -= steps
        self.steps += steps

    def left(self) -> int:
        """How many steps are left."""
        return max(self.steps, 0) + self.reserve

    # -- files

    def file(self, file: File, main: bool = False) -> Scope:
        """The names of a file.  Of a main program the body has run; of an import each part runs when it is needed."""
        known = self.main if main else self.choices.imported.get(file.path)
        if known is not None:
            return known
        scope = Scope({"__name__": "__main__" if main else file.module, "__file__": Symbol("__file__")}, file=file)
        for name, chunks in file.bindings.items():
            if not main or chunks[-1].defines:
                scope.names[name] = Pending(scope, name, chunks)
        if main:
            self.main = scope
            self.body(file, scope)
        else:
            self.program.ask("name", file.path, "__name__")
            self.program.ask("name", file.path, "__file__")
            self.choices.imported[file.path] = scope
            for chunk in cast("tuple[Chunk, ...]", self.program.ask("stars", file.path)):
                self.at_top(scope, [chunk])
        return scope

    def body(self, file: File, scope: Scope) -> None:
        """Run the top-level statements of a file in order."""
        scope.has_run = True
        self.program.ask("body", file.path)
        for chunk in file.chunks:
            if not chunk.defines:
                self.at_top(scope, [chunk])
            elif (
                scope.names.get(chunk.defines).__class__ not in (Class, Function)
                or len(file.bindings[chunk.defines]) > 1
            ):
                # A name that was rebound above must be the definition again from here on.
                scope.names[chunk.defines] = Pending(scope, chunk.defines, [chunk])

    def at_top(self, scope: Scope, chunks: Sequence[Chunk]) -> None:
        """Run top-level statements, whatever is running when they are needed."""
        saved = self.chunk, self.scope
        try:
            for chunk in chunks:
                self.read.chunks.add(chunk)
                self.chunk, self.scope = chunk, scope
                self.block(chunk.body)
        finally:
            self.chunk, self.scope = saved

    def settled(self, pending: Pending) -> Value:
        """What a name is, once the statements that bind it have run."""
        scope, name = pending.scope, pending.name
        found = scope.names.get(name)
        if not isinstance(found, Pending):
            return found if found is not None or name in scope.names else Symbol(name)
        outer = self.frame, self.turns, self.grad_enabled, self.grad_switch, self.supposing, self.result, self.dropped
        self.program.ask("name", scope.file.path, name)
        # Where an import costs much, what imports it must not go untold for that.
        steps, reserve = self.steps, self.reserve
        self.steps, self.reserve = (_STEPS_OF_A_NAME, 0) if self.choices.poll is None else (0, _STEPS_OF_A_NAME)
        told = len(self.trace.events)
        waiting = {
            bound: scope.names.pop(bound) for chunk in found.chunks for bound in chunk.binds if bound in scope.names
        }
        try:
            with contextlib.nullcontext() if scope is self.main else self.choices.apart():
                variable = found.chunks[-1].kind in ("names", "statement")
                if variable and not scope.has_run and self.program.ask("touches", scope.file.path, name):
                    self.body(scope.file, scope)
                else:
                    self.at_top(scope, found.chunks)
        except OutOfBudget:
            # What it binds stays unknown.
            pass
        except BaseException:
            # A later walk may get further.
            scope.names.update(waiting)
            raise
        finally:
            self.choices.left -= _STEPS_OF_A_NAME - self.left()
            self.steps, self.reserve = steps, reserve
            if not self.trace.whole_program:
                del self.trace.events[told:]
            self.frame, self.turns, self.grad_enabled, self.grad_switch, self.supposing, self.result, self.dropped = (
                outer
            )
        return scope.names.setdefault(name, Symbol(name))

    # -- statements

    def block(self, body: Iterable[cst.CSTNode]) -> str | None:
        for statement in body:
            signal = self.statement(statement)
            if signal is not None:
                return signal
        return None

    def statement(self, node: cst.CSTNode) -> str | None:
        self.steps -= 1
        if self.steps < 0:
            self.refill()
        method = _STATEMENTS.get(type(node))
        return method(self, node) if method is not None else None

    def run_SimpleStatementLine(self, node: Any) -> str | None:
        for small in node.body:
            self.steps -= 1
            if self.steps < 0:
                self.refill()
            method = _STATEMENTS.get(type(small))
            if method is not None:
                signal = method(self, small)
                if signal is not None:
                    return signal
        return None

    run_IndentedBlock = run_SimpleStatementSuite = run_SimpleStatementLine

    def run_Else(self, node: Any) -> str | None:
        return self.block(node.body.body)

    run_Finally = run_Else

    def run_Expr(self, node: Any) -> None:
        value = node.value
        if type(value) is cst.Call:
            result = self.evaluate(value)
            self.discard(value, result)
        else:
            self.evaluate(value)

    def discard(self, call: cst.Call, result: Value) -> None:
        """Tell where a pure tensor operation's result is dropped."""
        dropped = self.dropped
        if dropped is None or dropped[0] is not call:
            return
        tensors = result if isinstance(result, tuple) else (result,)
        known = bool(tensors) and all(isinstance(t, Tensor) for t in tensors)
        if not known and not (isinstance(result, Symbol) and type(call.func) is cst.Attribute):
            return
        name = call.func.attr.value if type(call.func) is cst.Attribute else ""
        _, op, operand = dropped
        if self.frame.caller is None and self.chunk.path.endswith(".ipynb"):
            # The last expression of a cell is shown.
            return
        if (
            self.expecting_errors
            or name.endswith("_")
            or any(a.keyword is not None and a.keyword.value == "out" for a in call.args)
        ):
            return
        self.tell(
            Discarded(
                site=self.site(call),
                frame=self.frame,
                op=op,
                in_place=f"{op}_" if facts.method(f"{op}_") is not None else "",
                operand=operand,
                operand_name=operand.name if operand is not None else "",
                certain=operand is not None and operand.certain,
            )
        )

    dropped: tuple[cst.Call, str, Tensor | None] | None = None
    returned: ShadowSite | None = None
    expecting_errors = 0
    """Blocks around this point that expect an exception (`pytest.raises`)."""

    def run_Assign(self, node: Any) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.bind(target.target, value, node)

    def run_AnnAssign(self, node: Any) -> None:
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value), node)

    def run_AugAssign(self, node: Any) -> None:
        name, python_operator = _BINARY[_AUGMENTED[type(node.operator)]]
        target = node.target
        if type(target) is cst.Name:
            old = self.lookup(target.value)
            right = self.evaluate(node.value)
            new = self.augmented(node, name, python_operator, old, right)
            self.assign_name(target.value, new)
            self.grown(node, new, right, target.value)
        elif type(target) is cst.Attribute:
            owner = self.evaluate(target.value)
            old = self.attribute(owner, target.attr.value, target)
            right = self.evaluate(node.value)
            new = self.augmented(node, name, python_operator, old, right)
            if not (isinstance(owner, Tensor) and target.attr.value == "data"):
                self.set_attribute(owner, target.attr.value, new, node)
            self.grown(node, new, right, target.attr.value)
        elif type(target) is cst.Subscript:
            owner, key = self.evaluate(target.value), self.key(target)
            old = self.item(owner, key, target)
            right = self.evaluate(node.value)
            new = self.augmented(node, name, python_operator, old, right)
            if isinstance(owner, Tensor):
                if not isinstance(old, Tensor) or old.storage is not owner.storage:
                    self.set_item(owner, key, new, node)
                elif owner.data_of is None:
                    # Python puts the view back where it came from, which torch counts as another write.
                    owner.storage.version += 1
            else:
                self.set_item(owner, key, new, node)
            self.grown(node, new, right, "")
        else:
            self.evaluate(node.value)

    def augmented(
        self, node: cst.CSTNode, name: str, apply: Callable[[Any, Any], Any], old: Value, right: Value
    ) -> Value:
        if isinstance(old, Tensor):
            return torch.in_place(self, self.site(node), old, name, {"self": old, "other": right})
        if isinstance(old, List) and isinstance(right, (list, tuple)):
            if grown_too_large(old):
                old.open = True
                return old
            old.extend(right)
            old.open = old.open or (isinstance(right, List) and right.open)
            return old
        return self.binary(node, name, apply, old, right)

    def grown(self, node: cst.CSTNode, new: Value, right: Value, name: str) -> None:
        """A running sum in a loop keeps every graph that went into it."""
        if not self.turns:
            return
        for tensor in self.live(right):
            self.tell(
                Stored(
                    site=self.site(node),
                    frame=self.frame,
                    tensor=tensor,
                    where="sum",
                    grows=True,
                    name=name,
                    container=new,
                )
            )
        if isinstance(new, Tensor) and not new.name:
            new.name = name

    def live(self, value: Value, depth: int = 3) -> Iterator[Tensor]:
        """The tensors in `value` that hold a graph."""
        if isinstance(value, Tensor):
            if value.requires_grad is YES and value.grad_fn is not None:
                yield value
        elif depth and isinstance(value, (tuple, list)):
            for item in value:
                yield from self.live(item, depth - 1)
        elif depth and isinstance(value, dict):
            for item in value.values():
                yield from self.live(item, depth - 1)

    def run_Return(self, node: Any) -> str:
        self.result = self.evaluate(node.value) if node.value is not None else None
        self.returned = self.site(node)
        return RETURN

    def run_Raise(self, node: Any) -> None:
        again = self.handling[-1] if self.handling else None
        raise Raised(self.evaluate(node.exc) if node.exc is not None else again)

    def run_Assert(self, node: Any) -> None:
        self.assume(node.test, True)

    def assume(self, test: cst.CSTNode, side: bool) -> None:
        """Hold a condition for true (or false) where it is open."""
        value = self.evaluate(test)
        if isinstance(value, Symbol) and value.truth is None:
            self.settle(value, side)

    def run_Break(self, node: Any) -> str:
        return BREAK

    def run_Continue(self, node: Any) -> str:
        return CONTINUE

    def run_Del(self, node: Any) -> None:
        targets = node.target.elements if type(node.target) is cst.Tuple else [node.target]
        for element in targets:
            target = element.value if type(element) is cst.Element else element
            if type(target) is cst.Name:
                self.scope.names.pop(target.value, None)
            elif type(target) is cst.Subscript:
                owner, key = self.evaluate(target.value), self.key(target)
                if isinstance(owner, dict):
                    owner.pop(key, None)
                elif isinstance(owner, list) and isinstance(key, (int, slice)):
                    with contextlib.suppress(IndexError, TypeError):
                        del owner[key]
            elif type(target) is cst.Attribute:
                owner = self.evaluate(target.value)
                getattr(owner, "attributes", {}).pop(target.attr.value, None)

    def run_Global(self, node: Any) -> None:
        self.scope.declared_global.update(item.name.value for item in node.names)

    def run_Nonlocal(self, node: Any) -> None:
        self.scope.nonlocal_names.update(item.name.value for item in node.names)

    def run_Import(self, node: Any) -> None:
        for alias in node.names:
            dotted = dotted_name(alias.name)
            if alias.asname is not None:
                self.scope.names[alias.asname.name.value] = self.imported(dotted)
            else:
                first = dotted.partition(".")[0]
                self.scope.names[first] = self.imported(first)

    def imported(self, dotted: str) -> Value:
        file = self.program.find(dotted, self.scope_file())
        if file is not None:
            return Builtin("module:" + dotted, lambda *_: None) if file.path == "" else file
        return External(torch.canonical(dotted))

    def scope_file(self) -> File | None:
        scope: Scope | None = self.scope
        while scope is not None:
            if scope.file is not None:
                return cast("File", scope.file)
            scope = scope.parent
        return None

    def run_ImportFrom(self, node: Any) -> None:
        dots = len(node.relative)
        base = dotted_name(node.module) if node.module is not None else ""
        here = self.scope_file()
        file = self.program.find(base, here, dots)
        if type(node.names) is cst.ImportStar:
            if file is not None:
                self.program.ask("names", file.path)
                there = self.file(file)
                self.scope.stars.update(there.stars)
                self.scope.elsewhere.clear()
                for name, value in list(there.names.items()):
                    if not name.startswith("_"):
                        self.scope.names[name] = value
            elif base.startswith("torch"):
                self.scope.stars[base] = None
                self.scope.elsewhere.clear()
            return
        for alias in node.names:
            name = alias.name.value
            bound = alias.asname.name.value if alias.asname is not None else name
            inner = self.program.find(f"{base}.{name}" if base else name, here, dots)
            if file is not None:
                self.program.ask("name", file.path, name)
                value = self.file(file).names.get(name)
                if value is not None:
                    self.scope.names[bound] = value
                    continue
            if inner is not None:
                self.scope.names[bound] = inner
            elif file is not None:
                self.scope.names[bound] = Symbol(name)
            elif dots:
                self.scope.names[bound] = External(f"{'.' * dots}{base}.{name}")
            else:
                self.scope.names[bound] = External(torch.canonical(f"{base}.{name}"))

    def run_FunctionDef(self, node: Any) -> None:
        inner = self.chunk.deferred.get(id(node)) if self.chunk.inner else None
        function: Value = Function(node, inner or self.chunk, self.scope, node.name.value, deferred=inner is not None)
        self.defaults(function, node.params)
        if self.scope.is_class:
            function.cls = self.scope.names.get("@class")
        for decorator in reversed(node.decorators):
            function = self.decorate(decorator, function)
        self.assign_name(node.name.value, function)

    def defaults(self, function: Function, params: Any) -> None:
        for param in (*params.posonly_params, *params.params, *params.kwonly_params):
            if param.default is not None:
                function.defaults[param.name.value] = self.evaluate(param.default)

    def decorate(self, decorator: Any, function: Value) -> Value:
        value = self.evaluate(decorator.decorator)
        if isinstance(value, External):
            if not isinstance(function, Function):
                return function
            dotted = value.dotted
            if dotted in ("torch.no_grad", "torch.inference_mode", "torch.enable_grad"):
                function.grad = dotted == "torch.enable_grad"
            elif dotted in ("builtins.staticmethod", "builtins.classmethod", "builtins.property"):
                function.wrapper = dotted[9:].replace("method", "")
            elif dotted.endswith("cached_property"):
                function.wrapper = "property"
            elif dotted in ("contextlib.contextmanager", "contextlib.asynccontextmanager"):
                function.wrapper = "context"
            return function
        if isinstance(value, GradContext):
            if isinstance(function, Function):
                function.grad = value.enabled
                if value.before is not None:
                    self.grad_enabled = value.before
            return function
        if isinstance(value, (Function, Bound)) and isinstance(function, Function):
            wrapped = self.call(value, [function], {}, decorator)
            return wrapped if isinstance(wrapped, (Function, Bound, Object, Partial)) else function
        if isinstance(value, Builtin) and value.name in ("setter", "deleter"):
            return value.call(function)
        return function

    def run_ClassDef(self, node: Any) -> None:
        bases = [self.evaluate(b.value) for b in node.bases if not b.star]
        cls = Class(node.name.value, node, self.chunk, self.scope, bases)
        saved = self.scope
        self.scope = Scope({"@class": cls}, parent=saved, is_class=True)
        try:
            self.block(node.body.body)
            cls.names = self.scope.names
            cls.names.pop("@class", None)
        finally:
            self.scope = saved
        for member in cls.names.values():
            if isinstance(member, Function) and member.cls is None:
                member.cls = cls
        value: Value = cls
        for decorator in reversed(node.decorators):
            self.evaluate(decorator.decorator)
            text = decorator.decorator
            while type(text) is cst.Call:
                text = text.func
            if dotted_name(text).rpartition(".")[2] in ("dataclass", "define", "attrs"):
                cls.names.setdefault("@dataclass", self.fields(node))
        self.assign_name(node.name.value, value)

    @staticmethod
    def fields(node: Any) -> list[str]:
        found: list[str] = []
        for line in node.body.body:
            smalls = line.body if type(line) is cst.SimpleStatementLine else ()
            annotated = [s.target for s in smalls if type(s) is cst.AnnAssign]
            found.extend(target.value for target in annotated if type(target) is cst.Name)
        return found

    def run_If(self, node: Any) -> str | None:
        side = self.true(node.test, node)
        self.choices.new_sides.setdefault(id(node), set()).add(side)
        self.walked.add((id(node), side))
        if side:
            return self.block(node.body.body)
        if node.orelse is not None:
            return self.statement(node.orelse)
        return None

    def run_For(self, node: Any) -> str | None:
        iterable = self.evaluate(node.iter)
        return self.loop(node, iterable)

    def loop(self, node: Any, iterable: Value) -> str | None:
        site = self.site(node)
        outer = self.turns
        counted = isinstance(iterable, range) and len(iterable) > _COUNTED_TURNS + 1
        with_backward = 0
        turn = 0
        try:
            for item in self.iterate(iterable, node.iter, turns=_UNKNOWN_TURNS):
                self.turns = (*outer, (site, turn))
                before, told, seen = self.backwards, self.layers, len(self.walked)
                self.bind(node.target, item, node)
                if turn == 0:
                    self.rebound(node, item)
                signal = self.block(node.body.body)
                turn += 1
                with_backward += self.backwards > before
                if signal is BREAK:
                    return None
                if signal is RETURN:
                    return RETURN
                if turn >= _MOST_TURNS:
                    break
                if len(self.walked) > seen:
                    # Something in this turn was new: the next one shows what follows from it.
                    continue
                if with_backward >= _TURNS_WITH_BACKWARD:
                    break
                if counted and turn >= _COUNTED_TURNS and self.layers > told:
                    break
        finally:
            self.turns = outer
        if node.orelse is not None:
            return self.statement(node.orelse)
        return None

    def rebound(self, node: Any, item: Value) -> None:
        """Tell where a loop over tensors only gives its own variable a new value, which nobody reads."""
        if type(node.target) is cst.Tuple and isinstance(item, tuple):
            pairs = [(element.value, part) for element, part in zip(node.target.elements, item, strict=False)]
        else:
            pairs = [(node.target, item)]
        variables = {
            target.value: value
            for target, value in pairs
            if type(target) is cst.Name and isinstance(value, Tensor) and value.certain
        }
        rest = list(node.body.body) if variables else []
        for at, line in enumerate(rest):
            smalls = line.body if type(line) is cst.SimpleStatementLine else ()
            for small in smalls:
                if type(small) is not cst.Assign:
                    continue
                named = small.targets[0].target
                if (
                    type(named) is cst.Name
                    and named.value in variables
                    and type(small.value) in (cst.Call, cst.BinaryOperation)
                    and not any(mentions(other, named.value) for other in rest[at + 1 :])
                ):
                    tensor = variables[named.value]
                    self.tell(Rebound(site=self.site(small), frame=self.frame, variable=named.value, tensor=tensor))

    def run_While(self, node: Any) -> str | None:
        site = self.site(node)
        outer = self.turns
        turn = with_backward = unknown = 0
        try:
            while turn < _MOST_TURNS:
                self.turns = (*outer, (site, turn))
                value = self.evaluate(node.test)
                known = self.known_truth(value)
                if known is False:
                    break
                if known is None or _is_constant(node.test):
                    unknown += 1
                    if unknown > _UNKNOWN_TURNS:
                        break
                before = self.backwards
                signal = self.block(node.body.body)
                turn += 1
                with_backward += self.backwards > before
                if signal is BREAK:
                    return None
                if signal is RETURN:
                    return RETURN
                if with_backward >= _TURNS_WITH_BACKWARD:
                    break
        finally:
            self.turns = outer
        if node.orelse is not None:
            return self.statement(node.orelse)
        return None

    def run_Try(self, node: Any) -> str | None:
        signal = None
        try:
            try:
                signal = self.block(node.body.body)
                if signal is None and node.orelse is not None:
                    signal = self.statement(node.orelse)
            except Raised as raised:
                signal = self.handle(node, raised)
        finally:
            if node.finalbody is not None:
                late = self.statement(node.finalbody)
                if late is not None:
                    signal = late
        return signal

    run_TryStar = run_Try

    def handle(self, node: Any, raised: Raised) -> str | None:
        for handler in node.handlers:
            if handler.type is not None and self.catches(self.evaluate(handler.type), raised.value) is False:
                continue
            if handler.name is not None:
                self.bind(handler.name.name, raised.value, handler)
            self.handling.append(raised.value)
            try:
                return self.block(handler.body.body)
            finally:
                self.handling.pop()
        raise raised

    def catches(self, kind: Value, raised: Value) -> bool | None:
        """Whether `except kind` handles the exception; None where that is open."""
        if isinstance(kind, tuple):
            verdicts = [self.catches(one, raised) for one in kind]
            return True if True in verdicts else None if None in verdicts else False
        cls = raised.cls if isinstance(raised, PythonException) else raised
        if cls is kind:
            return True
        line = cls.line() if isinstance(cls, Class) else [cls]
        if not isinstance(kind, (Class, External)) or not all(isinstance(entry, (Class, External)) for entry in line):
            return None
        if isinstance(kind, Class):
            return kind in line
        caught = python.builtin_exception(kind.dotted)
        above = [python.builtin_exception(entry.dotted) for entry in line if isinstance(entry, External)]
        if caught is None or None in above:
            return None
        return any(issubclass(one, caught) for one in above if one is not None)

    def run_With(self, node: Any) -> str | None:
        expecting = any(is_suppressing(self, item) for item in node.items)
        self.expecting_errors += expecting
        try:
            return self.within(node, 0)
        except Raised:
            if expecting:
                return None
            raise
        finally:
            self.expecting_errors -= expecting

    def within(self, node: Any, at: int) -> str | None:
        """Run the block of a `with` inside its managers from `at` on."""
        if at == len(node.items):
            return self.block(node.body.body)
        item = node.items[at]

        def inside(value: Value) -> str | None:
            if item.asname is not None:
                self.bind(item.asname.name, value, node)
            return self.within(node, at + 1)

        self.managing, outer = item.item, self.managing
        try:
            manager = self.evaluate(item.item)
        finally:
            self.managing = outer
        if isinstance(manager, Managed):
            return self.around(manager, item.item, inside)
        left: list[Callable[[], None]] = []
        try:
            return inside(self.enter(manager, item.item, left))
        finally:
            for leave in reversed(left):
                leave()

    managing: cst.CSTNode | None = None
    """The expression of a `with` that is being evaluated."""

    def around(self, manager: Managed, node: cst.CSTNode, inside: Callable[[Value], str | None]) -> str | None:
        """Run a generator that is a context manager; where it yields, the block of the `with` runs."""
        outer = self.chunk, self.scope, self.frame, self.result
        signals: list[tuple[str | None, Value]] = []

        def block(value: Value) -> None:
            if signals:
                return
            signals.append((None, None))
            here = self.chunk, self.scope, self.frame, self.result
            mine = self.yielded.pop(), self.at_yield.pop(), self.classes.pop()
            self.chunk, self.scope, self.frame, self.result = outer
            try:
                signals.append((inside(value), self.result))
            finally:
                self.chunk, self.scope, self.frame, self.result = here
                self.yielded.append(mine[0])
                self.at_yield.append(mine[1])
                self.classes.append(mine[2])

        self.next_yield = block
        try:
            self.enter_function(manager.function, manager.arguments, manager.keywords, node, manager.open_arguments)
        finally:
            self.next_yield = None
        if not signals:
            return inside(Symbol())
        signal, result = signals[-1]
        if signal is RETURN:
            self.result = result
        return signal

    def enter(self, manager: Value, node: cst.CSTNode, left: list[Callable[[], None]]) -> Value:
        if isinstance(manager, GradContext):
            before = manager.before if manager.before is not None else self.grad_enabled
            switch = manager.switch_before if manager.before is not None else self.grad_switch

            def leave() -> None:
                self.grad_enabled, self.grad_switch = before, switch

            if manager.enabled is not None:
                self.switch_grad(manager.enabled, node, scoped=True)
            left.append(leave)
            return manager
        if isinstance(manager, Object):
            enter, leave_method = self.method(manager, "__enter__"), self.method(manager, "__exit__")
            if leave_method is not None:
                left.append(lambda: self.swallow(leave_method, [None, None, None], node))
            return self.call(enter, [], {}, node) if enter is not None else manager
        return manager

    def swallow(self, function: Value, arguments: list[Value], node: cst.CSTNode) -> None:
        with contextlib.suppress(Raised):
            self.call(function, arguments, {}, node)

    def switch_grad(self, enabled: bool, node: cst.CSTNode, scoped: bool) -> None:
        self.grad_enabled = enabled
        event = GradMode(site=self.site(node), frame=self.frame, enabled=enabled, scoped=scoped)
        self.tell(event)
        self.grad_switch = event

    def run_Match(self, node: Any) -> str | None:
        subject = self.evaluate(node.subject)
        for case in node.cases:
            value = self.matches(case.pattern, subject, case)
            if self.truth(value, case) and (case.guard is None or self.true(case.guard, case)):
                return self.block(case.body.body)
        return None

    def matches(self, pattern: Any, subject: Value, case: cst.CSTNode) -> Value:
        """Whether a pattern matches; what it captures is bound."""
        if type(pattern) is cst.MatchValue:
            return self.compare(case, "eq", operator.eq, subject, self.evaluate(pattern.value))
        if type(pattern) is cst.MatchSingleton:
            return self.identical(subject, self.evaluate(pattern.value))
        if type(pattern) is cst.MatchAs:
            found = True if pattern.pattern is None else self.matches(pattern.pattern, subject, case)
            if pattern.name is not None and self.known_truth(found) is not False:
                self.assign_name(pattern.name.value, subject)
            return found
        if type(pattern) is cst.MatchOr:
            options: list[Any] = [option.pattern for option in pattern.patterns]
            if all(type(option) is cst.MatchValue for option in options):
                return self.contains(tuple(self.evaluate(option.value) for option in options), subject)
            verdicts = [self.known_truth(self.matches(option, subject, case)) for option in options]
            return True if True in verdicts else Symbol("match") if None in verdicts else False
        parts: list[tuple[Any, Value]] = []
        found = Symbol("match")
        if isinstance(pattern, cst.MatchSequence):
            found, parts = self.sequence(pattern.patterns, subject)
        elif type(pattern) is cst.MatchMapping:
            parts = [(e.pattern, self.item(subject, self.evaluate(e.key), case)) for e in pattern.elements]
            if pattern.rest is not None:
                self.assign_name(pattern.rest.value, Dict(open=True))
        elif type(pattern) is cst.MatchClass:
            found = python.instance_of(self, subject, self.evaluate(pattern.cls))
            found = Symbol("match") if found is None else found
            parts = [(part.value, Symbol()) for part in pattern.patterns]
            parts += [(part.pattern, self.attribute(subject, part.key.value, case)) for part in pattern.kwds]
        verdicts = [self.known_truth(found)]
        if verdicts[0] is not False:
            verdicts += [self.known_truth(self.matches(part, value, case)) for part, value in parts]
        return False if False in verdicts else Symbol("match") if None in verdicts else True

    def sequence(self, patterns: Sequence[Any], subject: Value) -> tuple[Value, list[tuple[Any, Value]]]:
        """Whether a sequence is as long as these patterns ask, and which of them takes which item."""
        star = next((i for i, part in enumerate(patterns) if type(part) is cst.MatchStar), None)
        starred = patterns[star].name if star is not None else None
        plain = [part for part in patterns if type(part) is not cst.MatchStar]
        if not isinstance(subject, (tuple, List)) or getattr(subject, "open", False):
            if starred is not None:
                self.assign_name(starred.value, List(open=True))
            return Symbol("match"), [(part.value, Symbol()) for part in plain]
        if len(subject) != len(plain) if star is None else len(subject) < len(plain):
            return False, []
        items = list(subject)
        if star is not None:
            end = len(items) - (len(plain) - star)
            if starred is not None:
                self.assign_name(starred.value, List(items[star:end]))
            items[star:end] = []
        return True, [(part.value, item) for part, item in zip(plain, items, strict=True)]

    # -- conditions

    def true(self, test: cst.CSTNode, node: cst.CSTNode) -> bool:
        return self.truth(self.evaluate(test), node)

    def known_truth(self, value: Value) -> bool | None:
        """Whether `value` is true, None where that is open."""
        if isinstance(value, Symbol):
            if value.absent:
                return False
            if value.equal is not ...:
                return bool(value.equal)
            return value.truth
        if value is True or value is False:
            return value
        if isinstance(value, (Tensor, Turn)):
            return None
        if isinstance(value, (List, Dict)):
            return True if len(value) else None if value.open else False
        if isinstance(value, _PLAIN_OR_TUPLE):
            return bool(value)
        if isinstance(value, ModuleObject):
            return value.layer not in ("ModuleList", "ModuleDict") or bool(value.children)
        return True

    def truth(self, value: Value, node: cst.CSTNode) -> bool:
        known = self.known_truth(value)
        if known is not None:
            return known
        usual = self.usual(node)
        side = self.choices.decide(node, usual, again=bool(self.turns) and (usual or skips_turn(node)))
        if isinstance(value, Symbol):
            self.settle(value, side)
        return side

    def settle(self, value: Symbol, side: bool) -> None:
        """Hold `value` for true or false, and what follows from it."""
        self.decided.append(value)
        value.truth = side
        if side:
            value.absent = False
        follow = self.consequences.get(value)
        if follow is not None:
            follow(side)

    @property
    def consequences(self) -> dict[Symbol, Callable[[bool], None]]:
        return self._consequences

    _consequences: dict[Symbol, Callable[[bool], None]]

    @staticmethod
    def usual(node: cst.CSTNode) -> bool:
        """The side to see first: not the one that leaves."""
        if type(node) is cst.If:
            return not (leaves_block(node.body) and not (node.orelse is not None and leaves_block(node.orelse)))
        return True

    # -- names

    def lookup(self, name: str) -> Value:
        return self.lookup_in(self.scope, name)

    def lookup_in(self, scope: Scope, name: str) -> Value:
        level: Scope | None = scope
        if scope.declared_global and name in scope.declared_global:
            while level is not None and level.parent is not None:
                level = level.parent
        first = True
        top = scope
        while level is not None:
            if first or not level.is_class:
                value = level.names.get(name, _ABSENT)
                if value is not _ABSENT:
                    if value.__class__ is Pending:
                        value = level.names[name] = self.settled(value)
                    return value
            first = False
            top, level = level, level.parent
        found = top.elsewhere.get(name)
        if found is None:
            if top.file is not None:
                self.program.ask("name", top.file.path, name)
            found = top.elsewhere[name] = self.elsewhere(top, name)
        if found:
            return External(found)
        if name in _NAMED_CONSTANTS:
            return _NAMED_CONSTANTS[name]
        # An undefined name (a star import, exec) is the same unknown each time.
        return top.names.setdefault(name, Symbol(name))

    @staticmethod
    def elsewhere(top: Scope, name: str) -> str:
        """The dotted name of what a name means that no scope up to `top` binds, '' where that is not known."""
        for base in top.stars:
            if facts.function(f"{base}.{name}") or facts.layer(name):
                return f"{base}.{name}"
        return "builtins." + name if name in python.BUILTINS and name not in _NAMED_CONSTANTS else ""

    def assign_name(self, name: str, value: Value) -> None:
        scope = self.scope
        if name in scope.declared_global:
            while scope.parent is not None:
                scope = scope.parent
        elif name in scope.nonlocal_names:
            outer = scope.parent
            while outer is not None and name not in outer.names:
                outer = outer.parent
            scope = outer or scope
        scope.names[name] = value

    def bind(self, target: cst.CSTNode, value: Value, node: cst.CSTNode) -> None:
        if type(target) is cst.Name:
            if isinstance(value, Tensor):
                if type(node) not in (cst.For, cst.CompFor):
                    torch.name_again(self, self.site(node), target.value, value)
                if not value.name:
                    value.name = target.value
                if self.mutated is not None and self.mutated.tensor is value:
                    self.mutated.named = True
            elif type(value) is Symbol:
                value.call_it(target.value)
            elif isinstance(value, ModuleObject) and not value.name and self.scope.parent is None:
                value.name = target.value
                for inner, tensor in value.named_tensors():
                    tensor.name = f"{target.value}.{inner}"
            self.assign_name(target.value, value)
        elif type(target) is cst.Attribute:
            self.set_attribute(self.evaluate(target.value), target.attr.value, value, node)
        elif type(target) is cst.Subscript:
            owner = self.evaluate(target.value)
            self.set_item(owner, self.key(target), value, node)
        elif isinstance(target, (cst.Tuple, cst.List)):
            self.unpack(target.elements, value, node)
        elif type(target) is cst.StarredElement:
            self.bind(target.value, value, node)

    def unpack(self, targets: Sequence[Any], value: Value, node: cst.CSTNode) -> None:
        star = None
        for at, target in enumerate(targets):
            if type(target) is cst.StarredElement:
                star = at
                break
        if isinstance(value, (PythonIterator, List, Dict, tuple)) or (
            isinstance(value, ModuleObject) and value.layer in ("ModuleList", "Sequential")
        ):
            items = list(self.iterate(value, node, turns=len(targets)))
        elif isinstance(value, Tensor):
            site = self.site(node)
            items = [torch.unbound(self, site, value, i) for i in range(len(targets))]
        else:
            items = [self.item(value, i, node) for i in range(len(targets))]
        if star is not None:
            after = len(targets) - star - 1
            middle = items[star : len(items) - after]
            items = [*items[:star], List(middle), *items[len(items) - after :]]
        while len(items) < len(targets):
            items.append(items[-1] if items else Symbol())
        for target, item in zip(targets, items, strict=False):
            self.bind(target.value, item, node)

    # -- expressions

    def evaluate(self, node: Any) -> Value:
        self.steps -= 1
        if self.steps < 0:
            self.refill()
        kind = type(node)
        if kind is _Name:
            # Nearly half of all expressions are names.
            scope = self.scope
            value = scope.names.get(node.value, _ABSENT)
            if value is _ABSENT or value.__class__ is Pending or scope.declared_global:
                return self.lookup_in(scope, node.value)
            return value
        method = _EXPRESSIONS.get(kind)
        return method(self, node) if method is not None else Symbol()

    def constant(self, node: Any) -> Value:
        constants = self.chunk.constants
        if id(node) not in constants:
            try:
                constants[id(node)] = _written(node)
            except (ValueError, SyntaxError):
                constants[id(node)] = Symbol()
        return constants[id(node)]

    eval_Integer = eval_Float = eval_Imaginary = eval_SimpleString = constant

    def eval_ConcatenatedString(self, node: Any) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(left, str) and isinstance(right, str):
            return left + right
        return Symbol()

    def eval_Ellipsis(self, node: Any) -> Value:
        return ...

    def eval_FormattedString(self, node: Any) -> Value:
        parts: list[str | None] = []
        for part in node.parts:
            if type(part) is cst.FormattedStringText:
                parts.append(part.value)
                continue
            value = self.evaluate(part.expression)
            text = python.text_of(value)
            parts.append(text if part.format_spec is None and part.conversion is None else None)
        if any(p is None for p in parts):
            return Symbol("text")
        return "".join(p for p in parts if p is not None)

    def eval_TemplatedString(self, node: Any) -> Value:
        return Symbol("template")

    def elements(self, node: Any) -> tuple[list[Value], bool]:
        items: list[Value] = []
        unknown = False
        for element in node.elements:
            value = self.evaluate(element.value)
            if type(element) is cst.StarredElement:
                known = self.known_items(value, element)
                items.extend(known)
                unknown = unknown or self.is_open(value)
            else:
                items.append(value)
        return items, unknown

    def eval_Tuple(self, node: Any) -> Value:
        return tuple(self.elements(node)[0])

    def eval_List(self, node: Any) -> Value:
        made = List(*self.elements(node))
        made.made = self.site(node)
        return made

    def eval_Set(self, node: Any) -> Value:
        items, unknown = self.elements(node)
        return Set({i: True for i in items if hashable(i)}, unknown)

    def eval_Dict(self, node: Any) -> Value:
        made = Dict()
        for element in node.elements:
            value = self.evaluate(element.value)
            if type(element) is cst.StarredDictElement:
                if isinstance(value, dict):
                    made.update(value)
                    made.open = made.open or getattr(value, "open", True)
                else:
                    made.open = True
            else:
                key = self.evaluate(element.key)
                if hashable(key):
                    made[key] = value
        return made

    def eval_ListComp(self, node: Any) -> Value:
        items: list[Value] = []
        unknown = self.comprehend(node.for_in, lambda: items.append(self.evaluate(node.elt)))
        made = List(items, unknown)
        made.made = self.site(node)
        return made

    def eval_GeneratorExp(self, node: Any) -> Value:
        items: list[Value] = []
        unknown = self.comprehend(node.for_in, lambda: items.append(self.evaluate(node.elt)))
        return PythonIterator(items, "generator expression", self.site(node), open=unknown)

    def eval_SetComp(self, node: Any) -> Value:
        made = Set()

        def add() -> None:
            value = self.evaluate(node.elt)
            if hashable(value):
                made[value] = True

        made.open = self.comprehend(node.for_in, add)
        return made

    def eval_DictComp(self, node: Any) -> Value:
        made = Dict()

        def add() -> None:
            key = self.evaluate(node.key)
            value = self.evaluate(node.value)
            if hashable(key):
                made[key] = value

        made.open = self.comprehend(node.for_in, add)
        return made

    def comprehend(self, clause: Any, produce: Callable[[], None]) -> bool:
        """Run a comprehension; whether there may be more items than were produced."""
        saved = self.scope
        self.scope = Scope({}, parent=saved, is_comprehension=True)
        try:
            return self.clause(clause, produce)
        finally:
            self.scope = saved

    def clause(self, clause: Any, produce: Callable[[], None]) -> bool:
        iterable = self.evaluate(clause.iter)
        unknown = self.is_open(iterable)
        most = _COUNTED_TURNS if isinstance(iterable, range) and len(iterable) > _COUNTED_TURNS + 1 else 64
        for turn, item in enumerate(self.iterate(iterable, clause.iter, turns=_UNKNOWN_TURNS)):
            if turn >= most:
                unknown = True
                break
            self.bind(clause.target, item, clause)
            kept = True
            for condition in clause.ifs:
                value = self.evaluate(condition.test)
                if self.known_truth(value) is None:
                    # Which items pass is not known: all are kept, and the length is open.
                    unknown = True
                elif not self.known_truth(value):
                    kept = False
                    break
            if kept:
                if clause.inner_for_in is not None:
                    unknown = self.clause(clause.inner_for_in, produce) or unknown
                else:
                    produce()
        return unknown

    def is_open(self, value: Value) -> bool:
        if isinstance(value, (List, Dict)):
            return value.open
        if isinstance(value, PythonIterator):
            return value.open
        return not isinstance(value, (tuple, range, str, list, dict))

    def known_items(self, value: Value, node: cst.CSTNode) -> list[Value]:
        return list(self.iterate(value, node, turns=_UNKNOWN_TURNS))

    def iterate(self, value: Value, node: cst.CSTNode, turns: int) -> Iterator[Value]:
        return python.iterate(self, value, node, turns)

    def eval_Subscript(self, node: Any) -> Value:
        return self.item(self.evaluate(node.value), self.key(node), node)

    def key(self, node: Any) -> Value:
        keys = []
        for element in node.slice:
            part = element.slice
            if type(part) is cst.Index:
                value = self.evaluate(part.value)
                if part.star:
                    keys.extend(self.known_items(value, node))
                    continue
                keys.append(value)
            else:
                keys.append(
                    slice(
                        *(
                            None if bound is None else self.evaluate(bound)
                            for bound in (part.lower, part.upper, part.step)
                        )
                    )
                )
        return keys[0] if len(keys) == 1 and node.slice[0].comma.__class__ is not cst.Comma else tuple(keys)

    def item(self, owner: Value, key: Value, node: cst.CSTNode) -> Value:
        return python.item(self, owner, key, node)

    def set_item(self, owner: Value, key: Value, value: Value, node: cst.CSTNode) -> None:
        python.set_item(self, owner, key, value, node)

    def eval_IfExp(self, node: Any) -> Value:
        return self.evaluate(node.body if self.true(node.test, node) else node.orelse)

    def eval_NamedExpr(self, node: Any) -> Value:
        value = self.evaluate(node.value)
        inner = self.scope
        while self.scope.is_comprehension and self.scope.parent is not None:
            self.scope = self.scope.parent
        self.bind(node.target, value, node)
        self.scope = inner
        return value

    def eval_Lambda(self, node: Any) -> Value:
        function = Function(node, self.chunk, self.scope, "<lambda>")
        self.defaults(function, node.params)
        return function

    def eval_Await(self, node: Any) -> Value:
        return self.evaluate(node.expression)

    def eval_Yield(self, node: Any) -> Value:
        value: Value = None
        if type(node.value) is cst.From:
            value = self.evaluate(node.value.item)
            if self.yielded:
                self.yielded[-1].extend(self.known_items(value, node))
            return Symbol()
        if node.value is not None:
            value = self.evaluate(node.value)
        if self.yielded:
            self.yielded[-1].append(value)
            if (block := self.at_yield[-1]) is not None:
                block(value)
        return Symbol()

    def eval_BooleanOperation(self, node: Any) -> Value:
        left = self.evaluate(node.left)
        known = self.known_truth(left)
        is_and = type(node.operator) is cst.And
        if known is None:
            # `x or default` of an unknown stays what it is; a condition is decided only where it is used.
            if isinstance(left, Symbol) and not isinstance(left, Number):
                key = ("and" if is_and else "or", left, id(node))
                if key in self.pure:
                    return self.pure[key]
                side = self.truth(left, node)
                value = self.evaluate(node.right) if side is is_and else left
                return value
            side = self.truth(left, node)
            return self.evaluate(node.right) if side is is_and else left
        return self.evaluate(node.right) if known is is_and else left

    def eval_UnaryOperation(self, node: Any) -> Value:
        value = self.evaluate(node.expression)
        if type(node.operator) is cst.Not:
            known = self.known_truth(value)
            if known is not None:
                return not known
            if isinstance(value, Symbol):
                result = self.remember(("not", value), lambda: Symbol("not " + value.name))
                self._consequences.setdefault(result, lambda side: self.settle(value, not side))
                return result
            return Symbol("not")
        if isinstance(value, Tensor):
            if type(node.operator) is cst.Plus:
                return value
            name = "neg" if type(node.operator) is cst.Minus else "bitwise_not"
            return torch.apply_method(self, self.site(node), value, name, [], {})
        if isinstance(value, Number):
            return Number(value.name, value.cuts)
        if isinstance(value, (int, float)):
            if type(node.operator) is cst.Minus:
                return -value
            if type(node.operator) is cst.Plus:
                return value
            return ~value if isinstance(value, int) else Symbol()
        return self.remember(("unary", type(node.operator).__name__, value), Symbol)

    def eval_BinaryOperation(self, node: Any) -> Value:
        name, apply = _BINARY[type(node.operator)]
        return self.binary(node, name, apply, self.evaluate(node.left), self.evaluate(node.right))

    def binary(
        self, node: cst.CSTNode, name: str, apply: Callable[[Any, Any], Any], left: Value, right: Value
    ) -> Value:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return torch.binary(self, self.site(node), name, left, right)
        if type(left) is Symbol and type(right) is Symbol and not left.cuts and not right.cuts:
            return self.remember((name, left, right), lambda: self.computed(left, right))
        if isinstance(left, (int, float, str)) and isinstance(right, (int, float, str, tuple)):
            try:
                if name == "pow" and (abs(left) > 1e6 or abs(right) > 64):  # type: ignore[arg-type]
                    return Symbol()
                if (isinstance(left, str) or isinstance(right, str)) and name != "add":
                    # Formatted and repeated texts decide nothing; `%` would spell out shadow values.
                    return Symbol("text")
                if grown_too_large(left) or grown_too_large(right) or (name == "bitwise_left_shift" and right > 64):  # type: ignore[operator]
                    return Symbol()
                result = apply(left, right)
                return Turn(result) if type(result) is int and Turn in (type(left), type(right)) else result
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                return Symbol()
        if grown_too_large(left) or grown_too_large(right):
            return Symbol()
        if isinstance(left, List) and isinstance(right, List) and name == "add":
            return List([*left, *right], left.open or right.open)
        if isinstance(left, tuple) and isinstance(right, tuple) and name == "add":
            return left + right
        if isinstance(left, (List, tuple)) and name == "mul" and isinstance(right, int):
            items = list(left) * min(right, 64)
            if isinstance(left, tuple):
                return tuple(items) if right <= 64 else Symbol()
            return List(items, left.open or right > 64)
        if isinstance(left, dict) and isinstance(right, dict) and name == "bitwise_or":
            merged = Dict({**left, **right})
            merged.open = getattr(left, "open", True) or getattr(right, "open", True)
            return merged
        if isinstance(left, Object):
            special = self.method(left, f"__{_DUNDER.get(name, name)}__")
            if special is not None:
                return self.call(special, [right], {}, node)
        cuts = self.cuts_of((left, right))
        if cuts:
            return Number("number", cuts)
        if isinstance(left, Symbol) or isinstance(right, Symbol):
            for operand, other in ((left, right), (right, left)):
                if type(operand) is Symbol and isinstance(other, (int, float, str)):
                    operand.plain = True
            if hashable(left) and hashable(right):
                return self.remember((name, left, right), lambda: self.computed(left, right))
        return Symbol()

    @staticmethod
    def computed(left: Value, right: Value) -> Symbol:
        """An unknown made from unknowns: if it turns out to be a tensor, those were operands."""
        result = Symbol("", called="operator", arguments=(left, right))
        return result

    def remember(self, key: tuple[object, ...], make: Callable[[], Value]) -> Value:
        try:
            found = self.pure.get(key)
        except TypeError:
            return make()
        if found is None:
            found = self.pure[key] = make()
        return found

    def eval_Comparison(self, node: Any) -> Value:
        left = self.evaluate(node.left)
        result: Value = True
        for target in node.comparisons:
            right = self.evaluate(target.comparator)
            result = self.comparison(node, target.operator, left, right)
            if len(node.comparisons) > 1 and self.known_truth(result) is False:
                return result
            left = right
        return result

    def comparison(self, node: Any, sign: Any, left: Value, right: Value) -> Value:
        kind = type(sign)
        if kind in _COMPARE:
            name, apply = _COMPARE[kind]
            return self.compare(node, name, apply, left, right)
        if kind is cst.Is:
            return self.identical(left, right)
        if kind is cst.IsNot:
            return self.negated(self.identical(left, right))
        if kind is cst.In:
            return self.contains(right, left)
        return self.negated(self.contains(right, left))

    def negated(self, value: Value) -> Value:
        known = self.known_truth(value)
        if known is not None:
            return not known
        if isinstance(value, Symbol):
            result = self.remember(("not", value), lambda: Symbol("not " + value.name))
            self._consequences.setdefault(result, lambda side: self.settle(value, not side))
            return result
        return Symbol()

    def compare(
        self, node: cst.CSTNode, name: str, apply: Callable[[Any, Any], Any], left: Value, right: Value
    ) -> Value:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return torch.binary(self, self.site(node), name, left, right)
        if isinstance(left, Symbol) and left.equal is not ... and not isinstance(left, Number):
            left = left.equal
        if isinstance(right, Symbol) and right.equal is not ... and not isinstance(right, Number):
            right = right.equal
        if Turn in (type(left), type(right)):
            return Symbol("comparison")
        if isinstance(left, _PLAIN_OR_TUPLE) and isinstance(right, _PLAIN_OR_TUPLE):
            try:
                return bool(apply(left, right))
            except (TypeError, ValueError):
                return Symbol()
        if (
            isinstance(left, External)
            and left.dotted.endswith("__version__")
            and isinstance(right, str)
            and name in ("eq", "ne")
        ):
            # A version is digits: `torch.__version__ == "parrots"` asks for another library.
            return Symbol("version") if any(c.isdigit() for c in right) else name == "ne"
        if isinstance(left, External) and isinstance(right, External) and name in ("eq", "ne"):
            return (left.dotted == right.dotted) is (name == "eq")
        cuts = self.cuts_of((left, right))
        if cuts:
            return Number("comparison", cuts)
        if name == "ne":
            return self.negated(self.compare(node, "eq", operator.eq, left, right))
        if isinstance(left, Number) or isinstance(right, Number):
            return Symbol("comparison")
        if isinstance(left, Symbol) and name == "eq" and isinstance(right, (str, int, float)):
            if right in left.unequal:
                return False
            symbol = left

            def settle(side: bool, symbol: Symbol = symbol, constant: Value = right) -> None:
                self.decided.append(symbol)
                if side:
                    symbol.equal = constant
                else:
                    symbol.unequal = symbol.unequal | {constant}

            result = self.remember(("eq", left, right), lambda: Symbol("comparison"))
            self._consequences.setdefault(result, settle)
            return result
        if hashable(left) and hashable(right):
            return self.remember((name, left, right), lambda: Symbol("comparison"))
        return Symbol("comparison")

    def identical(self, left: Value, right: Value) -> Value:
        if isinstance(left, Symbol) and right is None:
            if left.absent is not None:
                return left.absent
            if left.truth or left.tensor is not None or left.equal not in (..., None):
                return False
            if isinstance(left, Number):
                return False
            symbol = left

            def settle(side: bool, symbol: Symbol = symbol) -> None:
                self.decided.append(symbol)
                symbol.absent = side
                if side:
                    symbol.truth = False

            result = self.remember(("is", left, None), lambda: Symbol("is None"))
            self._consequences.setdefault(result, settle)
            return result
        if isinstance(left, Symbol) or isinstance(right, Symbol):
            if left is right:
                return True
            if hashable(left) and hashable(right):
                return self.remember(("is", left, right), lambda: Symbol("is"))
            return Symbol("is")
        if isinstance(left, External) and isinstance(right, External):
            return left.dotted == right.dotted
        if isinstance(left, _PLAIN) and isinstance(right, _PLAIN):
            return left is right or (left == right and type(left) is type(right))
        return left is right

    def contains(self, container: Value, item: Value) -> Value:
        if isinstance(item, Symbol) and item.equal is not ... and not isinstance(item, Number):
            item = item.equal
        if isinstance(container, str) and isinstance(item, str):
            return item in container
        if isinstance(container, (tuple, list)) and isinstance(item, _PLAIN):
            if any(isinstance(c, _PLAIN) and c == item for c in container):
                return True
            if all(isinstance(c, _PLAIN) for c in container) and not getattr(container, "open", False):
                return False
        elif isinstance(container, dict) and hashable(item):
            if item in container:
                return True
            if not getattr(container, "open", True) and not isinstance(item, Symbol):
                return False
        elif isinstance(container, (tuple, list)):
            if any(c is item for c in container):
                return True
            if not isinstance(item, Symbol) and not getattr(container, "open", False):
                return (any(isinstance(c, Symbol) for c in container) and Symbol("in")) or False
        if isinstance(container, ModuleObject) and isinstance(item, str) and container.layer == "ModuleDict":
            return item in container.keys
        if isinstance(item, Symbol) and isinstance(container, (tuple, list)):
            # `mode in ("a", "b")`: once decided, the unknown is one of these.
            constants = [c for c in container if isinstance(c, (str, int))]
            result = self.remember(("in", item, tuple(constants)), lambda: Symbol("in"))
            symbol = item

            def settle(side: bool) -> None:
                self.decided.append(symbol)
                if not side:
                    symbol.unequal = symbol.unequal.union(constants)

            self._consequences.setdefault(result, settle)
            return result
        if hashable(container) and hashable(item):
            return self.remember(("in", container, item), lambda: Symbol("in"))
        return Symbol("in")

    # -- attributes

    def eval_Attribute(self, node: Any) -> Value:
        return self.attribute(self.evaluate(node.value), node.attr.value, node)

    def attribute(self, owner: Value, name: str, node: cst.CSTNode) -> Value:
        if isinstance(owner, Symbol):
            tensor = owner.tensor
            if tensor is not None and name in _OF_TENSORS:
                return torch.tensor_attribute(self, tensor, name, node)
            found = owner.attributes.get(name, _ABSENT)
            if found is _ABSENT:
                if name == "data" and type(node) is cst.Attribute:
                    # Batches, datasets and named tuples have a field of this name: only use as a tensor tells.
                    made = owner.attributes[name] = Symbol(f"{owner.name}.data")
                    return made
                made = owner.attributes[name] = Symbol(f"{owner.name}.{name}" if owner.name else name)
                made.owner, made.graphless = owner, owner.graphless
                return made
            return found
        if isinstance(owner, External):
            return External(torch.member(owner.dotted, name))
        if isinstance(owner, Tensor):
            return torch.tensor_attribute(self, owner, name, node)
        if isinstance(owner, (Object, ModuleObject, OptimizerObject)):
            return self.object_attribute(owner, name, node)
        if isinstance(owner, File):
            scope = self.file(owner)
            self.program.ask("name", owner.path, name)
            if name in scope.names:
                return self.lookup_in(scope, name)
            inner = self.program.find(f"{owner.module}.{name}", owner)
            return inner if inner is not None else scope.names.setdefault(name, Symbol(name))
        if isinstance(owner, Class):
            return self.class_attribute(owner, name)
        if isinstance(owner, Super):
            return self.super_attribute(owner, name, node)
        if isinstance(owner, (Function, Bound)):
            function = owner.function if isinstance(owner, Bound) else owner
            if name in ("__name__", "__qualname__"):
                return function.name
            if name in ("setter", "deleter", "getter"):
                return Builtin("setter", lambda defined: property_with(function, name, defined))
            if name == "__wrapped__":
                return owner
            return function.attributes.setdefault(name, Symbol(f"{function.name}.{name}"))
        return python.attribute(self, owner, name, node)

    def class_attribute(self, cls: Class, name: str) -> Value:
        if name == "__name__":
            return cls.name
        if name == "@dataclass":
            return None
        try:
            value = cls.lookup(name)
        except KeyError:
            if name == "apply" and cls.derives("torch.autograd.Function"):
                return Builtin("apply", lambda run, site, args, kwargs: torch.custom_function(run, site, cls, args))
            value = cls.names[name] = Symbol(f"{cls.name}.{name}")
        if isinstance(value, Function) and value.wrapper == "class":
            return Bound(value, cls)
        return value

    def super_attribute(self, owner: Super, name: str, node: cst.CSTNode) -> Value:
        target = owner.owner
        cls = target if isinstance(target, Class) else getattr(target, "cls", None)
        if isinstance(cls, Class):
            try:
                value = cls.lookup(name, after=owner.after)
            except KeyError:
                pass
            else:
                return self.bound(value, target, node)
        return torch.external_method(self, target, name, node, via_super=True)

    def bound(self, value: Value, owner: Value, node: cst.CSTNode) -> Value:
        if isinstance(value, Function):
            if value.wrapper == "property":
                return self.call(Bound(value, owner), [], {}, node)
            if value.wrapper == "static":
                return value
            if value.wrapper == "class":
                return Bound(value, owner if isinstance(owner, Class) else owner.cls)
            return Bound(value, owner)
        return value

    def object_attribute(self, owner: Any, name: str, node: cst.CSTNode) -> Value:
        if name in owner.attributes:
            return owner.attributes[name]
        if name == "__dict__":
            return Dict(owner.attributes, open=True)
        if name == "__class__":
            return owner.cls
        if isinstance(owner.cls, Class):
            try:
                value = owner.cls.lookup(name)
            except KeyError:
                pass
            else:
                return self.bound(value, owner, node)
        return torch.external_method(self, owner, name, node)

    def method(self, owner: Any, name: str) -> Value:
        """A method that a class of the program defines, bound to `owner`; None where there is none."""
        if isinstance(owner.cls, Class):
            try:
                value = owner.cls.lookup(name)
            except KeyError:
                return None
            if isinstance(value, Function):
                return Bound(value, owner)
        return None

    def set_attribute(self, owner: Value, name: str, value: Value, node: cst.CSTNode) -> None:
        if isinstance(owner, (Object, ModuleObject, OptimizerObject)) and isinstance(owner.cls, Class):
            try:
                found = owner.cls.lookup(name)
            except KeyError:
                found = None
            if isinstance(found, Function) and found.wrapper == "property":
                setter = found.attributes.get("@setter")
                if setter is not None:
                    self.call(Bound(setter, owner), [value], {}, node)
                return
        torch.set_attribute(self, owner, name, value, node)

    # -- calls

    def eval_Call(self, node: Any) -> Value:
        function = self.evaluate(node.func)
        arguments: list[Value] = []
        keywords: dict[str, Value] = {}
        open_arguments = False
        for arg in node.args:
            value = self.evaluate(arg.value)
            star = arg.star
            if not star:
                if arg.keyword is not None:
                    keywords[arg.keyword.value] = value
                else:
                    arguments.append(value)
            elif star == "*":
                if isinstance(value, Symbol):
                    open_arguments = True
                    arguments.append(self.item(value, 0, node))
                else:
                    arguments.extend(self.known_items(value, node))
                    open_arguments = open_arguments or self.is_open(value)
            elif isinstance(value, dict):
                keywords.update({k: v for k, v in value.items() if isinstance(k, str)})
                open_arguments = open_arguments or getattr(value, "open", True)
            else:
                open_arguments = True
        return self.call(function, arguments, keywords, node, open_arguments)

    def call(
        self,
        function: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: cst.CSTNode,
        open_arguments: bool = False,
    ) -> Value:
        self.dropped = None
        kind = type(function)
        if kind is Symbol:
            return torch.unknown_call(self, function, arguments, keywords, node)
        if kind is External:
            return torch.call_external(self, function.dotted, arguments, keywords, node)
        if kind is TensorMethod:
            return torch.call_method(self, function, arguments, keywords, node)
        if kind is Builtin:
            return function.call(self, self.site(node), arguments, keywords)
        if kind is Bound:
            return self.enter_function(function.function, [function.owner, *arguments], keywords, node, open_arguments)
        if kind is Function:
            return self.enter_function(function, arguments, keywords, node, open_arguments)
        if kind is Class:
            return self.construct(function, arguments, keywords, node)
        if kind is ModuleObject:
            return self.call_module(function, arguments, keywords, node)
        if kind is Partial:
            return self.call(
                function.function, [*function.arguments, *arguments], {**function.keywords, **keywords}, node
            )
        if kind is Object:
            special = self.method(function, "__call__")
            if special is not None:
                return self.call(special, arguments, keywords, node, open_arguments)
            function = Symbol("call")
        return torch.unknown_call(self, function, arguments, keywords, node)

    def call_module(
        self, module: ModuleObject, arguments: list[Value], keywords: dict[str, Value], node: cst.CSTNode
    ) -> Value:
        site = self.site(node)
        called = Called(
            site=site,
            frame=self.frame,
            module=module,
            arguments=tuple(t for a in (*arguments, *keywords.values()) if isinstance(a, Tensor) for t in (a,)),
        )
        self.tell(called)
        forward = self.method(module, "forward") or module.attributes.get("forward")
        if isinstance(forward, (Bound, Function, Builtin)):
            result = self.call(forward, arguments, keywords, node)
        else:
            result = torch.call_layer(self, module, arguments, keywords, node)
        outputs = tuple((place, t) for place, t in torch.outputs(result))
        place = self.returned if forward is not None else None
        self.tell(Returned(site=site, frame=self.frame, module=module, called=called, outputs=outputs, place=place))
        return result

    def construct(self, cls: Class, arguments: list[Value], keywords: dict[str, Value], node: cst.CSTNode) -> Value:
        made = torch.new_object(self, cls, node)
        if isinstance(made, (Symbol, PythonException)):
            return made
        try:
            init = cls.lookup("__init__")
        except KeyError:
            init = None
        if isinstance(init, Function):
            self.enter_function(init, [made, *arguments], keywords, node)
        elif "@dataclass" in cls.names:
            self.fill_fields(cls, made, arguments, keywords)
        else:
            torch.initialize(self, made, arguments, keywords, node)
        if isinstance(made, ModuleObject):
            made.sealed = True
        return made

    def fill_fields(self, cls: Class, made: Any, arguments: list[Value], keywords: dict[str, Value]) -> None:
        names = [
            f for entry in reversed(cls.line()) if isinstance(entry, Class) for f in entry.names.get("@dataclass", ())
        ]
        for name in names:
            if name in cls.names and not isinstance(cls.names[name], (Symbol, External)):
                made.attributes[name] = cls.names[name]
            else:
                made.attributes[name] = Symbol(name)
        made.attributes.update(zip(names, arguments, strict=False))
        made.attributes.update(keywords)

    def enter_function(
        self,
        function: Function,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: cst.CSTNode,
        open_arguments: bool = False,
    ) -> Value:
        self.spend()
        body = function.node
        if function.wrapper == "context" and node is self.managing:
            self.managing = None
            return Managed(function, arguments, keywords, open_arguments)
        if self.depth >= _DEEPEST_CALL or self.running.count(id(body)) >= 2:
            return Symbol(function.name, called=Symbol(function.name), arguments=tuple(arguments))
        self.choices.new_told.add(id(body))
        self.read.chunks.add(function.chunk)
        scope = Scope({}, parent=function.scope)
        self.parameters(function, scope, arguments, keywords, open_arguments)
        saved = self.chunk, self.scope, self.frame, self.result, self.grad_enabled, self.grad_switch
        owner = arguments[0] if arguments and isinstance(arguments[0], ModuleObject) else None
        self.frame = Frame(
            function.name,
            call=self.chunk.site(node),
            caller=self.frame,
            owner=owner if function.cls is not None else None,
        )
        self.chunk, self.scope, self.result = function.chunk, scope, None
        self.depth += 1
        self.running.append(id(body))
        self.classes.append(function.cls)
        whole = function.whole
        generator = type(whole) is cst.FunctionDef and function.chunk.yields(whole)
        if generator:
            self.yielded.append(List())
            self.at_yield.append(self.next_yield)
            self.next_yield = None
        left_mode: tuple[bool, Any] | None = None
        try:
            if function.grad is not None:
                # The decorator's switch shows where the function is called.
                self.grad_enabled = function.grad
                self.grad_switch = GradMode(
                    site=saved[0].site(node), frame=saved[2], enabled=function.grad, scoped=True
                )
                self.tell(self.grad_switch)
            if isinstance(whole, cst.Lambda):
                return self.evaluate(whole.body)
            self.block(whole.body.body)
            left_mode = self.grad_enabled, self.grad_switch
            if generator:
                items = self.yielded[-1]
                if function.wrapper == "context":
                    return items[0] if items else Symbol()
                return PythonIterator(list(items), function.name, self.site(whole), open=True, lists=True)
            return self.result
        finally:
            self.depth -= 1
            self.running.pop()
            self.classes.pop()
            if generator:
                self.yielded.pop()
                self.at_yield.pop()
            self.chunk, self.scope, self.frame, self.result, mode, switch = saved
            if function.grad is not None or left_mode is None:
                self.grad_enabled, self.grad_switch = mode, switch
            else:
                # A bare torch.set_grad_enabled(False) outlives the function.
                self.grad_enabled, self.grad_switch = left_mode
            self.dropped = None

    def parameters(
        self,
        function: Function,
        scope: Scope,
        arguments: list[Value],
        keywords: dict[str, Value],
        open_arguments: bool,
    ) -> None:
        params = function.node.params
        names = scope.names
        rest = list(arguments)
        free = dict(keywords)
        for param in (*params.posonly_params, *params.params):
            name = param.name.value
            if rest:
                names[name] = rest.pop(0)
            elif name in free:
                names[name] = free.pop(name)
            elif open_arguments:
                names[name] = self.argument(param)
            elif name in function.defaults:
                names[name] = function.defaults[name]
            else:
                names[name] = self.argument(param)
        for param in params.kwonly_params:
            name = param.name.value
            if name in free:
                names[name] = free.pop(name)
            elif name in function.defaults and not open_arguments:
                names[name] = function.defaults[name]
            else:
                names[name] = self.argument(param)
        if type(params.star_arg) is cst.Param:
            names[params.star_arg.name.value] = (
                Symbol(params.star_arg.name.value) if open_arguments and not rest else tuple(rest)
            )
        if params.star_kwarg is not None:
            names[params.star_kwarg.name.value] = Dict(free, open=open_arguments)
        for name, value in names.items():
            if isinstance(value, Tensor) and not value.name:
                value.name = name

    def method_class(self, owner: Value) -> Class | None:
        """The class whose method is running, for a bare `super()`."""
        return self.classes[-1] if self.classes and owner is not None else None

    def stop(self) -> Exception:
        """The program ends here."""
        return Raised(PythonException(External("builtins.SystemExit")))

    def argument(self, param: Any) -> Value:
        """What a caller that is not known passes."""
        symbol = Symbol(param.name.value)
        if param.annotation is not None:
            note = dotted_name(param.annotation.annotation)
            if note.rpartition(".")[2] in ("Tensor", "FloatTensor", "LongTensor"):
                symbol.tensor = Tensor(requires_grad=MAYBE, name=param.name.value)
                return symbol.tensor
            if note in ("int", "float", "str", "bool"):
                symbol.absent = False
        return symbol

    def call_entry(self, function: Value, owner: Value, node: Any) -> Value:
        """Call a function as its own entry, with unknown arguments."""
        params = function.node.params
        given = [owner] if owner is not None else []
        names = [*params.posonly_params, *params.params][len(given) :]
        arguments = [*given, *(self.argument(p) for p in names)]
        keywords = {p.name.value: self.argument(p) for p in params.kwonly_params}
        return self.enter_function(function, arguments, keywords, node, open_arguments=True)


def _written(node: Any) -> Value:
    """The value of a literal.  The plain ones are read here: libcst compiles each."""
    text = node.value
    if type(node) is cst.Integer and text.isdecimal() and (text[0] != "0" or text == "0"):
        return int(text)
    if type(node) is cst.SimpleString and text[0] in "'\"" and "\\" not in text:
        quotes = 3 if text[:3] in ('"' * 3, "'" * 3) and len(text) >= 6 else 1
        return text[quotes:-quotes]
    return node.evaluated_value


def dotted_name(node: Any) -> str:
    parts: list[str] = []
    while type(node) is cst.Attribute:
        parts.append(node.attr.value)
        node = node.value
    if type(node) is cst.Name:
        parts.append(node.value)
        return ".".join(reversed(parts))
    return ""


def mentions(node: Any, name: str) -> bool:
    """Whether `name` occurs anywhere below `node`."""
    todo = [node]
    while todo:
        current = todo.pop()
        if type(current) is cst.Name and current.value == name:
            return True
        todo.extend(current.children)
    return False


def grown_too_large(value: Value) -> bool:
    """Whether a constant has become so large that computing on with it costs more than it tells."""
    if isinstance(value, int):
        return value.bit_length() > 1024
    return isinstance(value, (str, tuple, List)) and len(value) > 4096


def _is_constant(test: Any) -> bool:
    """Whether a loop's condition is written as always true."""
    return type(test) is cst.Integer or (type(test) is cst.Name and test.value == "True")


def leaves_block(node: Any) -> bool:
    """Whether a block surely leaves its function or loop."""
    body = node.body
    if type(node) is cst.Else:
        body = node.body.body
    elif type(node) is cst.If:
        return leaves_block(node.body) and node.orelse is not None and leaves_block(node.orelse)
    for statement in body:
        smalls = statement.body if type(statement) is cst.SimpleStatementLine else [statement]
        for small in smalls:
            if type(small) in (cst.Return, cst.Raise, cst.Break, cst.Continue):
                return True
            if type(small) is cst.Expr and type(small.value) is cst.Call:
                called = dotted_name(small.value.func)
                if called in ("sys.exit", "exit", "quit", "os._exit"):
                    return True
    return False


def property_with(getter: Function, role: str, defined: Value) -> Function:
    """The property that `@name.setter` makes of a property and the function below it."""
    if role == "setter" and isinstance(defined, Function):
        getter.attributes["@setter"] = defined
    return getter


def _raises(node: Any) -> bool:
    """Whether a condition, where it holds, raises."""
    last = node.body.body[-1] if type(node) is cst.If and node.body.body else None
    return type(last) is cst.SimpleStatementLine and type(last.body[-1]) is cst.Raise


def skips_turn(node: Any) -> bool:
    """Whether a condition, where it holds, goes on with the loop's next turn."""
    last = node.body.body[-1] if type(node) is cst.If and node.body.body else None
    return type(last) is cst.SimpleStatementLine and type(last.body[-1]) is cst.Continue


def is_suppressing(run: Interpreter, item: Any) -> bool:
    call = item.item
    if type(call) is not cst.Call:
        return False
    name = dotted_name(call.func)
    return name.endswith(("suppress", "raises", "assertRaises", "assertRaisesRegex"))


def hashable(value: Value) -> bool:
    if isinstance(value, tuple):
        return all(hashable(v) for v in value)
    if isinstance(value, slice):
        return False
    return getattr(type(value), "__hash__", None) is not None


_DUNDER = {
    "div": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "bitwise_and": "and",
    "bitwise_or": "or",
}
_STATEMENTS: dict[type, Callable[[Interpreter, Any], str | None]] = {
    getattr(cst, name[4:]): method for name, method in vars(Interpreter).items() if name.startswith("run_")
}
_EXPRESSIONS: dict[type, Callable[[Interpreter, Any], Value]] = {
    getattr(cst, name[5:]): method
    for name, method in vars(Interpreter).items()
    if name.startswith("eval_") and hasattr(cst, name[5:])
}

__all__ = ["NO", "Choices", "Coverage", "External", "Interpreter", "OutOfBudget", "Raised", "Stopped"]
