"""What a real run says of a finding: it confirms the bugs, and never a finding on a correct program.

Hundreds of small programs run here, each in a fork of a process that has imported torch.  `fixtures/confirm/README.md`
says what the marks in its programs mean; its MISSED.txt admits what a run does not show.
"""

from __future__ import annotations

import difflib
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from recorded import CONFIRM, CUT, Mode, Program, forced, kept, kept_modes, modes, record
from test_pages import EXAMPLES
from test_wild import ASKED, CASES, FOLDERS, REPORTS, WILD, labels

from gradlint import judge
from gradlint.lint import lint
from gradlint.record.read import Recording
from gradlint.rule import Finding, Judgement, Verdict
from gradlint.sources import Source

MODES = [mode for file in sorted(CONFIRM.glob("*.py")) for mode in modes(file)]

Property = Callable[[str, object], None]


@functools.cache
def missed() -> dict[str, str]:
    """What a run is known not to show: the case and the rule, and what it says instead."""
    lines = (line.split("#")[0].strip() for line in (CONFIRM / "MISSED.txt").read_text("utf-8").splitlines())
    return {entry.rpartition(" ")[0]: entry.rpartition(" ")[2] for entry in lines if entry}


def findings(files: Sequence[Path]) -> list[Finding]:
    return lint([Source(str(file), file.read_text(encoding="utf-8")) for file in files], ASKED)


def against(mode: Mode, recordings: list[Recording]) -> list[str]:
    """What is otherwise than the marks of a program say."""
    program = mode.program()
    judged = judge.judge(program.findings, recordings)
    wrong = [
        f"{mode.title}:{line} {rule} {judgement.verdict.value}, not {verdict.value}: {judgement.reason}"
        for (line, rule, verdict), judgement in zip(mode.marks, judged, strict=True)
        if judgement.verdict is not verdict
    ]
    return wrong + seen(mode.title, recordings, judged)


def seen(where: str, recordings: list[Recording], judged: Sequence[Judgement] = ()) -> list[str]:
    """What is said of a program of which nothing is to be said."""
    extra = [j.finding for j in judge.seen(recordings, judged)]
    wrong = [f"{where}:{finding.span.line} {finding.name} is seen: {finding.message}" for finding in extra]
    faults = [n for recording in recordings for n in recording.notes if n.startswith("observer") or "cannot be" in n]
    return wrong + [f"{where}: {note}" for note in faults]


def ran(where: str, program: Program) -> list[str]:
    """Whether there is anything to judge."""
    return [] if any(r.torch for r in program.recordings) else [f"{where}: nothing recorded: {program.log[-1000:]}"]


def test_marks() -> None:
    """The programs of `fixtures/confirm`."""
    programs = [mode.program() for mode in MODES]
    record(programs)
    wrong = []
    for mode, program in zip(MODES, programs, strict=True):
        wrong += ran(mode.title, program) + against(mode, program.recordings)
    assert sum(len(mode.marks) for mode in MODES) > 150
    assert not wrong, "\n".join(wrong)


def test_pages(tmp_path: Path, record_property: Property) -> None:
    """The findings on the pages' Bad examples are confirmed; of the Good ones a run says nothing."""
    programs = []
    for example in EXAMPLES:
        file = tmp_path / example.path
        file.write_text(example.code, encoding="utf-8")
        programs.append(Program(file, findings([file]) if example.heading == "Bad" else []))
    record(programs)
    wrong = []
    for example, program in zip(EXAMPLES, programs, strict=True):
        wrong += ran(example.path, program)
        if example.heading == "Good":
            wrong += seen(example.path, program.recordings)
        for judgement in judge.judge(program.findings, program.recordings):
            wrong += _confirmed(f"pages/{example.path}", judgement, record_property)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("corpus", [WILD, REPORTS], ids=lambda corpus: corpus.name)
