"""`gradlint confirm` from outside: what is written wrongly, exit codes, formats, bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradlint
from gradlint.confirmation import Request, observe

STALE = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(3, 2)).pow(2).mean().backward()  # stale
    optimizer.step()
"""
CLEAN = STALE.replace("    model(", "    optimizer.zero_grad()\n    model(")


def confirm(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, with this interpreter's torch."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [sys.executable, "-m", "gradlint", "confirm", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "gradlint/cli.py" not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "what to run is missing"),
        (["--", "./train.sh"], "cannot see which program"),
        (["--", "python", "-c", "1"], "put the code in a file"),
        (["--step", "train.py"], "write it as file.py:function"),
        (["--step", "missing.py:make"], "there is no file missing.py"),
        (["--step", "train.py:make", "--", "python", "train.py"], "takes no command"),
        (["missing", "--", "python", "train.py"], "no such file or folder: missing"),
        (["--findings", "train.py", "--", "python", "train.py"], "not a report of"),
        (["--findings", "no.json", "--", "python", "train.py"], "no.json: cannot be read"),
        (["--select", "GL999", "--", "python", "train.py"], "unknown rule `GL999`"),
        (["--steps", "0", "--", "python", "train.py"], "--steps"),
        (["--nproc", "2", "--", "torchrun", "train.py"], "--nproc"),
        (["--python", "/no/python", "--", "python", "train.py"], "/no/python"),
    ],
)
def test_what_cannot_be_run_is_said_and_nothing_runs(arguments: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('ran')\n")
    done = confirm(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "ran" not in done.stderr.split()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("command = 3", "pyproject.toml:2: `command` in [tool.gradlint.confirm] must be a list of strings"),
        ("steps = 0", "must be a whole number from 1"),
        ("timeout = 'long'", "must be a number of seconds"),
        ("comand = []", "unknown key `comand` in [tool.gradlint.confirm]; did you mean `command`?"),
    ],
)
def test_a_wrong_configuration_is_told_with_its_line(table: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.gradlint.confirm]\n{table}\n")
    done = confirm(cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_the_command_of_the_configuration_confirms(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALE)
    (tmp_path / "pyproject.toml").write_text('[tool.gradlint.confirm]\ncommand = "python train.py"\n')
    done = confirm("--output-format", "json", "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "this executes your program: `python train.py`, for 2 steps" in done.stderr
    told = json.loads(done.stdout)
    (finding,) = told["findings"]
    assert (finding["name"], finding["verdict"]) == ("missing-zero-grad", "confirmed")
    assert finding["reason"].startswith("2 of 2 parameters of `SGD` still held the gradients of the step before")
    assert finding["location"]["row"] == 1 + STALE.splitlines().index(
        "    model(torch.ones(3, 2)).pow(2).mean().backward()  # stale"
    )
    assert [layer["kind"] for layer in told["gradients"]["layers"]] == ["Linear"]
    assert told["steps"] == 2
    page = (tmp_path / "page.html").read_text()
    assert "missing-zero-grad" in page
    assert "<svg" in page


def test_a_report_of_findings_is_judged_on_a_repaired_program(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(STALE)
    check = [sys.executable, "-m", "gradlint", "check", "--isolated", "--output-format", "json", "-o", "found.json"]
    subprocess.run([*check, "train.py"], cwd=tmp_path, check=False, timeout=60)
    file.write_text(STALE.replace("    optimizer.step()", "    optimizer.step()\n    optimizer.zero_grad()"))
    done = confirm("--findings", "found.json", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "refuted  train.py:6:5 GL310 missing-zero-grad: did not happen in 2 steps" in done.stdout
    assert "1 refuted" in done.stdout.splitlines()[-1].lower()


def test_a_program_that_fails_before_any_backward_cannot_be_judged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nimport not_installed_anywhere\n")
    done = confirm("--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "nothing could be judged" in done.stderr
    assert "No module named 'not_installed_anywhere'" in done.stderr


def test_an_interpreter_without_torch_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch_is_not_here\n".replace("torch_is_not_here", "torch"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = confirm("--python", str(python), "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 3
    assert f"{python} has no torch" in done.stderr


def test_what_hangs_is_ended_and_judged_by_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALE + "    if step == 1:\n        import time; time.sleep(1000)\n")
    done = confirm("--timeout", "12", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "confirmed[GL310]" in done.stdout
    assert "took more than 12 s and was ended" in done.stdout


def test_proof_compares_with_a_run_without_the_fault(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STALE)
    done = confirm("--prove", "--", "python", "train.py", cwd=tmp_path)
    assert "= proof: with it left out, the norm of the gradient of" in done.stdout
    assert "in step 2" in done.stdout


def test_what_is_allowed_or_not_asked_is_not_seen_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    command = [sys.executable, "train.py"]
    file.write_text(STALE.replace("# stale", "# gradlint: allow[missing-zero-grad] on purpose"))
    told = observe(Request(command, ["train.py"], isolated=True))
    assert told.judged
    assert told.confirmed == []
    file.write_text(STALE)
    assert observe(Request(command, ["train.py"], select=["GL2"], isolated=True)).confirmed == []


def test_a_step_without_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text(
        "import torch\n\n\ndef make_step():\n    model = torch.nn.Linear(2, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    return model, optimizer, lambda model, batch: model(batch).mean(), torch.ones(3, 2)\n"
    )
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    told = gradlint.confirm(step="steps.py:make_step", paths=["steps.py"])
    assert told.judged
    assert told.confirmed == []
    assert told.steps == 2


def test_behind_an_error_the_program_is_seen_without_its_cause(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)\n"
        "for step in range(3):\n"
        "    hidden = torch.sigmoid(second(first(torch.ones(3, 2)).detach()))\n"
        "    hidden *= 2\n"
        "    optimizer.zero_grad()\n"
        "    hidden.mean().backward()\n"
        "    optimizer.step()\n"
    )
    done = confirm("--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "confirmed[GL201]" in done.stdout
    assert "torch raised RuntimeError" in done.stdout
    assert "confirmed[GL104]" in done.stdout
    assert "(in a run without the fault of line 6)" in done.stdout
    assert "these gradients are of a run without its cause at train.py:6" in " ".join(done.stdout.split())
