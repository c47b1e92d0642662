"""Runs gradlint's command in this process, with rules and an analysis that the cases control.

The pretended analysis finds what comments of the source ask for, so that a case says on its own line what it
expects, and none of these tests depends on what a rule sees.
"""

from __future__ import annotations

import faulthandler
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import gradlint.lint
import gradlint.run
from gradlint import cli
from gradlint.outcome import Outcome
from gradlint.page import Page
from gradlint.rule import Because, Finding, Rule
from gradlint.sources import Source
from gradlint.trace import Span

PAGES = (
    Page(
        "dropped-result",
        "GL105",
        "error",
        "none",
        "0.1",
        "Dropped result",
        "# Dropped result\n\nIt is *lost*.\n",
    ),
    Page(
        "saved-tensor-mutated",
        "GL201",
        "error",
        "none",
        "0.1",
        "Saved tensor mutated",
        "# Saved tensor mutated\n",
    ),
    Page(
        "quantized-in-place",
        "GL206",
        "warning",
        "none",
        "0.1",
        "Quantized in place",
        "# Quantized in place\n",
    ),
    Page("needless-retain", "GL302", "info", "none", "0.1", "Needless retain", "# Needless retain\n"),
)
_MARK = re.compile(r"(?P<code>.*?)\s*# (?P<verb>find|because|kill|exit|raise|recurse) ?(?P<what>[^\n]*)")


@dataclass
class Result:
    """What a call of the command gave."""

    code: int
    out: str
    err: str


@dataclass
class Command:
    """Calls the command; every call is one process as far as a user could tell."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def analyse(self) -> None:
        """Puts the real analysis in place of the pretended one; the rules stay silent."""
        self.monkeypatch.setattr("gradlint.lint.Linter", RealLinter)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Writes the files under the current folder."""
        for name, content in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Result:
        """Runs `gradlint` with these arguments."""
        self.monkeypatch.setattr(sys, "argv", ["gradlint", *map(str, arguments)])
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = self.capsys.readouterr()
        assert "Traceback" not in out + err
        code = stopped.value.code
        return Result(code if isinstance(code, int) else 0, out, err)


RealLinter = gradlint.lint.Linter


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Command:
    """The command in an empty folder, with the pretended rules and analysis."""
    cache = tmp_path_factory.mktemp("cache")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gradlint.cache.folder", lambda: cache)
    rules = tuple(Rule(page, lambda _: ()) for page in PAGES)
    monkeypatch.setattr("gradlint.run.rules", lambda: rules)
    monkeypatch.setattr("gradlint.rules.rules", lambda: rules)
    monkeypatch.setattr("gradlint.lint.Linter", PretendedLinter)
    return Command(monkeypatch, capsys)


class PretendedLinter:
    """Finds `# find name message`, with every `# because text` of the run as its reasons."""

    def __init__(self, sources: Sequence[Source], rules: Sequence[Rule]) -> None:
        self.pages = {rule.name: rule.page for rule in rules}
        self.sources = {source.path: source for source in sources}

    def file(self, path: str) -> Outcome:
        because = tuple(
            Because(span, match["what"])
            for source in self.sources.values()
            for match, span in marks(source)
            if match["verb"] == "because"
        )
        findings: list[Finding] = []
        for match, span in marks(self.sources[path]):
            word, _, rest = match["what"].partition(" ")
            if match["verb"] == "find" and word in self.pages:
                page = self.pages[word]
                findings.append(
                    Finding(word, page.code, page.severity, span, rest or "found", because, "something else")
                )
            elif match["verb"] == "kill":
                faulthandler.disable()
                signal.raise_signal(signal.SIGSEGV)
            elif match["verb"] == "exit":
                os._exit(7)
            elif match["verb"] == "raise":
                raise ZeroDivisionError(match["what"])
            elif match["verb"] == "recurse":
                recurse(0)
        return Outcome(tuple(findings), {})


def marks(source: Source) -> Iterator[tuple[re.Match[str], Span]]:
    """What the comments of a source ask for, and the code before each."""
    for number, line in enumerate(source.text.split("\n"), 1):
        if match := _MARK.match(line):
            code = match["code"]
            yield match, Span(source.path, number, len(code) - len(code.lstrip()) + 1, number, len(code) + 1)


def recurse(depth: int) -> int:
    """Never returns."""
    return recurse(depth + 1)