def test_real_bugs(corpus: Path, record_property: Property) -> None:
    """The finding on a bug is confirmed; the same on its repair is not, and of correct code a run says nothing."""
    cases = [case for case in CASES if FOLDERS[case].parent == corpus]
    bad: dict[str, tuple[Program, Finding]] = {}
    good: dict[str, Program] = {}
    for case in cases:
        folder = FOLDERS[case]
        good[case] = Program(folder / "good.py")
        if CASES[case]["class"] != "innocent":
            files = [file for file in sorted(folder.glob("*.py")) if file.name != "oracle.py"]
            found = findings([file for file in files if "good" not in file.name])
            wanted = labels(CASES[case])
            finding = next((f for f in found if (Path(f.span.path).name, f.span.line) in wanted), None)
            if finding is not None:
                bad[case] = Program(folder / "bad.py", found), finding
                good[case].findings = [_on_the_repair(finding)]
    record([*(program for program, _ in bad.values()), *good.values()])
    wrong = []
    for case in cases:
        where = f"{corpus.name}/{case}"
        repair = good[case]
        judged = judge.judge(repair.findings, repair.recordings)
        wrong += ran(where, repair) + seen(f"{where}/good.py", repair.recordings, judged)
        wrong += [f"{where}/good.py {j.finding.name} confirmed: {j.reason}" for j in judged if j in _yes(judged)]
        if case in bad:
            program, finding = bad[case]
            wrong += ran(where, program)
            judgements = judge.judge(program.findings, program.recordings)
            judgement = next(j for j in judgements if j.finding is finding)
            wrong += _confirmed(where, judgement, record_property)
    assert len(bad) > 70
    assert not wrong, "\n".join(wrong)


def test_lists_name_cases() -> None:
    names = {f"{folder.parent.name}/{case}" for case, folder in FOLDERS.items()}
    names |= {f"pages/{example.path}" for example in EXAMPLES}
    assert {entry.partition(" ")[0] for entry in missed()} <= names


@pytest.mark.parametrize("mode", kept_modes(), ids=lambda mode: mode.title)
def test_kept_journals(mode: Mode) -> None:
    """Journals of real runs are read and judged without a run; one of them ends in the middle of a line."""
    recordings = kept(mode)
    assert len(recordings) == mode.ranks
    assert mode.title != CUT or not recordings[0].trace.complete
    assert not against(mode, recordings)


def test_judging_needs_no_torch() -> None:
    program = (
        "import sys; import recorded; from gradlint import judge\n"
        "for mode in recorded.kept_modes():\n"
        "    found = recorded.kept(mode)\n"
        "    judge.seen(found, judge.judge(mode.program().findings, found))\n"
        "assert found and not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def _yes(judged: Sequence[Judgement]) -> list[Judgement]:
    return [judgement for judgement in judged if judgement.verdict is Verdict.CONFIRMED]


def _confirmed(where: str, judgement: Judgement, record_property: Property) -> list[str]:
    """What is wrong with a finding that is to be confirmed."""
    key = f"{where} {judgement.finding.name}"
    if key in missed():
        record_property("missed", key)
        said = judgement.verdict.value.replace("not reached", "unreached")
        return [] if said == missed()[key] else [f"{key}: now {said}: correct MISSED.txt"]
    return [] if judgement in _yes([judgement]) else [f"{key} {judgement.verdict.value}: {judgement.reason}"]


def _on_the_repair(finding: Finding) -> Finding:
    """The finding of a bad file, supposed on the same line of its repair."""
    bad = Path(finding.span.path)
    good = bad.with_name(bad.name.replace("bad", "good"))
    if not good.exists():
        good = bad.with_name("good.py")
    line = finding.span.line - 1
    before, after = (path.read_text(encoding="utf-8").splitlines() for path in (bad, good))
    for what, start, end, low, high in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if start <= line < end:
            line = low + line - start if what == "equal" else min(low + line - start, max(low, high - 1))
            break
    return forced(finding.name, good, min(line, len(after) - 1) + 1)
