"""Real reports, validated by the SARIF Multitool: it knows rules of the standard, and of GitHub, that no schema says.

    npm install @microsoft/sarif-multitool-linux@5.7.0

It is looked for in `node_modules` of the checkout, and where the variable `SARIF_MULTITOOL` says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradlint.confirmation import Confirmation
from gradlint.report import Report, sarif
from gradlint.rule import Because, Finding, Judgement, Verdict
from gradlint.sources import Source
from gradlint.trace import Span

ROOT = Path(__file__).parent.parent
PROJECTS = sorted(path for path in (ROOT / "fixtures" / "projects").iterdir() if path.is_dir())
INSTALLED = ROOT / "node_modules" / "@microsoft" / "sarif-multitool-linux" / "Sarif.Multitool"
KNOWN = {
    # There is no page of the tool on the net that could be named.
    "SARIF2005",
    # A finding in a notebook names its file alone: a cell has no line that a reader of the `.ipynb` could count.
    "SARIF2017",
}

Validate = Callable[[Path], set[str]]


@pytest.fixture
def validate(tmp_path: Path) -> Validate:
    """What the Multitool says of a report, errors and warnings: the codes of its rules."""
    tool = Path(os.environ.get("SARIF_MULTITOOL") or INSTALLED)
    if not tool.is_file():
        pytest.skip("the SARIF Multitool is not installed")
    tool.chmod(tool.stat().st_mode | 0o100)

    def said(report: Path) -> set[str]:
        output = tmp_path / "validated.sarif"
        command = [
            str(tool),
            "validate",
            str(report),
            "--rule-kind",
            "Sarif;Ghas",
            "--output",
            str(output),
            "--log",
            "ForceOverwrite",
        ]
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        # It exits with 0 whatever it finds, so what it wrote is read.
        assert output.is_file(), told.stdout + told.stderr
        [run] = json.loads(output.read_text(encoding="utf-8-sig"))["runs"]
        assert run["invocations"][0]["executionSuccessful"] is True
        return {result["ruleId"] for result in run["results"]}

    return said


def check(folder: Path, report: Path) -> int:
    """Lints `folder` as a user does; how many findings the report has."""
    command = [sys.executable, "-m", "gradlint", "check", "--isolated", "--output-format", f"sarif:{report}", "."]
    assert subprocess.run(command, check=False, cwd=folder).returncode in (0, 1)
    return len(json.loads(report.read_text(encoding="utf-8"))["runs"][0]["results"])


def test_the_tool_finds_what_is_wrong(validate: Validate, tmp_path: Path) -> None:
    assert check(PROJECTS[0], tmp_path / "good.sarif")
    wrong = (tmp_path / "good.sarif").read_text(encoding="utf-8").replace('"startLine": ', '"startLine": -')
    (tmp_path / "wrong.sarif").write_text(wrong, encoding="utf-8")
    assert "SARIF1007" in validate(tmp_path / "wrong.sarif") - KNOWN


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_projects(validate: Validate, project: Path, tmp_path: Path) -> None:
    assert check(project, tmp_path / "report.sarif")
    assert validate(tmp_path / "report.sarif") <= KNOWN


def test_notebooks_and_files_that_cannot_be_read(validate: Validate, tmp_path: Path) -> None:
    folder = tmp_path / "a b,é{0}"
    folder.mkdir()
    cells = [
        {"cell_type": "code", "source": source}
        for source in ("import torch\nx = torch.ones(3, requires_grad=True).exp()", "  x.add_(1)\n  x.sum().backward()")
    ]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (folder / "broken.ipynb").write_text("{")
    (folder / "broken.py").write_text("x = {\n")
    (folder / "latin.py").write_bytes(b"x = '\xe9'\n")
    assert check(folder, tmp_path / "report.sarif") == 4
    assert validate(tmp_path / "report.sarif") <= KNOWN


def test_no_findings(validate: Validate, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert check(tmp_path / "empty", tmp_path / "report.sarif") == 0
    assert validate(tmp_path / "report.sarif") <= KNOWN


def test_verdicts(validate: Validate, tmp_path: Path) -> None:
    span = Span("net.py", 2, 5, 2, 11)
    chain = (Because(Span("net.py", 1, 1, 1, 2), "kept here"), Because(span, "changed [here]"))
    finding = Finding("saved-tensor-mutated", "GL201", "error", span, "`y` is changed", chain, "write `y = y + 1`")
    judgements = [Judgement(finding, verdict, "it ran", chain[::-1], {"grad": 0.5}, "so") for verdict in Verdict]
    told = Confirmation(
        report=Report([finding], {"net.py": Source("net.py", "y\n    y += 1\n")}, 1, ["a warning"]),
        command="python train.py",
        judgements=judgements,
        seen=judgements[:1],
        gradients=None,
        steps=2,
        ended="exited with 0",
        notes=("a note",),
    )
    (tmp_path / "report.sarif").write_text(sarif.render_confirmation(told), encoding="utf-8")
    assert validate(tmp_path / "report.sarif") <= KNOWN
