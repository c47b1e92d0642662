"""Tells the traces of a program: every entry, on as many paths as it takes to see each side of its conditions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from gradlint.program import File, Footprint, Program
from gradlint.shadow import torch, worth
from gradlint.shadow.chunks import Chunk
from gradlint.shadow.interpreter import Choices, Coverage, Interpreter, OutOfBudget, Raised, Stopped
from gradlint.shadow.values import Class, Function, ModuleObject, Symbol, Value
from gradlint.trace import NO, Called, Returned, Tensor, Trace

_MOST_PATHS = 10
_STEPS = 90_000
"""For all paths of one entry together."""
_STEPS_OF_A_PATH = 40_000
_STEPS_OF_A_FILE = 1_000_000
_STEPS_PER_CHARACTER = 30
"""So many more a long file has: what one line can cause is bounded, and so is what a file costs for its length."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the walks of a program begin: the body of a file, a function of it, or a method of one of its classes."""

    file: File
    chunk: Chunk | None
    """None for the file's body."""
    method: str

    @property
    def name(self) -> str:
        parts = self.chunk.defines if self.chunk is not None else self.file.path, self.method
        return ".".join(part for part in parts if part)


@dataclass(slots=True)
class Told:
    """What telling an entry gave, and all that it depended on."""

    chunk: Chunk | None
    footprint: Footprint
    coverage: Coverage
    given: int
    """The steps that it might take."""
    spent: int
    """The steps that it took, those of imported files included."""
    traces: list[Trace]
    fault: Exception | None

    def holds(self, program: Program, choices: Choices, entry: Entry) -> bool:
        """Whether telling the entry now would give the same."""
        return (
            self.chunk is entry.chunk
            and self.given == _given(choices, entry)
            and self.coverage.holds(choices)
            and self.footprint.holds(program)
        )

    def repeat(self, choices: Choices) -> None:
        """Do to `choices` what telling the entry again would do."""
        self.coverage.add_to(choices)
        choices.left -= self.spent


def begin(file: File, poll: Callable[[], None] | None = None) -> Choices:
    """What the entries of a file share.

    Nothing that another file's entries have shown counts here, so what is told of a file depends on the file and
    on what it imports, and on nothing else.
    """
    choices = Choices(poll)
    choices.left = _STEPS_OF_A_FILE + _STEPS_PER_CHARACTER * len(file.text)
    return choices


def entries(program: Program, file: File) -> Iterator[Entry]:
    """The entries of a file, in the order in which they are to be told."""
    if any(chunk.kind == "statement" and "(" in chunk.text for chunk in file.chunks) and worth.in_program(
        program, file
    ):
        yield Entry(file, None, "")
    for chunk in reversed(file.chunks):
        if chunk.kind == "def" and worth.in_function(chunk.text, file.text):
            yield Entry(file, chunk, "")
        elif chunk.kind == "class":
            yield from _class_entries(file, chunk)


def _class_entries(file: File, chunk: Chunk) -> Iterator[Entry]:
    told = {name for name, text in chunk.methods.items() if worth.in_function(text, chunk.text)}
    if worth.in_module(chunk):
        told.add("forward")
    # What other methods call is told with them: the likely callers come first, and the constructor last.
    for name in sorted(
        told, key=lambda name: (name == "__init__", _ORDER.get(name, 2), list(chunk.methods).index(name))
    ):
        yield Entry(file, chunk, name)


_ORDER = {"fit": 0, "train": 0, "run": 0, "main": 0, "training_step": 1, "forward": 1}


