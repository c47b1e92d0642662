"""Runs the user's program under observation: `python <this folder> plan.json train.py ...` or `... -m package.module`.

The plan: `out` (a folder), `roots`, `flags` (path -> places), `steps`, `every`, `seed`, `device`.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import runpy
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import leash
from .journal import Journal
from .places import Places
from .rewrite import NAME, Flag, Instrumented, Watch, instrument

PLAN = "GRADLINT_PLAN"


class Run:
    """This process's part of the run.  What the probes call is here."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID") or ""
        self.journal = Journal(os.path.join(plan["out"], f"{rank or 0}-{os.getpid()}.jsonl"))
        self.flags = {path: [Flag(*flag) for flag in flags] for path, flags in plan.get("flags", {}).items()}
        elsewhere = tuple(plan.get("elsewhere", ()))
        self.places = Places(self.journal, tuple(plan.get("roots", ())), elsewhere, frozenset(self.flags))
        self.loops: dict[int, tuple[int, ...]] = {}
        self.watches: list[Watch] = []
        self.values: dict[int, Any] = {}
        """What `held` saw, until its statement is over."""
        self.asked: set[int] = set()
        self.observer: Any = None
        self.process = os.getpid()
        self.done = False
        self.journal.add("process", os.getpid(), rank, sys.version.split()[0], os.environ.get("WORLD_SIZE", ""))

    # -- probes

    def turn(self, loop: int) -> None:
        if self.observer is not None and not self.done:
            self.places.turn(sys._getframe(1), loop, self.loops.get(loop, ()))

    def before(self, watch: int) -> None:
        self.statement(watch, "before", sys._getframe(1))

    def after(self, watch: int) -> None:
        self.statement(watch, "after", sys._getframe(1))

    def held(self, watch: int, value: Any) -> Any:
        self.values[watch] = value
        return value

    def returning(self, watch: int) -> None:
        if self.observer is not None and not self.done:
            frame = sys._getframe(1)
            self.places.here(frame)
            file = self.places.file(frame.f_code.co_filename)
            self.journal.add("returning", self.places.call_number(), file, self.watches[watch].span)

    def statement(self, watch: int, when: str, frame: types.FrameType) -> None:
        if self.done or os.getpid() != self.process:
            return
        if self.observer is not None:
            self.observer.statement(self.watches[watch], frame, when, self.values.pop(watch, None))
        else:
            self.journal.add("reached", 0, 0, self.watches[watch].flag, when)

    # -- files

    def compiled(self, source: bytes, path: str) -> types.CodeType | None:
        """The instrumented code of one of the program's own files, None for all others."""
        full = os.path.realpath(path)
        if not self.places.own_file(full) and not self.places.own_file(path):
            return None
        try:
            made: Instrumented = instrument(
                source, path, self.flags.get(full, ()), len(self.loops) + 1, len(self.watches)
            )
        except (SyntaxError, ValueError, RecursionError):
            return None
        file = self.places.file(path)
        for number, around in made.loops.items():
            self.journal.add("loop", number, file, made.spans[number], around)
        self.loops.update(made.loops)
        self.watches += made.watches
        # The run waits for a finding's own place, and for those of its reasons.
        self.asked.update(w.flag for w in made.watches if w.flag >= 0)
        self.journal.add("instrumented", file)
        return made.code

    # -- the end

    def finish(self, why: str) -> None:
        """Write the last records; the process ends here where the run has seen enough."""
        if not self.done:
            self.done = True
            if self.observer is not None:
                self.observer.trees()
                self.observer.off = True
            self.journal.add("end", why)
            self.journal.flush()
            with open(os.path.join(self.plan["out"], f"{os.getpid()}.done"), "w", encoding="ascii"):
                pass
        if why == "steps":
            sys.stdout.flush()
            sys.stderr.flush()
            # No `finally`, no `atexit`: nothing of the program may save a checkpoint of this run.
            os._exit(0)


class _AfterTorch(importlib.abc.Loader):
    """Loads torch, and then observes it."""

    def __init__(self, inner: Any, then: Callable[[], None]) -> None:
        self.inner = inner
        self.then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self.inner.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        self.then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    spec.loader = _AfterTorch(spec.loader, self.then)
                    return spec
        return None


