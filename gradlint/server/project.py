"""One folder of the workspace: what is open in it, what its files import, and what was found.

What is told of a text is what `gradlint check` says of the folder with that text in it.  A finding may come from a file
that imports the one it is in, so all files of the folder are linted, the open ones first and the rest when nothing else
is to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradlint import run, sources, suppress
from gradlint.cache import Asked
from gradlint.config import ConfigError
from gradlint.faults import internal
from gradlint.imports import Imports
from gradlint.outcome import Outcome, merged
from gradlint.rule import Finding
from gradlint.selection import Unknown
from gradlint.server.buffers import Buffer
from gradlint.server.landmarks import Landmark
from gradlint.server.worker import MOST_FILES, Died, Drop, Put, Save, Scan, Scanned, TooLong, Worker
from gradlint.shadow.look import State
from gradlint.sources import Source

_IDLE = 0.3
"""So many seconds after the last question the files that nobody asked for are linted."""


@dataclass(frozen=True)
class Host:
    """Whom a project speaks to."""

    log: Callable[[str], None]
    warn: Callable[[str], None]
    """Show the user something that is to be mended."""
    changed: Callable[[frozenset[str]], None]
    """What is told of these paths may be another than was told last."""


Stamp = tuple[tuple[int, int], ...]
"""When the files that may hold a configuration were written, and their sizes."""


@dataclass
class Project:
    """A folder; without one, the files that are open and in none."""

    folder: str | None
    host: Host
    worker: Worker
    buffers: dict[str, Buffer] = field(default_factory=dict)
    """What is open, by path."""

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._paths: set[str] = set()
        self._taught = 0, 0
        """The number of the process that knows the files, and of the configuration that says which."""
        self._untold: set[str] = set()
        """What is open and not as the process knows it."""
        self._unread: set[str] = set()
        """What has changed on disk."""
        self._stale: dict[str, int] = {}
        """What must be linted, each with the number of the change that made it so."""
        self._uses: dict[str, frozenset[str]] = {}
        """The files that what came of a file depends on: itself, those that it imports, and those that they import."""
        self._meant: dict[str, Asked] = {}
        """What the imports of each file meant when something last depended on them."""
        self._found: dict[str, dict[str, tuple[Finding, ...]]] = {}
        """The findings by the path that they are in, then by the file whose entries showed them."""
        self._unreadable: dict[str, Finding] = {}
        self._wanted: dict[str, tuple[run.Wanted, Stamp]] = {}
        self._configured = 0
        self._complaint = -1, ""
        self._told: Counter[str] = Counter()
        self._asking = 0
        self._ended = False
        self._turn = asyncio.Lock()
        self._survey: asyncio.Task[None] | None = None
        self.surveyed = asyncio.Event()
        """Set while every file has been linted."""

    # What happens

    def open(self, buffer: Buffer) -> None:
        """Something was opened, or has another text."""
        path = buffer.path
        new = path not in self._paths
        self.buffers[path] = buffer
        self._untold.add(path)
        self._paths.add(path)
        self._changed(path, moved=new)

    def close(self, path: str) -> None:
        """What was open is as it is on disk again."""
        self.buffers.pop(path, None)
        self._untold.discard(path)
        self._unreadable.pop(path, None)
        self.changed_on_disk(path)

    def changed_on_disk(self, path: str) -> None:
        """A file was written, made or removed."""
        if path in self.buffers:
            return
        known = path in self._paths
        there = self.folder is not None and sources.found_in(
            self.folder, path, self.wanted(os.path.join(self.folder, "")).settings.excludes()
        )
        if not known and not there:
            return
        # At once, for what other files import depends on which files there are.
        (self._paths.add if there else self._paths.discard)(path)
        self._unread.add(path)
        self._changed(path, moved=known != there)

    def reconfigure(self) -> None:
        """The configuration has changed; which files there are may have too."""
        self._wanted.clear()
        self._configured += 1
        self.host.changed(frozenset(self.buffers))
        self._resume()

    def end(self) -> None:
        """The folder is no longer of interest; who waits for it meets Died."""
        self._ended = True
        if self._survey is not None:
            self._survey.cancel()
        self.worker.end()

    # What is told

    async def findings(self, path: str) -> list[Finding]:
        """What is told of the open file at `path`, when that is known."""
        await self.known(path)
        return self.told(path)

    async def known(self, path: str) -> None:
        """Wait until it is known what is told of the open file at `path`."""
        with self._asked():
            await self._settle(path, path)
            for importer in self._showing(path):
                await self._settle(importer, path)

    def told(self, path: str) -> list[Finding]:
        """What is told of the file at `path` by what is known now."""
        wanted = self.wanted(path)
        if path in self.buffers and self._excluded(path, wanted):
            return []
        by_origin = self._found.get(path, {})
        outcomes = [Outcome(by_origin[origin], {}) for origin in sorted(by_origin, key=lambda p: p.split(os.sep))]
        found = merged(outcomes)
        if path in self._unreadable:
            found.insert(0, self._unreadable[path])
        allowed = None
        if found and (source := self.source(path)) is not None:
            allowed = suppress.read(source, wanted.catalog.meant)
        return [finding for finding in found if wanted.tells(finding, allowed)]

    def edition(self, path: str) -> tuple[int, int]:
        """What is another whenever what is told of `path` may be."""
        return self._configured, self._told[path]

    def source(self, path: str) -> Source | None:
        """The text at `path`, open or on disk."""
        buffer = self.buffers.get(path)
        source = buffer.source() if buffer is not None else sources.read(path)
        return source if isinstance(source, Source) else None

    def paths(self) -> list[str]:
        """The files in which something is or was told, and those that are open."""
        return sorted({path for path, found in self._found.items() if found} | {*self.buffers})

    async def look(self, path: str, line: int, column: int) -> list[State]:
        """What is known of the tensor that is named at a place."""
        with self._asked():
            await self._teach()
            return await self.worker.look(path, line, column) if path not in self._unreadable else []

    async def find(self, path: str) -> list[Landmark]:
        """The training loops and modules in the open file at `path`."""
        with self._asked():
            await self._teach()
            return await self.worker.find(path) if path not in self._unreadable else []

    def wanted(self, path: str) -> run.Wanted:
        """What the configuration of the file at `path` wants to be told."""
        folder = os.path.dirname(path)
        known = self._wanted.get(folder)
        if known is not None and known[1] == _stamp(folder):
            return known[0]
        try:
            wanted = run.wanted_by(run.Request([path]))
        except (ConfigError, Unknown) as error:
            self._complain(f"{error}; until it is mended, the default configuration is in force")
            wanted = run.wanted_by(run.Request([path], isolated=True))
        self._wanted[folder] = wanted, _stamp(folder)
        if known is not None:
            # Not every client says that a file has changed.
            self._configured += 1
        return wanted

    def _complain(self, problem: str) -> None:
        """Each folder of a project meets the same problem: it is told once."""
        if self._complaint != (self._configured, problem):
            self._complaint = self._configured, problem
            self.host.warn(problem)

    # How it comes to be known

    def _excluded(self, path: str, wanted: run.Wanted) -> bool:
        return sources.excluded(path, wanted.settings.excludes(), self.folder or os.path.dirname(path))

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Somebody waits: what nobody asked for must not be in the way."""
        self._asking += 1
        if self._survey is not None:
            self._survey.cancel()
            self._survey = None
        try:
            yield
        finally:
            self._asking -= 1
            self._resume()

    def _resume(self) -> None:
        if (self._survey is None or self._survey.done()) and not self._asking and not self._ended:
            self._survey = asyncio.get_running_loop().create_task(self._lint_the_rest())

    async def _lint_the_rest(self) -> None:
        await asyncio.sleep(_IDLE)
        try:
            # Meanwhile more may have changed, the configuration too.
            while self._stale or self._taught != (self.worker.started, self._configured):
                await self._teach()
                # The open ones first, and what is used by many last.
                for path in sorted(self._stale, key=lambda path: (path not in self.buffers, path)):
                    await self._settle(path)
        except Died as death:
            if not self._ended:
                self.host.log(f"the analysis of {self.folder} ended: {death}")
            return
        if not self._stale:
            self.surveyed.set()
            with contextlib.suppress(Died):
                await self.worker.tell(Save())

    async def _settle(self, path: str, asked: str = "") -> None:
        """Lint the file at `path` until what came of it is of its last text; who asked about a path is told anyway."""
        died = 0
        while (number := self._stale.get(path)) is not None:
            try:
                await self._teach()
                if path not in self._paths or path in self._unreadable:
                    outcome = Outcome((), {})
                else:
                    outcome = await self.worker.lint(path)
            except Died as death:
                if self._ended:
                    raise
                self.host.log(f"the analysis of {path} ended: {death}")
                if died != number and not isinstance(death, TooLong):
                    # Anything may have killed it; twice at the same text is no accident.
                    died = number
                    continue
                outcome = Outcome((internal(path, str(death)),), {})
            except RuntimeError as error:
                outcome = Outcome((internal(path, str(error)),), {})
            if self._stale.get(path) == number:
                del self._stale[path]
                for (importer, dotted, dots), meant in outcome.asked.items():
                    self._meant.setdefault(importer, {})[dotted, dots] = meant
                self._keep(path, outcome.findings, frozenset({path, *outcome.asked.values()}) - {""}, asked)

    def _keep(self, path: str, found: Sequence[Finding], uses: frozenset[str], asked: str = "") -> None:
        before = {target: found[path] for target, found in self._found.items() if path in found}
        after: dict[str, tuple[Finding, ...]] = {}
        for finding in found:
            after[finding.span.path] = (*after.get(finding.span.path, ()), finding)
        for target in before.keys() - after.keys():
            del self._found[target][path]
        for target, findings in after.items():
            self._found.setdefault(target, {})[path] = findings
        self._uses[path] = uses
        self._told.update(before.keys() | after.keys())
        others = {target for target in before.keys() | after.keys() if before.get(target) != after.get(target)}
        if others - {asked}:
            self.host.changed(frozenset(others - {asked}))

    def _showing(self, path: str) -> list[str]:
        """The other files whose entries showed something in `path` and must be linted again."""
        return [origin for origin in self._found.get(path, ()) if origin != path and origin in self._stale]

    def _changed(self, path: str, *, moved: bool) -> None:
        number = next(self._numbers)
        self._stale[path] = number
        self._told[path] += 1
        self.surveyed.clear()
        for user, used in self._uses.items():
            if path in used:
                self._stale[user] = number
        if moved:
            self._stale.update(dict.fromkeys(self._misled(), number))
        self._resume()

    def _misled(self) -> Iterable[str]:
        """The files whose imports mean other files than they did."""
        imports = Imports(self._paths)
        misled = {
            importer
            for importer, asked in self._meant.items()
            if any(imports.find((importer, *question)) != found for question, found in asked.items())
        }
        return [path for path, used in self._uses.items() if not misled.isdisjoint(used)]

    async def _teach(self) -> None:
        """Have the process know the files as they are."""
        # Whoever stops waiting: what was told by half would have to be told again.
        task = asyncio.get_running_loop().create_task(self._teach_all())
        # Nor need they hear how it ended.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(task)

    async def _teach_all(self) -> None:
        async with self._turn:
            if self._ended:
                raise Died("nobody is interested any more")
            self.worker.start()
            while self._taught != (known := (self.worker.started, self._configured)):
                await self._scan()
                self._taught = known
                self._untold.update(self.buffers)
            while self._unread:
                path = self._unread.pop()
                if path not in self.buffers:
                    await self._read(path)
            while self._untold:
                path = self._untold.pop()
                await self._tell(path, self.buffers[path])

    async def _scan(self) -> None:
        if self.folder is None:
            self._paths = {*self.buffers}
            return
        excludes = self.wanted(os.path.join(self.folder, "")).settings.excludes()
        scanned = await self.worker.scan(Scan(self.folder, excludes, frozenset(self.buffers)))
        if scanned is None:
            self.host.log(f"{self.folder} holds more than {MOST_FILES:,} files: only what is open is linted")
            scanned = Scanned([], {}, {})
        else:
            self.host.log(f"{self.folder}: {len(scanned.paths)} files, {len(scanned.known)} known from earlier runs")
        before, self._paths = self._paths, {*scanned.paths, *self.buffers}
        for path in before - self._paths:
            self._keep(path, (), frozenset())
            self._stale.pop(path, None)
        for path, asked in scanned.asked.items():
            self._meant.setdefault(path, {}).update(asked)
        number = next(self._numbers)
        for path in self._paths - before:
            if path in scanned.known:
                self._keep(path, *scanned.known[path])
            else:
                self._stale.setdefault(path, number)
        self._stale.update(dict.fromkeys(self._misled(), number))

    async def _read(self, path: str) -> None:
        if path not in self._paths:
            await self.worker.tell(Drop(path))
        elif not await self.worker.read(path):
            self._paths.discard(path)
            self._stale.update(dict.fromkeys(self._misled(), next(self._numbers)))

    async def _tell(self, path: str, buffer: Buffer) -> None:
        source = buffer.source()
        if isinstance(source, Source):
            self._unreadable.pop(path, None)
            await self.worker.tell(Put(source))
        else:
            self._unreadable[path] = source
            await self.worker.tell(Drop(path))


def _stamp(folder: str) -> Stamp:
    stamps = []
    for place in (Path(folder), *Path(folder).parents):
        with contextlib.suppress(OSError):
            stat = os.stat(place / "pyproject.toml")
            stamps.append((stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
