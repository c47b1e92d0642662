"""Runs the analysis in a process of its own, so that nothing it does can end the run.

A parser in native code can overflow its stack and be killed on input that a person could write.  When the
worker dies or raises, the files that make it do so are sought by halves, get a finding each, and the rest is
linted without them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import gradlint.lint
from gradlint.faults import internal, why
from gradlint.rule import Finding, Rule
from gradlint.sources import Source

# Deep expressions recurse deeply in the parser and in the analysis.  The memory is reserved, not used.
RECURSION = 20_000
STACK = 512 * 1024 * 1024


class Failed(NamedTuple):
    """Why a worker gave no findings."""

    why: str


def lint(sources: Sequence[Source], rules: Sequence[Rule]) -> list[Finding]:
    """As `gradlint.lint.lint`, with an `internal-error` finding for every file on which that fails."""
    faults: list[Finding] = []
    rest = list(sources)
    while rest:
        outcome = _attempt(rest, rules)
        if not isinstance(outcome, Failed):
            return outcome + faults
        guilty = _guilty(rest, rules, outcome)
        faults += [internal(path, cause) for path, cause in guilty.items()]
        rest = [source for source in rest if source.path not in guilty]
    return faults


def _guilty(sources: list[Source], rules: Sequence[Rule], failure: Failed) -> dict[str, str]:
    """The paths that make `sources` fail, never none of them, and how each failed."""
    if len(sources) == 1:
        return {sources[0].path: failure.why}
    middle = len(sources) // 2
    found: dict[str, str] = {}
    for half in (sources[:middle], sources[middle:]):
        outcome = _attempt(half, rules)
        if isinstance(outcome, Failed):
            found |= _guilty(half, rules, outcome)
    if found:
        return found
    # Neither half fails alone, so files of both must meet.  The last of the shortest run of files that fails
    # is where they do.
    passes, fails = middle, len(sources)
    while fails - passes > 1:
        count = (passes + fails) // 2
        outcome = _attempt(sources[:count], rules)
        if isinstance(outcome, Failed):
            fails, failure = count, outcome
        else:
            passes = count
    return {sources[fails - 1].path: failure.why}


def _attempt(sources: Sequence[Source], rules: Sequence[Rule]) -> list[Finding] | Failed:
    # A fork costs a few milliseconds, but is safe only while no other thread holds a lock.
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    context = multiprocessing.get_context("fork" if forks else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(  # type: ignore[attr-defined]  # typeshed has it on each context alone
        target=_work, args=(sender, sources, rules), daemon=True
    )
    try:
        worker.start()
        sender.close()
        outcome: list[Finding] | Failed = receiver.recv()
    except EOFError:
        worker.join()
        outcome = Failed(_death(worker.exitcode or 0))
    finally:
        receiver.close()
        worker.kill()
        worker.join()
    return outcome


def _death(exitcode: int) -> str:
    if exitcode >= 0:
        return f"the process ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"the process was killed by {name}"


def _work(sender: Connection, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
    # The parent decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(RECURSION)
    # Only a new thread gets a larger stack, and how large a one depends on the limits set here.
    for size in (STACK, STACK // 4, STACK // 16):
        threading.stack_size(size)
        thread = threading.Thread(target=_send, args=(sender, sources, rules))
        with contextlib.suppress(RuntimeError):
            thread.start()
            thread.join()
            return


def _send(sender: Connection, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
    outcome: list[Finding] | Failed
    try:
        outcome = gradlint.lint.lint(sources, rules)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is this file's finding
        outcome = Failed(why(error))
    sender.send(outcome)
