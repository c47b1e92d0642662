"""Runs the analysis in processes of its own, so that nothing it does can end the run.

A parser in native code can overflow its stack and be killed on input that a person could write.  A worker is given
one file at a time; when it dies, that file gets a finding, and a new worker goes on with the rest.  Each worker has a
run of neighbours to begin with, so that what their imports have in common is parsed by one, and helps out with the
others' when it is through.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
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
    lengths = {source.path: len(source.text) for source in sources}
    count = jobs or min(cores(), sum(lengths[path] for path in paths) // _LEAST_TEXT + 1)
    shares = _shares(paths, lengths, count)
    workers: dict[Connection, _Worker] = {}
    try:
        while workers or any(shares):
            busy = [worker.share for worker in workers.values()]
            for share in shares:
                if any(shares) and not any(share is other for other in busy):
                    worker = _start(sources, rules, share)
                    workers[worker.pipe] = worker
                    worker.give(_next(share, shares))
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
                if any(shares):
                    worker.give(_next(worker.share, shares))
                else:
                    worker.end()
                    del workers[pipe]
                yield path, outcome
    finally:
        for worker in workers.values():
            worker.end()


def _shares(paths: Sequence[str], lengths: Mapping[str, int], count: int) -> list[deque[str]]:
    """The paths in so many runs of neighbours, each with about as much text: neighbours import the same files."""
    shares: list[deque[str]] = [deque() for _ in range(count)]
    whole = sum(lengths[path] for path in paths) or 1
    before = 0
    for path in paths:
        shares[min(before * count // whole, count - 1)].append(path)
        before += lengths[path]
    return shares


def _next(share: deque[str], shares: Sequence[deque[str]]) -> str:
    """The next file of a share; where it is used up, the one that the fullest of the others would come to last."""
    return share.popleft() if share else max(shares, key=len).pop()


def cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A process, our end of the pipe to it, the files that are first of all its own, and the one that it is at."""

    def __init__(self, process: BaseProcess, pipe: Connection, share: deque[str]) -> None:
        self.process = process
        self.pipe = pipe
        self.share = share
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


def _start(sources: Sequence[Source], rules: Sequence[Rule], share: deque[str]) -> _Worker:
    # A fork costs a few milliseconds, but is safe only while no other thread holds a lock.
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    ours, theirs = context.Pipe()
    process = context.Process(  # type: ignore[attr-defined]  # typeshed has it on each context alone
        target=_work, args=(theirs, sources, rules), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(process, ours, share)


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