def prepare(plan: dict[str, Any]) -> Run:
    """Everything but running the program; also for processes that the program spawns."""
    run = Run(plan)
    setattr(builtins, NAME, run)

    def observe() -> None:
        from . import install, observe

        if plan.get("device") == "cpu":
            from . import without_cuda

            without_cuda.install()
        run.observer = observe.Observer(run.journal, run.places, plan, run.finish)
        run.observer.asked = run.asked
        install.install(run.observer)

    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> types.CodeType | None:
        path = self.get_filename(fullname)
        if run.places.own_file(path) or run.places.own_file(os.path.realpath(path)):
            made = run.compiled(self.get_data(path), path)
            if made is not None:
                return made
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    if "torch" in sys.modules:
        observe()
    else:
        sys.meta_path.insert(0, _Finder(observe))
    _reach_spawned(run)
    return run


def _reach_spawned(run: Run) -> None:
    """multiprocessing's spawn runs the main file by its path, past every import hook."""
    import multiprocessing.spawn as spawn

    def fixup(main_path: str) -> None:
        current = sys.modules["__main__"]
        if getattr(current, "__file__", None) == main_path:
            return
        spawn.old_main_modules.append(current)
        module = types.ModuleType("__mp_main__")
        module.__file__ = main_path
        with open(main_path, "rb") as file:
            source = file.read()
        code = run.compiled(source, main_path) or compile(source, main_path, "exec", dont_inherit=True)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
        exec(code, module.__dict__)  # noqa: S102 - this is the user's program, which the user asked to run

    spawn._fixup_main_from_path = fixup  # type: ignore[attr-defined]


def main() -> None:
    """Run the program that the command line names."""
    leash.hold()
    # A launcher may put its own argument (`--local-rank=1`) in front of the plan; it is the program's.
    at = next(i for i, word in enumerate(sys.argv) if i and word.endswith("plan.json"))
    given, plan_path, arguments = sys.argv[1:at], sys.argv[at], sys.argv[at + 1 :]
    arguments = [*arguments[: _program_words(arguments)], *given, *arguments[_program_words(arguments) :]]
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    os.environ[PLAN] = plan_path
    run = prepare(plan)
    seed = plan.get("seed")
    if seed is not None:
        random.seed(seed)
    why = "end"
    status = 0
    try:
        _program(run, arguments)
    except SystemExit as stop:
        why = "exit"
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        if isinstance(stop.code, str):
            sys.stderr.write(stop.code + "\n")
        run.journal.add("exit", status)
    except KeyboardInterrupt:
        why, status = "interrupted", 130
    except BaseException as error:  # noqa: BLE001 - the program's own failure is part of what is told
        why, status = "raised", 1
        _tell_error(run, error)
    run.finish(why)
    sys.exit(status)


def _program_words(arguments: list[str]) -> int:
    return 2 if arguments[:1] in (["-m"], ["--step"]) else 1


def _tell_error(run: Run, error: BaseException) -> None:
    ours = os.path.dirname(os.path.abspath(__file__)) + os.sep
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
    own = [(f.filename, f.lineno or 0) for f in frames if run.places.own_file(f.filename)]
    run.journal.add("error", type(error).__name__, str(error)[:2000], own[-1:] and own[-1])
    run.journal.flush()
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    sys.stderr.write("".join(lines) + "".join(traceback.format_exception_only(type(error), error)))
    sys.stderr.flush()


def _program(run: Run, arguments: list[str]) -> None:
    if arguments[0] == "--step":
        _step(run, arguments[1])
        return
    if arguments[0] == "-m":
        module = arguments[1]
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            module += ".__main__"
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    path = arguments[0]
    sys.argv = list(arguments)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    with open(path, "rb") as file:
        source = file.read()
    full = os.path.abspath(path)
    code = run.compiled(source, full) or compile(source, full, "exec", dont_inherit=True)
    module_object = types.ModuleType("__main__")
    module_object.__file__ = path
    module_object.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module_object
    exec(code, module_object.__dict__)  # noqa: S102 - this is the user's program, which the user asked to run


def _step(run: Run, target: str) -> None:
    """Steps of code that has no script: `file.py:function` gives a step, or what a step is made of."""
    path, _, name = target.rpartition(":")
    sys.path[0] = os.getcwd()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module = importlib.import_module(os.path.splitext(os.path.basename(path))[0])
    made = getattr(module, name)()
    if callable(made):
        step = made
    else:
        model, optimizer, loss_function, batch = made

        def step() -> None:
            optimizer.zero_grad()
            loss_function(model, batch).backward()
            optimizer.step()

    for _ in range(int(run.plan.get("steps", 2)) + 2):
        step()
