"""Real programs of many kinds run as they are under observation: nothing of theirs breaks, and they are seen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradlint import confirmation
from gradlint.confirmation import Confirmation, Request
from gradlint.gradients import Gradient
from gradlint.record.launch import CommandError
from gradlint.record.sandbox import Sandbox
from gradlint.rule import Verdict

HARNESS = Path(__file__).parent.parent / "fixtures" / "confirm" / "harness"

pytest.importorskip("torch")


class Runner:
    """Runs programs of the harness, and keeps what the last one printed."""

    def __init__(self) -> None:
        self.printed = ""

    def __call__(
        self,
        *words: str,
        device: str = "auto",
        steps: int = 2,
        sandbox: Sandbox = Sandbox.AUTO,
        nproc: int | None = None,
        fails: bool = False,
    ) -> Confirmation:
        paths = [word for word in words if word.endswith(".py")] or ["package"]
        self.printed = ""
        told = confirmation.observe(
            Request(
                ("python", *words),
                paths,
                device=device,
                steps=steps,
                sandbox=sandbox,
                nproc=nproc,
                timeout=100,
                python=sys.executable,
                isolated=True,
            ),
            self.hear,
        )
        ours = [note for note in told.notes if note.startswith(("observer ", "torch ", "this torch "))]
        assert not ours, self.printed
        assert fails or "Traceback" not in self.printed, self.printed
        return told

    def hear(self, text: str) -> None:
        self.printed += text

    def lines(self, word: str) -> list[str]:
        return [line.removeprefix(word).strip() for line in self.printed.splitlines() if line.startswith(word)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.chdir(HARNESS)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Runner()


def gradients(told: Confirmation) -> dict[str, Gradient]:
    assert told.gradients is not None
    return {p.name: p.gradient for p in told.gradients.parameters()}


def all_flow(told: Confirmation) -> bool:
    return set(gradients(told).values()) == {Gradient.FINITE}


def verdicts(told: Confirmation) -> list[tuple[str, int]]:
    return [(j.finding.name, j.finding.span.line) for j in told.confirmed]


def test_a_closure_is_called_again(run: Runner) -> None:
    told = run("lbfgs.py")
    assert (told.steps, verdicts(told), all_flow(told)) == (2, [], True)


@pytest.mark.parametrize("kind", ["reentrant", "other"])
def test_checkpoints(run: Runner, kind: str) -> None:
    told = run("checkpoint.py", kind)
    assert (told.steps, verdicts(told), all_flow(told)) == (2, [], True)


def test_a_scaler_skips_steps(run: Runner) -> None:
    told = run("scaler_skips.py")
    assert (told.steps, verdicts(told), all_flow(told)) == (2, [], True)
    assert told.gradients is not None
    assert [step.loss is not None and step.loss < 1e4 for step in told.gradients.steps] == [True, True]


@pytest.mark.parametrize("how", ["data", "leaves", "no_grad"])
def test_steps_by_hand_end_the_run(run: Runner, how: str) -> None:
    told = run("by_hand.py", how)
    assert told.steps == 2
    assert "missing-zero-grad" not in dict(verdicts(told))


def test_what_has_its_own_ideas_of_tensors(run: Runner) -> None:
    told = run("exotic.py")
    assert (told.steps, len(run.lines("loss")), verdicts(told)) == (2, 2, [])
    assert sum("torch.compile was switched off" in note for note in told.notes) == 1


def test_a_crash_in_c_keeps_what_was_known(run: Runner) -> None:
    told = run("segfault.py", fails=True)
    assert told.steps == 1
    assert "SIGSEGV" in told.ended
    assert verdicts(told) == [("parameters-behind-cut", 9)]
    assert list(gradients(told).values()) == [Gradient.NONE] * 2 + [Gradient.FINITE] * 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_tell_nothing(run: Runner, method: str) -> None:
    told = run("workers.py", method)
    assert (told.steps, verdicts(told), all_flow(told)) == (2, [], True)
    assert len(told.recordings) == 1
    assert run.lines("sum") == ["24.0", "88.0"]


@pytest.mark.ranks
@pytest.mark.parametrize("start", ["spawn", "fork", "torchrun"])
def test_ranks(run: Runner, start: str) -> None:
    told = run("ranks.py", *([] if start == "torchrun" else [start]), nproc=2 if start == "torchrun" else None)
    trained = [recording for recording in told.recordings if recording.steps]
    assert [(recording.rank, recording.steps, recording.ended) for recording in trained] == [
        ("0", 2, "steps"),
        ("1", 2, "steps"),
    ]
    assert told.gradients is not None
    assert any("module.ghost.weight" in note for note in told.gradients.notes)


def test_a_module_of_a_package(run: Runner) -> None:
    told = run("-m", "package.train", "--lr", "0.1")
    assert told.steps == 2
    assert [(j.finding.name, Path(j.finding.span.path).name) for j in told.confirmed] == [
        ("parameters-behind-cut", "net.py")
    ]


def test_cuda_that_is_not_there(run: Runner) -> None:
    told = run("hard_coded_cuda.py", device="cpu")
    assert (told.steps, verdicts(told), all_flow(told)) == (2, [], True)
    assert run.lines("leaves") == ["False True True"]
    assert any("in place of CUDA" in note for note in told.notes)


def test_cuda_that_is_asked_for_and_not_there(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(CommandError, match="--device cpu"):
        run("lbfgs.py", device="cuda")


def test_nothing_is_saved(run: Runner, tmp_path: Path) -> None:
    # Without the sandbox, which would hide what is written.
    told = run("saves.py", str(tmp_path), sandbox=Sandbox.OFF)
    assert (told.steps, all_flow(told)) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "said"), [(["--message"], "there is no data"), ([], "--data")])
def test_programs_that_end_before_they_train(run: Runner, words: list[str], said: str) -> None:
    told = run("exits.py", *words)
    assert not told.judged
    assert said in told.ended
    assert not [j for j in told.judgements if j.verdict is Verdict.CONFIRMED]


def test_code_that_is_handed_to_another_python(run: Runner) -> None:
    run("hands_on.py")
    assert run.lines("counted") == ["6"]
    assert run.lines("path") == ["[]"]


def test_lightning(run: Runner) -> None:
    # Not among the requirements: several hundred megabytes for one test.
    pytest.importorskip("lightning")
    told = run("with_lightning.py")
    assert told.steps == 2
    assert [name for name, _ in verdicts(told)] == ["parameters-behind-cut"]