def _given(choices: Choices, entry: Entry) -> int:
    return min(_STEPS if entry.chunk is None else _STEPS // 2, choices.left)


def tell(program: Program, choices: Choices, entry: Entry, interpreter: type[Interpreter] = Interpreter) -> Told:
    """The traces of an entry, on as many paths as it takes; where the teller itself fails, that is kept as `fault`."""
    program.read = Footprint()
    if entry.chunk is not None:
        program.read.chunks.add(entry.chunk)
    choices.begin()
    given = _given(choices, entry)
    before = choices.left
    traces = []
    fault: Exception | None = None
    left = given
    if left <= 0:
        traces.append(Trace(entry=entry.name, complete=False))
    for walk in range(_MOST_PATHS if left > 0 else 0):
        choices.begin_walk(walk)
        steps = min(left, _STEPS_OF_A_PATH)
        run = interpreter(program, choices, entry.name, steps=steps)
        try:
            if not _walk(run, entry, again=walk > 0):
                break
        except (OutOfBudget, RecursionError):
            run.trace.complete = False
        except Raised:
            pass
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - one entry that cannot be told must not silence the others
            run.trace.complete = False
            fault = fault or error
        run.forget()
        traces.append(run.trace)
        left -= steps - run.left()
        choices.left -= steps - run.left()
        if left <= 0 or not (choices.fresh or (walk == 0 and choices.turning)):
            break
    return Told(entry.chunk, program.read, choices.end(), given, before - choices.left, traces, fault)


def _walk(run: Interpreter, entry: Entry, again: bool) -> bool:
    """Tell one path; False where there is nothing that earlier entries have not told."""
    file, chunk, method = entry.file, entry.chunk, entry.method
    run.chunk = file.chunks[0]
    if chunk is None:
        run.trace.whole_program = True
        run.file(file, main=True)
        return True
    scope = run.file(file)
    value = run.lookup_in(scope, chunk.defines)
    function = value.names.get(method) if isinstance(value, Class) and method else None if method else value
    if not isinstance(function, Function):
        return False
    run.read.chunks.add(function.chunk)
    if not again and not run.choices.untold(function, whole=method != "__init__"):
        return False
    run.trace.events.clear()
    node = chunk.body[0]
    run.chunk, run.scope = chunk, scope
    if isinstance(value, Class):
        _walk_method(run, value, function, method, node)
    else:
        run.call_entry(function, None, node)
    return True


def _walk_method(run: Interpreter, cls: Class, function: Function, method: str, node: cst.CSTNode) -> None:
    if method == "__init__":
        run.call_entry(function, torch.new_object(run, cls, node), node)
        return
    if function.wrapper == "static":
        run.call_entry(function, None, node)
        return
    if function.wrapper == "class":
        run.call_entry(function, cls, node)
        return
    made = _instance(run, cls, node)
    if isinstance(made, ModuleObject) and method == "forward":
        _forward(run, made, function, node)
    else:
        run.call_entry(function, made, node)


def _instance(run: Interpreter, cls: Class, node: cst.CSTNode) -> Value:
    """An instance made with unknown arguments."""
    made = torch.new_object(run, cls, node)
    try:
        init = cls.lookup("__init__")
    except KeyError:
        init = None
    if isinstance(init, Function) and not isinstance(made, Symbol):
        with contextlib.suppress(Raised):
            run.call_entry(init, made, node)
    elif not isinstance(made, Symbol):
        torch.initialize(run, made, [], {}, node)
        if "@dataclass" in cls.names:
            run.fill_fields(cls, made, [], {})
    if isinstance(made, ModuleObject):
        made.sealed = True
    return made


def _forward(run: Interpreter, module: ModuleObject, function: Function, node: cst.CSTNode) -> None:
    """A module whose caller is not known: suppose that some loss reads all its outputs."""
    site = run.site(node)
    called = Called(site=site, frame=run.frame, module=module, arguments=())
    run.tell(called)
    result = run.call_entry(function, module, node)
    run.supposing = True
    outputs = tuple(torch.outputs(result))
    run.tell(Returned(site=site, frame=run.frame, module=module, called=called, outputs=outputs))
    for _, tensor in torch.outputs(result):
        if isinstance(tensor, Tensor) and tensor.requires_grad is not NO:
            torch.backward(run, site, tensor, {"retain_graph": True})
    run.supposing = False
