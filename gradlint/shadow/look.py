"""What is known of the value that stands at a place of the source, for people who read the program there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import libcst as cst

from gradlint.program import File, Program
from gradlint.shadow.chunks import Chunk
from gradlint.shadow.interpreter import Interpreter
from gradlint.shadow.tell import Entry, begin, entries, tell
from gradlint.shadow.values import ModuleObject, Value
from gradlint.trace import Known, Made, Mutated, Optimizer, Site, Span, Tensor

_MOST_STATES = 4
_MOST_TIMES = 200
"""So often at most the place is looked at in one entry."""


class Fact(NamedTuple):
    """One thing that is known, and where it comes from."""

    text: str
    span: Span | None = None


State = tuple[Fact, ...]
"""What is known of one value."""


def look(program: Program, path: str, line: int, column: int, stop: Callable[[], None]) -> list[State]:
    """What the value at a place is each time that the program comes by, each state once, in order.

    The place is that of a name or an attribute, read or assigned.  Nothing is known of what is no tensor, module or
    optimizer.  `stop` is called every few milliseconds and may raise.
    """
    file = program.files[path]
    found = _found(file, line, column) if file.problem is None else None
    if found is None:
        return []
    chunk, method, node = found
    # Whatever calls it shows more than the definition alone.
    for entry in (*entries(program, file), Entry(file, chunk if chunk.defines else None, method)):
        states = _states(program, entry, node, stop)
        if states:
            return states[:_MOST_STATES]
    return []


def _found(file: File, line: int, column: int) -> tuple[Chunk, str, cst.CSTNode] | None:
    """The smallest name or attribute at a place, its top-level statement, and its method."""
    for chunk in file.chunks:
        if not chunk.line <= line < chunk.line + chunk.text.count("\n"):
            continue
        for part in (*(inner for inner in chunk.inner if inner is not None), chunk):
            if (node := _node(part, line, column)) is not None:
                return chunk, part.binds[0] if part is not chunk else "", node
    return None


def _node(chunk: Chunk, line: int, column: int) -> cst.CSTNode | None:
    here = line, column
    named = (
        (span, node)
        for node in chunk.positions
        if isinstance(node, (cst.Name, cst.Attribute))
        for span in [chunk.site(node).span]
        if (span.line, span.column) <= here <= (span.end_line, span.end_column)
    )
    # `loss` in `loss.backward()` is smaller than the whole, and `weight` in `self.weight` means the whole.
    attributes = {id(node.attr) for node in chunk.positions if isinstance(node, cst.Attribute)}
    fitting = [(span, node) for span, node in named if id(node) not in attributes]
    return min(fitting, key=lambda pair: _length(pair[0]), default=(None, None))[1]


def _length(span: Span) -> tuple[int, int]:
    return span.end_line - span.line, span.end_column - span.column


def _states(program: Program, entry: Entry, node: cst.CSTNode, stop: Callable[[], None]) -> list[State]:
    seen: list[tuple[Interpreter, Any, State]] = []

    class Looking(Interpreter):
        def evaluate(self, at: cst.CSTNode) -> Value:
            value = super().evaluate(at)
            if at is node:
                self.note(value)
            return value

        def bind(self, target: cst.CSTNode, value: Value, at: cst.CSTNode) -> None:
            super().bind(target, value, at)
            if target is node:
                self.note(value)

        def augmented(self, at: Any, name: str, operator: Any, old: Value, right: Value) -> Value:
            value = super().augmented(at, name, operator, old, right)
            if at.target is node:
                self.note(value)
            return value

        def note(self, value: Value) -> None:
            if len(seen) < _MOST_TIMES and isinstance(value, (Tensor, ModuleObject, Optimizer)):
                seen.append((self, value, tuple(_now(value))))

    tell(program, begin(entry.file, stop), entry, Looking)
    states: dict[State, None] = {}
    for run, value, now in seen:
        later = tuple(_kept(run, value)) if isinstance(value, Tensor) else ()
        states[now + later] = None
    return [*states]


def _now(value: Tensor | ModuleObject | Optimizer) -> Iterator[Fact]:
    """What is known of a value at this moment."""
    if isinstance(value, Optimizer):
        yield Fact(value.kind, _span(value.site))
        yield Fact(_count(len(value.parameters), "parameter") + ("" if value.complete else " and more"))
        return
    if isinstance(value, ModuleObject):
        parameters = [*value.tensors()]
        yield Fact(value.kind, _span(value.site))
        yield Fact(_count(len(parameters), "parameter") + (" and more" if value.opaque else ""))
        yield Fact(f"training: {value.training.value}")
        return
    yield Fact(f"requires_grad: {value.requires_grad.value}")
    if value.is_parameter:
        yield Fact("a parameter", _span(value.site))
    elif value.grad_fn is not None:
        yield Fact(f"made by `{value.grad_fn.op}`", _span(value.grad_fn.site))
    elif value.requires_grad is Known.YES:
        yield Fact("a leaf", _span(value.site))
    for cut in value.cuts[:1]:
        yield Fact("cut from the graph", _span(cut.site))
    if value.data_of is not None:
        yield Fact("the `.data` of a tensor: writes to it are not counted")
    elif value.base is not None:
        yield Fact("a view")
    yield Fact(f"version {value.storage.version}")


def _kept(run: Interpreter, value: Tensor) -> Iterator[Fact]:
    """What backward needs of a tensor, and what is done to it, over the whole walk."""
    told: set[tuple[Site, int]] = set()
    for made in run.trace.told(Made):
        for saved in made.node.saved if made.node is not None else ():
            if saved.storage is value.storage and saved.certain and (made.site, saved.version) not in told:
                told.add((made.site, saved.version))
                yield Fact(f"kept for backward by `{made.op}` at version {saved.version}", _span(made.site))
    for mutated in run.trace.told(Mutated):
        if mutated.storage is value.storage and (mutated.site, -1) not in told:
            told.add((mutated.site, -1))
            yield Fact(f"changed in place by `{mutated.op}`", _span(mutated.site))


def _span(site: Site | None) -> Span | None:
    return site.span if site is not None and site.known else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
