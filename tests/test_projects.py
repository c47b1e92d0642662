"""The example projects: they run, and the command finds in them exactly what their marks say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECTS = sorted(path.name for path in (ROOT / "fixtures" / "projects").iterdir() if path.is_dir())


@pytest.mark.parametrize("project", PROJECTS)
def test_findings_are_those_of_the_marks(project: str) -> None:
    folder = ROOT / "fixtures" / "projects" / project
    wanted = {
        (str(file), number, rule)
        for file in folder.rglob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1)
        for mark in re.findall(r"# want ([\w-]+(?:, [\w-]+)*)", line)
        for rule in mark.split(", ")
    }
    command = [sys.executable, "-m", "gradlint", "check", "--output-format", "json", str(folder)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    found = {(f["filename"], f["location"]["row"], f["name"]) for f in json.loads(run.stdout)}
    assert found == wanted
    assert (run.returncode, run.stderr) == (1, "")


@pytest.mark.parametrize("project", PROJECTS)
def test_projects_run_and_say_nothing(project: str) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-B", "-W", "error", "train.py"]
    run = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT / "fixtures" / "projects" / project
    )
    assert (run.returncode, run.stderr) == (0, "")
