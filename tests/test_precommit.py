"""The hooks, as pre-commit installs and runs them: a commit with a bug is stopped, the mended one passes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
SHIPPED = ["gradlint", "rules", "gradlint_torch.py", "pyproject.toml", "README.md", "LICENSE", MANIFEST.name]
BUG = """\
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for _ in range(100):
    optimizer.zero_grad()
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    total += loss
"""
MENDED = BUG.replace("+= loss", "+= loss.detach()")


def notebook(source: str) -> str:
    """A notebook of one cell."""
    output: dict[str, object] = {"metadata": {}, "outputs": [], "execution_count": None}
    cell = {"cell_type": "code", "source": source, **output}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


@dataclass
class Machine:
    """A user's machine: a home of its own, and no trace of the git and pre-commit that run this test."""

    home: Path

    def run(self, *command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command; what it says is in `stdout`."""
        private = {
            key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PRE_COMMIT", "PYTHON"))
        }
        told = {
            "PRE_COMMIT_HOME": str(self.home / "pre-commit"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "GIT_CONFIG_GLOBAL": str(self.home / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{private['PATH']}",
        }
        ran = subprocess.run(
            [*map(str, command)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=private | told,
        )
        assert not check or ran.returncode == 0, ran.stdout
        return ran

    def commit(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Commits everything, as a user would, hooks included."""
        self.run("git", "add", "--all", cwd=folder)
        return self.run("git", "commit", "--quiet", "--message", "a change", cwd=folder, check=False)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The machine, where pip can install what the hooks need."""
    home = tmp_path_factory.mktemp("home")
    (home / "gitconfig").write_text(
        "[user]\n\tname = A user\n\temail = user@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    machine = Machine(home)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(home), "hatchling"]
    reached = machine.run(*download, cwd=home, check=False)
    if reached.returncode:
        pytest.skip(f"pip reaches no index: {reached.stdout.strip()[-200:]}")
    return machine


@pytest.fixture(scope="module")
def release(machine: Machine) -> Path:
    """A repository that holds what ours ships, as it is now, committed or not."""
    folder = machine.home / "release"
    folder.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    machine.run("git", "init", "--quiet", cwd=folder)
    assert machine.commit(folder).returncode == 0
    return folder


def project(machine: Machine, release: Path, folder: Path, hook: str) -> Path:
    """A repository that uses the hook."""
    folder.mkdir()
    revision = machine.run("git", "rev-parse", "HEAD", cwd=release).stdout.strip()
    (folder / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {release}\n    rev: {revision}\n    hooks:\n      - id: {hook}\n"
    )
    (folder / "pyproject.toml").write_text('[tool.gradlint]\nextend-exclude = ["old"]\n')
    machine.run("git", "init", "--quiet", cwd=folder)
    machine.run("pre-commit", "install", cwd=folder)
    return folder


def test_the_manifest_and_our_own_configuration(machine: Machine) -> None:
    machine.run("pre-commit", "validate-manifest", MANIFEST, cwd=machine.home)
    machine.run("pre-commit", "validate-config", ROOT / ".pre-commit-config.yaml", cwd=machine.home)


@pytest.mark.parametrize("hook", ["gradlint", "gradlint-fix"])
def test_a_bug_stops_a_commit(machine: Machine, release: Path, tmp_path: Path, hook: str) -> None:
    if f"- id: {hook}\n" not in MANIFEST.read_text(encoding="utf-8"):
        pytest.skip(f"there is no hook {hook}")
    folder = project(machine, release, tmp_path / "project", hook)
    # What `exclude` names is not linted, though pre-commit names it; and what is no Python is not even named.
    (folder / "old").mkdir()
    (folder / "old" / "train.py").write_text(BUG)
    (folder / "notes.md").write_text(BUG)
    first = machine.commit(folder)
    assert (first.returncode, "old/train.py" in first.stdout) == (0, False), first.stdout

    linted: dict[str, Callable[[str], str]] = {"train.py": str, "stub.pyi": str, "notebook.ipynb": notebook}
    for name, form in linted.items():
        (folder / name).write_text(form(BUG))
    stopped = machine.commit(folder)
    assert stopped.returncode == 1, stopped.stdout
    if hook == "gradlint":
        for place in ("train.py:11:5", "stub.pyi:11:5", "notebook.ipynb:cell 1:11:5"):
            assert place in stopped.stdout
        assert stopped.stdout.count("live-graph-kept: ") == len(linted)
        assert "old/train.py" not in stopped.stdout
        assert machine.run("git", "rev-list", "--count", "HEAD", cwd=folder).stdout == "1\n"
        for name, form in linted.items():
            (folder / name).write_text(form(MENDED))
    else:
        assert all((folder / name).read_text() != form(BUG) for name, form in linted.items())
        assert (folder / "old" / "train.py").read_text() == BUG
    passed = machine.commit(folder)
    assert passed.returncode == 0, passed.stdout
    assert machine.run("git", "rev-list", "--count", "HEAD", cwd=folder).stdout == "2\n"
