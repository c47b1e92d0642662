"""The process that analyses for the server, and the server's end of it.

Whatever the analysis does, the server lives: a parser in native code can be killed by its input, and a long analysis
must stop when the text that it is of is no more.  So it runs in a process that answers one question at a time, can be
told to stop, and is replaced when it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from gradlint.cache import Asked, Cache
    from gradlint.outcome import Outcome
    from gradlint.rule import Finding
    from gradlint.server.landmarks import Landmark
    from gradlint.shadow.look import State
    from gradlint.sources import Excludes, Source

_GRACE = 1.0
"""So many seconds an analysis has to stop before its process is killed."""
_LONGEST = 120.0
"""So many seconds an analysis may take."""
MOST_FILES = 10_000
"""In a folder with more, only what is open is known."""


class Died(Exception):
    """The process ended while it worked on a question."""


class TooLong(Died):
    """It was ended because it worked on one for too long."""


@dataclass(frozen=True, slots=True)
class Put:
    """Take this source in place of what is at its path."""

    source: Source


@dataclass(frozen=True, slots=True)
class Drop:
    """There is no file at this path any more."""

    path: str


@dataclass(frozen=True, slots=True)
class Scan:
    """Read the files under a folder, but for what is open; answers with Scanned, or None where they are too many."""

    folder: str
    excludes: Excludes
    open: frozenset[str]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The files under a folder, and what earlier runs have found in them."""

    paths: list[str]
    known: dict[str, tuple[tuple[Finding, ...], frozenset[str]]]
    """By path, the findings of an outcome and the files that it depends on."""
    asked: dict[str, Asked]
    """What the imports of these files mean."""


@dataclass(frozen=True, slots=True)
class Save:
    """Keep what was found for later runs."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read a file again; answers whether there is something to lint."""

    path: str


@dataclass(frozen=True, slots=True)
class Lint:
    """Answers with what comes of a file."""

    path: str


@dataclass(frozen=True, slots=True)
class Look:
    """Answers with what is known of the tensor that is named at a place."""

    path: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Find:
    """Answers with the training loops and modules of a file."""

    path: str


Question = Put | Drop | Scan | Save | Read | Lint | Look | Find


