"""What a real run says of a finding: it confirms the bugs, and never a finding on a correct program."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from recorded import Program, forced, record

from gradlint import judge
from gradlint.rule import Verdict

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIRM = FIXTURES / "confirm"

MARKS = re.compile(r"  # (?P<marks>(?:confirmed|refuted|undecided|unreached) .*)$")
MARK = re.compile(r"(?P<verdict>\w+) (?P<names>[a-z-]+(?:, [a-z-]+)*)(?: in (?P<modes>[\w -]+))?")
WORDS = {
    "confirmed": Verdict.CONFIRMED,
    "refuted": Verdict.REFUTED,
    "undecided": Verdict.UNDECIDED,
    "unreached": Verdict.NOT_REACHED,
}


@dataclass(frozen=True)
class Mode:
    """One way to run a program, and what is to come of it."""

    file: Path
    name: str
    arguments: tuple[str, ...]
    ranks: int
    marks: tuple[tuple[int, str, Verdict], ...]
    """Lines, rules, verdicts."""


def modes(file: Path) -> list[Mode]:
    lines = file.read_text(encoding="utf-8").splitlines()
    head = re.match(r"# modes: (.*)", lines[0])
    named = dict(one.partition("=")[::2] for one in head[1].split(", ")) if head else {"": ""}
    found = []
    for name, words in named.items():
        ranks = re.match(r"ranks=(\d+) ?", words)
        arguments = tuple(shlex.split(words[ranks.end() :] if ranks else words))
        marks = []
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


def test_marks() -> None:
    every = [mode for file in sorted(CONFIRM.glob("*.py")) for mode in modes(file)]
    programs = [
        Program(m.file, [forced(rule, m.file, line) for line, rule, _ in m.marks], m.arguments, m.ranks) for m in every
    ]
    record(programs)
    wrong = []
    right = 0
    for mode, program in zip(every, programs, strict=True):
        where = f"{mode.file.name} {mode.name}"
        judged = judge.judge(program.findings, program.recordings)
        for (line, rule, verdict), judgement in zip(mode.marks, judged, strict=True):
            if judgement.verdict is verdict:
                right += 1
            else:
                wrong.append(
                    f"{where}:{line} {rule} {judgement.verdict.value}, not {verdict.value}: {judgement.reason}"
                )
        for extra in judge.seen(program.recordings, judged):
            finding = extra.finding
            wrong.append(f"{where}:{finding.span.line} {finding.name} is seen: {finding.message}")
        for recording in program.recordings:
            wrong += [f"{where}: {note}" for note in recording.notes]
        if not program.recordings:
            wrong.append(f"{where}: nothing recorded: {program.log[-1000:]}")
    assert not wrong, f"{right} right\n" + "\n".join(wrong)
