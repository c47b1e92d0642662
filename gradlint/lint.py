"""Sources in, findings out.  Reads no file, runs no code of the program."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gradlint.faults import internal, why
from gradlint.outcome import Outcome, merged
from gradlint.program import File, Program
from gradlint.rule import Because, Claim, Finding, Rule
from gradlint.shadow.chunks import TooDeep
from gradlint.shadow.tell import tell
from gradlint.trace import Site, Span, Trace

if TYPE_CHECKING:
    from gradlint.imports import Question
    from gradlint.sources import Source

# So many characters of files are linted before what was parsed is forgotten.  A tree takes fifty times its text.
_MOST_PARSED = 1_000_000


def lint(sources: Sequence[Source], rules: Sequence[Rule]) -> list[Finding]:
    """The findings of `rules` in `sources`, in the order of their places."""
    linter = Linter(sources, rules)
    return merged(linter.file(source.path) for source in sources)


class Stopped(Exception):
    """Nobody wants to know any more."""


class Linter:
    """Lints the files of one run one by one.  What is found by one does not depend on the others having been linted."""

    def __init__(self, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.program = Program(File(source.path, source.text) for source in sources)
        self._parsed = 0

    def update(self, source: Source) -> None:
        """Take `source` in place of what is at its path; a path that is new is added."""
        self.program.update(File(source.path, source.text))

    def remove(self, path: str) -> None:
        """Take the file at `path` out of the program."""
        self.program.remove(path)

    def file(self, path: str, stop: Callable[[], bool] | None = None) -> Outcome:
        """Tell the entries of the file at `path`.  Raises Stopped once `stop` says so."""
        file = self.program.files[path]
        self._parsed += len(file.text)
        if self._parsed > _MOST_PARSED:
            self.program.forget()
            # Traces and trees point at themselves in circles.
            gc.collect()
            self._parsed = len(file.text)
        asked: dict[Question, str] = {}
        self.program.asked = asked
        problem = unreadable(file)
        if problem is not None:
            return Outcome((problem,), asked)
        claims = Claims(self.rules)
        failed: dict[str, Exception] = {}
        cut: list[str] = []
        for traces in tell(self.program, file, failed):
            if stop is not None and stop():
                raise Stopped
            claims.hear(traces)
            cut += [trace.entry for trace in traces if not trace.complete][:1]
        faults = [internal(path, why(error)) for path, error in failed.items()]
        return Outcome((*faults, *claims.findings()), asked, tuple(cut))


class Claims:
    """What the rules say of the traces, each place once."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self.said: dict[tuple[str, Site], tuple[Rule, Claim]] = {}

    def hear(self, traces: Sequence[Trace]) -> None:
        visited: list[set[Site]] = []
        for rule in self.rules:
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


sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
