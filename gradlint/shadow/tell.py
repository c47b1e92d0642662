"""Tells the traces of a program: every entry, on as many paths as it takes to see each side of its conditions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import libcst as cst

from gradlint.program import File, Program
from gradlint.shadow import torch, worth
from gradlint.shadow.chunks import Chunk
from gradlint.shadow.interpreter import Choices, Interpreter, OutOfBudget, Raised
from gradlint.shadow.values import Class, Function, ModuleObject, Symbol, Value
from gradlint.trace import NO, Called, Returned, Tensor, Trace

_MOST_PATHS = 10
_STEPS = 90_000
"""For all paths of one entry together."""
_STEPS_OF_A_PATH = 40_000
_STEPS_OF_A_FILE = 1_000_000
_STEPS_PER_CHARACTER = 30
"""So many more a long file has: what one line can cause is bounded, and so is what a file costs for its length."""


Faults = dict[str, Exception]
"""Files in which the teller itself failed, each with the first exception."""


def tell(program: Program, file: File, faults: Faults) -> Iterator[list[Trace]]:
    """The traces of each entry of `file`, entry by entry; what fails is put into `faults`, and the rest is told.

    Nothing that another file's entries have shown counts here, so what is told of a file depends on the file and
    on what it imports, and on nothing else.
    """
    choices = Choices(faults)
    choices.left = _STEPS_OF_A_FILE + _STEPS_PER_CHARACTER * len(file.text)
    if any(chunk.kind == "statement" and "(" in chunk.text for chunk in file.chunks) and worth.in_program(
        program, file
    ):
        yield from _entry(program, choices, file, None, None)
    for chunk in reversed(file.chunks):
        if chunk.kind == "def" and worth.in_function(chunk.text, file.text):
            yield from _entry(program, choices, file, chunk, None)
        elif chunk.kind == "class":
            yield from _class_entries(program, choices, file, chunk)


def _class_entries(program: Program, choices: Choices, file: File, chunk: Chunk) -> Iterator[list[Trace]]:
    told = {name for name, text in chunk.methods.items() if worth.in_function(text, chunk.text)}
    if worth.in_module(chunk):
        told.add("forward")
    # What other methods call is told with them: the likely callers come first, and the constructor last.
    for name in sorted(
        told, key=lambda name: (name == "__init__", _ORDER.get(name, 2), list(chunk.methods).index(name))
    ):
        yield from _entry(program, choices, file, chunk, name)


_ORDER = {"fit": 0, "train": 0, "run": 0, "main": 0, "training_step": 1, "forward": 1}


def _entry(
    program: Program, choices: Choices, file: File, chunk: Chunk | None, method: str | None
) -> Iterator[list[Trace]]:
    traces = []
    left = min(_STEPS if chunk is None else _STEPS // 2, choices.left)
    name = ".".join(part for part in (chunk.defines if chunk else "", method or "") if part) or file.path
    if left <= 0:
        yield [Trace(entry=name, complete=False)]
        return
    for walk in range(_MOST_PATHS):
        choices.fresh = choices.turning = False
        choices.odd = walk % 2 == 1
        choices.turned.clear()
        run = Interpreter(program, choices, name, steps=min(left, _STEPS_OF_A_PATH))
        given = run.steps
        try:
            if not _walk(run, file, chunk, method, again=walk > 0):
                break
        except (OutOfBudget, RecursionError):
            run.trace.complete = False
        except Raised:
            pass
        except Exception as error:  # noqa: BLE001 - one entry that cannot be told must not silence the others
            run.trace.complete = False
            choices.faults.setdefault(file.path, error)
        run.forget()
        traces.append(run.trace)
        left -= given - max(run.steps, 0)
        choices.left -= given - max(run.steps, 0)
        if left <= 0 or not (choices.fresh or (walk == 0 and choices.turning)):
            break
    if traces:
        yield traces


def _walk(run: Interpreter, file: File, chunk: Chunk | None, method: str | None, again: bool) -> bool:
    """Tell one path; False where there is nothing that earlier entries have not told."""
    run.chunk = file.chunks[0]
    if chunk is None:
        run.trace.whole_program = True
        run.file(file, main=True)
        return True
    scope = run.file(file)
    value = run.lookup_in(scope, chunk.defines)
    if isinstance(value, Class) and method is not None:
        function = value.names.get(method)
    else:
        function = value if method is None else None
    if not isinstance(function, Function) or not (again or run.choices.untold(function)):
        return False
    if method == "__init__" and not again and id(function.node) in run.choices.told:
        return False
    run.trace.events.clear()
    node = chunk.body[0]
    run.chunk, run.scope = chunk, scope
    if isinstance(value, Class):
        _walk_method(run, value, function, method or "", node)
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
