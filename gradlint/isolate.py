"""Runs the analysis in processes of its own, so that nothing it does can end the run.

A parser in native code can overflow its stack and be killed on input that a person could write.  A worker is given
one file at a time; when it dies, that file gets a finding, and a new worker goes on with the rest.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

import gradlint.lint
from gradlint.faults import internal, why
from gradlint.outcome import Outcome
from gradlint.rule import Rule
from gradlint.sources import Source

# Deep expressions recurse deeply in the parser and in the analysis.  The memory is reserved, not used.
RECURSION = 20_000
STACK = 512 * 1024 * 1024
# A worker for less text costs more than it saves.
_LEAST_TEXT = 100_000
# Trees and traces are many small objects that live long: to look for garbage as often as Python does by default
# takes a third of the time.
_GARBAGE = 500_000, 5, 20


def lint(
    sources: Sequence[Source], rules: Sequence[Rule], paths: Sequence[str], jobs: int = 0
) -> Generator[tuple[str, Outcome], None, None]:
    """What comes of each of the `paths` among `sources`, as soon as it is known; `jobs` 0: as many as pay.

    A file on which the analysis fails has an `internal-error` finding.
    """
    asked = {*paths}
    text = sum(len(source.text) for source in sources if source.path in asked)
    count = jobs or min(cores(), text // _LEAST_TEXT + 1)
    todo = list(reversed(paths))
    workers: dict[Connection, _Worker] = {}
    try:
        while todo or workers:
            while todo and len(workers) < count:
                worker = _start(sources, rules)
                workers[worker.pipe] = worker
                worker.give(todo.pop())
            for pipe in cast("list[Connection]", wait([*workers])):
                worker = workers[pipe]
                try:
                    outcome: Outcome = pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    del workers[pipe]
                    yield worker.path, Outcome((internal(worker.path, death(worker.process.exitcode or 0)),), {})
                    continue
                path = worker.path
                if todo:
                    worker.give(todo.pop())
                else:
                    worker.end()
                    del workers[pipe]
                yield path, outcome
    finally:
        for worker in workers.values():
            worker.end()


def cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A process, our end of the pipe to it, and the file that it is at."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process = process
        self.pipe = pipe
        self.path = ""

    def give(self, path: str) -> None:
        self.path = path
        # That it is dead shows when its answer is read.
        with contextlib.suppress(OSError):
            self.pipe.send(path)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _start(sources: Sequence[Source], rules: Sequence[Rule]) -> _Worker:
    # A fork costs a few milliseconds, but is safe only while no other thread holds a lock.
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    ours, theirs = context.Pipe()
    process = context.Process(  # type: ignore[attr-defined]  # typeshed has it on each context alone
        target=_work, args=(theirs, sources, rules), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(process, ours)


def death(exitcode: int) -> str:
    """How a process ended."""
    if exitcode >= 0:
        return f"the process ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"the process was killed by {name}"


def _work(pipe: Connection, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
    # The parent decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with_large_stack(lambda: _serve(pipe, sources, rules))


def with_large_stack(work: Callable[[], None]) -> None:
    """Call `work` as the analysis needs it; this process does nothing else."""
    sys.setrecursionlimit(RECURSION)
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    # Only a new thread gets a larger stack, and how large a one depends on the limits set here.
    for size in (STACK, STACK // 4, STACK // 16):
        threading.stack_size(size)
        thread = threading.Thread(target=work)
        with contextlib.suppress(RuntimeError):
            thread.start()
            thread.join()
            return


def _serve(pipe: Connection, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
    linter = gradlint.lint.Linter(sources, rules)
    parent = cast("BaseProcess", multiprocessing.parent_process()).sentinel
    # Our sisters hold our pipe open too, so its end does not show that the parent has died.
    while parent not in wait([pipe, parent]):
        try:
            path = pipe.recv()
        except EOFError:
            return
        try:
            outcome = linter.file(path)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is this file's finding
            outcome = Outcome((internal(path, why(error)),), {})
        pipe.send(outcome)