class Worker:
    """The server's end.  Questions are answered in the order in which they are asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = asyncio.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection
        self.started = 0
        """How many processes there have been: a new one knows nothing."""

    async def lint(self, path: str) -> Outcome:
        """What comes of the file at `path`.  Raises Died."""
        return cast("Outcome", await self._ask(Lint(path)))

    async def scan(self, scan: Scan) -> Scanned | None:
        """The files of a folder, None where they are too many.  Raises Died."""
        return cast("Scanned | None", await self._ask(scan))

    async def read(self, path: str) -> bool:
        """Whether there is something to lint at `path`.  Raises Died."""
        return cast("bool", await self._ask(Read(path)))

    async def look(self, path: str, line: int, column: int) -> list[State]:
        """What is known of a tensor.  Raises Died."""
        return cast("list[State]", await self._ask(Look(path, line, column)))

    async def find(self, path: str) -> list[Landmark]:
        """The training loops and modules of a file.  Raises Died."""
        return cast("list[Landmark]", await self._ask(Find(path)))

    async def tell(self, fact: Put | Drop | Save) -> None:
        """Change what the process knows.  Raises Died."""
        await self._ask(fact)

    def start(self) -> None:
        """See that there is a process; a new one knows nothing."""
        if self._process is None or not self._process.is_alive():
            self._start()

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    async def _ask(self, question: Question) -> object:
        async with self._turn:
            if self._process is None or not self._process.is_alive():
                raise self._died()
            answer = self._loop.create_future()
            pipe = self._pipe
            threading.Thread(target=_wait_for, args=(pipe, self._loop, answer), daemon=True).start()
            try:
                pipe.send(question)
            except OSError:
                raise self._died() from None
            try:
                answered = await asyncio.wait_for(asyncio.shield(answer), _LONGEST)
            except asyncio.CancelledError:
                await self._stop(pipe, answer)
                raise
            except asyncio.TimeoutError:
                self.end()
                raise TooLong(f"the analysis took more than {_LONGEST:.0f} seconds") from None
            if isinstance(answered, EOFError):
                raise self._died()
            if isinstance(answered, Exception):
                raise answered
            return answered

    async def _stop(self, pipe: Connection, answer: asyncio.Future[object]) -> None:
        """Have the question dropped, whoever asks next; the process is killed where it does not stop."""
        with contextlib.suppress(OSError):
            pipe.send(None)
        try:
            await asyncio.wait_for(asyncio.shield(answer), _GRACE)
        except (asyncio.TimeoutError, asyncio.CancelledError):
            self.end()

    def _died(self) -> Died:
        from gradlint.isolate import death

        process = self._process
        if process is None:
            return Died("the process is gone")
        process.join()
        self.end()
        return Died(death(process.exitcode or 0))

    def _start(self) -> None:
        self.end()
        context = _context()
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._process = process
        self.started += 1


def prepare() -> None:
    """Have processes start fast.  To be called while there is one thread."""
    context = _context()
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["gradlint.server.worker", "gradlint.lint", "gradlint.rules"])


def _context() -> Any:  # noqa: ANN401  # typeshed does not name what all contexts have
    # The server has threads, and a fork of those would copy locks that nobody opens.
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if forks else "spawn")


def _wait_for(pipe: Connection, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[object]) -> None:
    try:
        answered = pipe.recv()
    except (EOFError, OSError):
        answered = EOFError()

    def give() -> None:
        if not answer.done():
            answer.set_result(answered)

    # The loop may be closed meanwhile.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(give)


def _work(pipe: Connection) -> None:
    from gradlint import isolate

    # What is written to standard output would break the protocol.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)
    isolate.with_large_stack(lambda: _Analysis(pipe).serve())


class _Analysis:
    """The process's end."""

    def __init__(self, pipe: Connection) -> None:
        from gradlint.lint import Linter
        from gradlint.rules import rules

        self.pipe = pipe
        self.parent = cast("BaseProcess", multiprocessing.parent_process()).sentinel
        self.linter = Linter((), rules())
        self.cache: Cache | None = None
        self.changed: set[str] = set()
        """The files that are not as the cache was told that they are."""

    def serve(self) -> None:
        """Answer until the server is gone."""
        while self.parent not in wait([self.pipe, self.parent]):
            try:
                question = self.pipe.recv()
            except EOFError:
                return
            if question is None:
                # It came too late: what it was to stop is answered.
                continue
            try:
                answer = self._answers[type(question)](self, question)
            except Exception as error:  # noqa: BLE001  # it is told where the question was asked
                answer = _picklable(error)
            try:
                self.pipe.send(answer)
            except OSError:
                return

    def _stopped(self) -> bool:
        """Whether nobody wants the answer any more: nothing else is sent before it is given."""
        return self.pipe.poll()

    def _put(self, question: Put) -> None:
        self.changed.add(question.source.path)
        self.linter.update(question.source)

    def _drop(self, question: Drop) -> None:
        self.changed.add(question.path)
        if question.path in self.linter.program.files:
            self.linter.remove(question.path)

    def _scan(self, question: Scan) -> Scanned | None:
        from gradlint import sources
        from gradlint.cache import Cache

        files, _ = sources.find([question.folder], question.excludes)
        if len(files) > MOST_FILES:
            return None
        read = [source for file in files if file not in question.open for source in [sources.read(file)]]
        found = [source for source in read if isinstance(source, sources.Source)]
        for source in found:
            self.linter.update(source)
        self.changed.clear()
        self.cache = Cache(found, [rule.name for rule in self.linter.rules])
        outcomes = {source.path: self.cache.get(source.path) for source in found}
        known = {p: (one.findings, self.cache.read(p)) for p, one in outcomes.items() if one is not None}
        return Scanned([source.path for source in found], known, self.cache.asked())

    def _save(self, _: Save) -> None:
        if self.cache is not None:
            self.cache.save()

    def _read(self, question: Read) -> bool:
        from gradlint import sources

        source = sources.read(question.path)
        if isinstance(source, sources.Source):
            self._put(Put(source))
            return True
        self._drop(Drop(question.path))
        return False

    def _lint(self, question: Lint) -> Outcome:
        outcome = self.linter.file(question.path, self._stopped)
        if self.cache is not None and self.changed.isdisjoint({question.path, *outcome.asked.values()}):
            self.cache.put(question.path, outcome)
        return outcome

    def _look(self, question: Look) -> list[State]:
        from gradlint.lint import Stopped
        from gradlint.shadow.look import look

        def stop() -> None:
            if self._stopped():
                raise Stopped

        return look(self.linter.program, question.path, question.line, question.column, stop)

    def _find(self, question: Find) -> Sequence[Landmark]:
        from gradlint.server import landmarks

        return landmarks.find(self.linter.program.files[question.path])

    _answers: ClassVar[dict[type, Callable[[_Analysis, Any], object]]] = {
        Put: _put,
        Drop: _drop,
        Scan: _scan,
        Save: _save,
        Read: _read,
        Lint: _lint,
        Look: _look,
        Find: _find,
    }


def _picklable(error: Exception) -> Exception:
    from gradlint.faults import why

    return RuntimeError(why(error))
