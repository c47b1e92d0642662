"""Sources in, findings out.  Reads no file, runs no code of the program."""

from __future__ import annotations

import ast
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gradlint.faults import internal, why
from gradlint.program import File, Program
from gradlint.rule import Because, Claim, Finding, Rule
from gradlint.shadow.chunks import chunks
from gradlint.shadow.tell import tell
from gradlint.trace import Site, Span, Trace

if TYPE_CHECKING:
    from gradlint.sources import Source

# CPython refuses more than 200 nested brackets; libcst dies of a few thousand.
_DEEPEST_NESTING = 200


def lint(sources: Sequence[Source], rules: Sequence[Rule]) -> list[Finding]:
    """The findings of `rules` in `sources`, in the order of their places."""
    findings: list[Finding] = []
    files = []
    for source in sources:
        problem = unreadable(source.path, source.text)
        if problem is not None:
            findings.append(problem)
        else:
            files.append(
                File(
                    source.path,
                    source.path.rpartition("/")[2].removesuffix(".py"),
                    chunks(source.path, source.text),
                )
            )
    claims = Claims(rules)
    failed: dict[str, Exception] = {}
    for traces in tell(Program(files), failed):
        claims.hear(traces)
    findings += [internal(path, why(error)) for path, error in failed.items()]
    return sorted([*findings, *claims.findings()], key=lambda f: (f.span, f.code, f.message))


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


def unreadable(path: str, text: str) -> Finding | None:
    """The finding for a file that cannot be told, None where it can."""
    depth = deepest_nesting(text)
    if depth is not None:
        return Finding(
            "too-deep",
            "GL002",
            "error",
            Span(path, depth, 1, depth, 2),
            f"more than {_DEEPEST_NESTING} nested brackets",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, error.end_offset or column + 1
        if (end_line, end_column) <= (line, column):
            end_line, end_column = line, column + 1
        span = Span(path, line, max(column, 1), end_line, end_column)
        return Finding("syntax-error", "GL001", "error", span, f"syntax error: {error.msg}")
    except (RecursionError, MemoryError):
        return Finding("too-deep", "GL002", "error", Span(path, 1, 1, 1, 2), "nested too deeply to be read")
    except ValueError as error:
        return Finding("syntax-error", "GL001", "error", Span(path, 1, 1, 1, 2), f"cannot be read as Python: {error}")
    return None


def deepest_nesting(text: str) -> int | None:
    """The line at which brackets nest too deeply, None where they do not.  Strings are not told apart."""
    if text.count("(") + text.count("[") + text.count("{") <= _DEEPEST_NESTING:
        return None
    depth = 0
    line = 1
    for char in text:
        if char in "([{":
            depth += 1
            if depth > _DEEPEST_NESTING * 4:
                return line
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif char == "\n":
            line += 1
    return None


sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))
