"""Programs of fixtures, run under observation, and the journals of such runs that are kept as fixtures.

`python tests/recorded.py` records the journals of `fixtures/recorded` anew.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradlint import confirmation
from gradlint.record.read import Recording, read
from gradlint.rule import Finding, Verdict
from gradlint.rules import rules
from gradlint.trace import Span

FORKS = Path(__file__).parent / "forks.py"
FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIRM, RECORDED = FIXTURES / "confirm", FIXTURES / "recorded"

MARKS = re.compile(r"  # (?P<marks>(?:confirmed|refuted|undecided|unreached) .*)$")
MARK = re.compile(r"(?P<verdict>\w+) (?P<names>[a-z-]+(?:, [a-z-]+)*)(?: in (?P<modes>[\w -]+))?")
WORDS = {
    "confirmed": Verdict.CONFIRMED,
    "refuted": Verdict.REFUTED,
    "undecided": Verdict.UNDECIDED,
    "unreached": Verdict.NOT_REACHED,
}
KEPT = {
    "bugs1": ("crash",),
    "bugs2": ("",),
    "byol_dqn": ("",),
    "cnn_amp": ("bad",),
    "dies": ("",),
    "multitask": ("ranks-cls",),
    "ppo": ("",),
    "rare_generator": ("",),
    "saved_param": ("",),
    "tbptt": ("",),
    "tiny_mlp": ("no_zero",),
    "zeroinit": ("",),
}
"""The programs and modes whose journals are kept."""
CUT = "tiny_mlp-no_zero"
"""The journal that ends in the middle of a line."""
ROOT = "@/"
"""Stands in a kept journal for the folder of the fixtures."""


@dataclass
class Program:
    """One run to be made."""

    file: Path
    findings: Sequence[Finding] = ()
    arguments: Sequence[str] = ()
    ranks: int = 1
    steps: int = confirmation.STEPS
    journals: list[str] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    log: str = ""


@dataclass(frozen=True)
class Mode:
    """One way to run a program of `fixtures/confirm`, and what is to come of it."""

    file: Path
    name: str
    arguments: tuple[str, ...]
    ranks: int
    marks: tuple[tuple[int, str, Verdict], ...]
    """Lines, rules, verdicts."""

    @property
    def title(self) -> str:
        return f"{self.file.stem}-{self.name}" if self.name else self.file.stem

    def program(self) -> Program:
        findings = [forced(rule, self.file, line) for line, rule, _ in self.marks]
        return Program(self.file, findings, self.arguments, self.ranks)


def modes(file: Path) -> list[Mode]:
    """What the marks of a program say."""
    lines = file.read_text(encoding="utf-8").splitlines()
    head = re.match(r"# modes: (.*)", lines[0])
    named = dict(one.partition("=")[::2] for one in head[1].split(", ")) if head else {"": ""}
    found = []
    for name, words in named.items():
        ranks = re.match(r"ranks=(\d+) ?", words)
        arguments = tuple(shlex.split(words[ranks.end() :] if ranks else words))
        marks: list[tuple[int, str, Verdict]] = []
        for number, line in enumerate(lines, 1):
            match = MARKS.search(line)
            for text in match["marks"].split("; ") if match else ():
                mark = MARK.fullmatch(text)
                assert mark, f"{file.name}:{number}: not a mark: {text}"
                assert set((mark["modes"] or "").split()) <= set(named), f"{file.name}:{number}: no such mode"
                if mark["modes"] is None or name in mark["modes"].split():
                    marks += [(number, rule, WORDS[mark["verdict"]]) for rule in mark["names"].split(", ")]
        found.append(Mode(file, name, arguments, int(ranks[1]) if ranks else 1, tuple(marks)))
    return found


def forced(name: str, file: Path, line: int) -> Finding:
    """A finding of a rule on a whole line."""
    page = next(rule.page for rule in rules() if rule.name == name)
    text = file.read_text(encoding="utf-8").splitlines()[line - 1]
    column, end = len(text) - len(text.lstrip()) + 1, len(text) + 1
    return Finding(name, page.code, page.severity, Span(str(file), line, column, line, end), "forced")


def record(programs: Sequence[Program]) -> None:
    """Run all of these, each in a process of its own, and read what was recorded."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        jobs = []
        for number, program in enumerate(programs):
            out = os.path.join(os.path.realpath(folder), str(number))
            os.mkdir(out)
            cwd = str(program.file.parent)
            command = ["python", str(program.file), *program.arguments]
            request = confirmation.Request(command, [cwd], steps=program.steps)
            plan = os.path.join(out, "plan.json")
            Path(plan).write_text(json.dumps(confirmation.plan(request, program.findings, cwd, out)), encoding="utf-8")
            jobs.append({"plan": plan, "argv": command[1:], "cwd": cwd, "environments": _environments(program.ranks)})
        listed = Path(folder, "jobs.json")
        listed.write_text(json.dumps(jobs), encoding="utf-8")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
        run = subprocess.run(
            [sys.executable, str(FORKS), str(listed)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=900,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-2000:]
        assert not run.stdout, f"took too long: {run.stdout}"
        for number, program in enumerate(programs):
            program.recordings = confirmation.recordings(os.path.join(folder, str(number)))
            files = sorted(Path(folder, str(number)).glob("*.jsonl"))
            program.journals = [file.read_text(encoding="utf-8", errors="replace") for file in files]
            log = Path(folder, str(number), "log")
            program.log = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _environments(ranks: int) -> list[dict[str, str]]:
    if ranks == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def kept(mode: Mode) -> list[Recording]:
    """The recordings of the journals that are kept of this mode."""
    found = []
    for path in sorted(RECORDED.glob(f"{mode.title}.*.jsonl")):
        text = path.read_text(encoding="utf-8").replace(f'"{ROOT}', f'"{FIXTURES.as_posix()}/')
        found.append(read(text.splitlines()))
    return found


def kept_modes() -> list[Mode]:
    return [mode for name, names in KEPT.items() for mode in modes(CONFIRM / f"{name}.py") if mode.name in names]


def main() -> None:
    """Record the kept journals anew."""
    for old in RECORDED.glob("*.jsonl"):
        old.unlink()
    every = kept_modes()
    programs = [mode.program() for mode in every]
    record(programs)
    for mode, program in zip(every, programs, strict=True):
        for rank, journal in enumerate(program.journals):
            text = journal.replace(f'"{FIXTURES}/', f'"{ROOT}')
            text = re.sub(r'^\["process",\d+,', f'["process",{rank + 1},', text)
            if mode.title == CUT:
                text = text[:-30]
            (RECORDED / f"{mode.title}.{rank}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
