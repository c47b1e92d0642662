"""Runs the user's program under observation: `python <this folder> plan.json train.py ...` or `... -m package.module`.

The plan: `out` (a folder), `roots`, `flags` (path -> places), `steps`, `every`, `seed`, `device`.
"""

from __future__ import annotations

import builtins
import contextlib
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
from threading import get_ident
from typing import Any

from . import leash, processes
from .journal import Journal
from .places import Places
from .rewrite import NAME, Flag, Instrumented, Watch, instrument

PLAN = "GRADLINT_PLAN"
NO_CUDA = "no cuda"


class Run:
    """This process's part of the run.  What the probes call is here."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.rank = (
            os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("SLURM_PROCID") or ""
        )
        self.journal = Journal(self.path())
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
        self.begin()

    def path(self) -> str:
        return os.path.join(self.plan["out"], f"{self.rank or 0}-{os.getpid()}.jsonl")

    def begin(self) -> None:
        version = sys.version.split()[0]
        self.journal.add("process", os.getpid(), self.rank, version, os.environ.get("WORLD_SIZE", ""))

    # -- processes

    def forked(self) -> None:
        """This process is a fork of the one that ran until now."""
        self.process = os.getpid()
        self.journal.fork(self.path())
        self.begin()
        if self.observer is not None:
            self.observer.forked()

    def silence(self) -> None:
        """This process will never train: tell nothing of it."""
        self.done = True
        self.journal.close()
        if self.observer is not None:
            self.observer.off = True
            self.observer.suspend()

    # -- probes

    def turn(self, loop: int) -> None:
        if self.observer is not None and not self.done and get_ident() == self.observer.thread:
            try:
                self.places.turn(sys._getframe(1), loop, self.loops.get(loop, ()))
            except Exception as error:  # noqa: BLE001 - the program must not see it
                self.observer.fault("turn", error)

    def before(self, watch: int) -> None:
        self.statement(watch, "before", sys._getframe(1))

    def after(self, watch: int) -> None:
        self.statement(watch, "after", sys._getframe(1))

    def held(self, watch: int, value: Any) -> Any:
        self.values[watch] = value
        return value

    def returning(self, watch: int) -> None:
        if self.observer is not None and not self.done and get_ident() == self.observer.thread:
            try:
                frame = sys._getframe(1)
                self.places.here(frame)
                file = self.places.file(frame.f_code.co_filename)
                self.journal.add("returning", self.places.call_number(), file, self.watches[watch].span)
            except Exception as error:  # noqa: BLE001 - the program must not see it
                self.observer.fault("returning", error)

    def statement(self, watch: int, when: str, frame: types.FrameType) -> None:
        if self.done or os.getpid() != self.process:
            return
        if self.observer is not None and get_ident() == self.observer.thread:
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

    def tell_error(self, error: BaseException) -> list[traceback.FrameSummary]:
        """Tell what ended the program; gives the frames that it passed, without ours."""
        ours = os.path.dirname(os.path.abspath(__file__)) + os.sep
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
        own = [(f.filename, f.lineno or 0) for f in frames if self.places.own_file(f.filename)]
        self.journal.add("error", type(error).__name__, str(error)[:2000], own[-1:] and own[-1])
        if self.plan.get("device") == "auto" and _wants_cuda(error, frames):
            self.journal.add("note", "there is no CUDA here; with --device cpu the program runs without it")
        self.journal.flush()
        return frames

    def finish(self, why: str) -> None:
        """Write the last records; the process ends here where the run has seen enough."""
        if not self.done:
            self.done = True
            if self.observer is not None:
                self.observer.end()
                self.observer.off = True
            self.journal.add("end", why)
            self.journal.flush()
            if not self.journal.held:
                with contextlib.suppress(OSError):
                    open(os.path.join(self.plan["out"], f"{os.getpid()}.done"), "w", encoding="ascii").close()
        if why == "steps":
            for stream in (sys.stdout, sys.stderr):
                # The program may have closed it, or put something else in its place.
                with contextlib.suppress(Exception):
                    stream.flush()
            # No `finally`, no `atexit`: nothing of the program may save a checkpoint of this run.
            os._exit(0)


def _wants_cuda(error: BaseException, frames: list[traceback.FrameSummary]) -> bool:
    """Whether the program ended for want of CUDA."""
    torch = sys.modules.get("torch")
    said = f"{error} {frames[-1].line if frames else ''}".lower()
    with contextlib.suppress(Exception):
        return torch is not None and ("cuda" in said or "nvidia" in said) and not torch.cuda.is_available()
    return False


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
    if plan.get("device") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def observe() -> None:
        try:
            observe_torch()
        except Exception as error:  # noqa: BLE001 - the program runs on, and is not observed
            run.silence()
            run.journal.closed = False
            run.journal.add("note", f"this torch could not be observed: {type(error).__name__}: {error}")

    def observe_torch() -> None:
        from . import install, observe

        if plan.get("device") == "cpu":
            from . import without_cuda

            without_cuda.install()
            run.journal.add("note", without_cuda.NOTE)
        elif plan.get("device") == "cuda" and not sys.modules["torch"].cuda.is_available():
            run.finish(NO_CUDA)
            os._exit(1)
        run.observer = observe.Observer(run.journal, run.places, plan, run.finish)
        run.observer.asked = run.asked
        install.install(run.observer)
        processes.reach_torch(run)

    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> types.CodeType | None:
        path = self.get_filename(fullname)
        if run.places.may_own(path) and (run.places.own_file(path) or run.places.own_file(os.path.realpath(path))):
            made = run.compiled(self.get_data(path), path)
            if made is not None:
                return made
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    if "torch" in sys.modules:
        observe()
    else:
        sys.meta_path.insert(0, _Finder(observe))
    processes.reach(run)
    return run


def enter(plan_path: str) -> None:
    """Observe this process, which multiprocessing has spawned."""
    leash.hold()
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    prepare(plan).journal.held = True


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
    processes.invite()
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
        _print_error(run.tell_error(error), error)
    run.finish(why)
    sys.exit(status)


def _program_words(arguments: list[str]) -> int:
    return 2 if arguments[:1] in (["-m"], ["--step"]) else 1


def _print_error(frames: list[traceback.FrameSummary], error: BaseException) -> None:
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
    module_object.__file__ = full
    module_object.__loader__ = importlib.machinery.SourceFileLoader("__main__", full)
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
