"""Sources in, findings out.  Reads no file, runs no code of the program."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradlint.faults import internal, why
from gradlint.outcome import Outcome, merged
from gradlint.program import File, Footprint, Program
from gradlint.rule import Because, Claim, Finding, Rule
from gradlint.shadow.chunks import TooDeep
from gradlint.shadow.interpreter import Stopped
from gradlint.shadow.tell import Told, begin, entries, tell
from gradlint.trace import Site, Span, Trace

if TYPE_CHECKING:
    from gradlint.sources import Source

# So many characters of files are linted before what was parsed is forgotten.  A tree takes fifty times its text.
_MOST_PARSED = 1_000_000
# So many objects may be made before garbage is looked for, between two entries.
_MOST_UNCOLLECTED = 500_000


def lint(sources: Sequence[Source], rules: Sequence[Rule]) -> list[Finding]:
    """The findings of `rules` in `sources`, in the order of their places."""
    linter = Linter(sources, rules)
    return merged(linter.file(source.path) for source in sources)


class Linter:
    """Lints the files of one run one by one.  What is found by one does not depend on the others having been linted.

    After an `update` a file costs what the change touches: an entry that read nothing of it is not told again.
    """

    def __init__(self, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.program = Program(File(source.path, source.text) for source in sources)
        self._heard: dict[str, dict[tuple[str, int], _Heard]] = {}
        """What the entries of each file gave when they were last told."""
        self._parsed: dict[str, int] = {}
        """How long the files are that have been linted since all was last forgotten."""

    def update(self, source: Source) -> None:
        """Take `source` in place of what is at its path; a path that is new is added."""
        self.program.update(source.path, source.text)

    def remove(self, path: str) -> None:
        """Take the file at `path` out of the program."""
        self.program.remove(path)
        self._heard.pop(path, None)
        self._parsed.pop(path, None)

    def file(self, path: str, stop: Callable[[], bool] | None = None) -> Outcome:
        """Tell the entries of the file at `path`.

        `stop` is asked every few milliseconds; once it is true, Stopped is raised.  What has been told by then is kept,
        and the linter is as good as before.
        """
        with _uncollected():
            return self._file(path, _poller(stop))

    def _file(self, path: str, poll: Callable[[], None] | None) -> Outcome:
        file = self.program.files[path]
        self._make_room(file)
        self.program.read = read = Footprint()
        problem = unreadable(file)
        if problem is not None:
            return Outcome((problem,), {})
        before = self._heard.get(path, {})
        now: dict[tuple[str, int], _Heard] = {}
        numbers: Counter[str] = Counter()
        choices = begin(file, poll)
        try:
            for entry in list(entries(self.program, file)):
                if poll is not None:
                    poll()
                key = entry.name, numbers[entry.name]
                numbers[entry.name] += 1
                heard = before.get(key)
                if heard is not None and heard.told.holds(self.program, choices, entry):
                    heard.told.repeat(choices)
                else:
                    heard = self._hear(tell(self.program, choices, entry), poll)
                now[key] = heard
        finally:
            # Stopped: what was heard of the later entries may still hold the next time.
            self._heard[path] = now if len(now) == sum(numbers.values()) else {**before, **now}
        asked = read.asked()
        said = Claims(self.rules)
        faults: list[Exception] = []
        cut: list[str] = []
        for heard in now.values():
            asked.update(heard.told.footprint.asked())
            said.join(heard.claims)
            faults += [heard.told.fault] if heard.told.fault is not None else []
            cut += heard.cut
        return Outcome((*(internal(path, why(error)) for error in faults[:1]), *said.findings()), asked, tuple(cut))

    def _hear(self, told: Told, poll: Callable[[], None] | None) -> _Heard:
        claims = Claims(self.rules)
        claims.hear(told.traces, poll)
        cut = [trace.entry for trace in told.traces if not trace.complete][:1]
        # A trace takes much room, and nothing looks at it again.
        told.traces.clear()
        if gc.get_count()[0] > _MOST_UNCOLLECTED:
            gc.collect(1)
        return _Heard(told, claims, cut)

    def _make_room(self, file: File) -> None:
        """Forget all that was parsed where it has become much."""
        self._parsed[file.path] = len(file.text)
        if sum(self._parsed.values()) > _MOST_PARSED and len(self._parsed) > 1:
            self._heard.clear()
            self.program.forget()
            # Traces and trees point at themselves in circles.
            gc.collect()
            self._parsed = {file.path: len(file.text)}


@dataclass(frozen=True, slots=True)
class _Heard:
    """What the rules said of one entry."""

    told: Told
    claims: Claims
    cut: list[str]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage: while an entry is told nearly all is in use, and looking takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _poller(stop: Callable[[], bool] | None) -> Callable[[], None] | None:
    if stop is None:
        return None

    def poll() -> None:
        if stop():
            raise Stopped

    return poll


class Claims:
    """What the rules say of the traces, each place once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self.said: dict[tuple[str, Site], tuple[Rule, Claim]] = {}

    def hear(self, traces: Sequence[Trace], poll: Callable[[], None] | None = None) -> None:
        """Ask every rule about the traces of one entry; `poll` is called in between."""
        visited: list[set[Site]] = []
        for rule in self.rules:
            if poll is not None:
                poll()
            # What must hold on every path, by the site that it must hold for.
            general: dict[tuple[Site, Site], list[Claim]] = defaultdict(list)
            for trace in traces:
                for claim in {claim.site: claim for claim in rule.check(trace)}.values():
                    if claim.about is None and not rule.on_every_path:
                        self.said.setdefault((rule.name, claim.site), (rule, claim))
                    elif trace.complete:
                        general[claim.site, claim.about or claim.site].append(claim)
            if general and not visited:
                visited = [trace.sites() for trace in traces if trace.complete]
            for (site, about), claims in general.items():
                if len(claims) == max(1, sum(about in sites for sites in visited)):
                    self.said.setdefault((rule.name, site), (rule, claims[0]))

    def join(self, other: Claims) -> None:
        """Take over what `other` says of places that nothing has been said of yet."""
        for key, said in other.said.items():
            self.said.setdefault(key, said)

    def findings(self) -> list[Finding]:
        return [
            Finding(
                name=rule.name,
                code=rule.page.code,
                severity=rule.page.severity,
                span=claim.site.span,
                message=claim.message,
                because=tuple(Because(reason.site.span, reason.text) for reason in claim.because if reason.site.known),
                instead=claim.instead,
            )
            for rule, claim in self.said.values()
        ]


def unreadable(file: File) -> Finding | None:
    """The finding for a file that cannot be told, None where it can."""
    path, error = file.path, file.problem
    if error is None:
        return None
    if isinstance(error, TooDeep):
        return Finding("too-deep", "GL002", "error", Span(path, error.line, 1, error.line, 2), str(error))
    if isinstance(error, SyntaxError):
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, error.end_offset or column + 1
        if (end_line, end_column) <= (line, column):
            end_line, end_column = line, column + 1
        span = Span(path, line, max(column, 1), end_line, end_column)
        return Finding("syntax-error", "GL001", "error", span, f"syntax error: {error.msg}")
    if isinstance(error, (RecursionError, MemoryError)):
        return Finding("too-deep", "GL002", "error", Span(path, 1, 1, 1, 2), "nested too deeply to be read")
    return Finding("syntax-error", "GL001", "error", Span(path, 1, 1, 1, 2), f"cannot be read as Python: {error}")


__all__ = ["Claims", "Linter", "Stopped", "lint", "unreadable"]

sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
