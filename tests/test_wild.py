"""Real bugs from public reports: each is found where its labels say, and its repair is left alone.

`fixtures/wild/README.md` says what a case is; `fixtures/reports` holds more of them, without the programs that prove
them.  MISSED.txt and UNLABELLED.txt in each admit what is not so yet.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradlint.lint import lint
from gradlint.rules import rules
from gradlint.sources import Source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parent.parent / "fixtures"
WILD, REPORTS = FIXTURES / "wild", FIXTURES / "reports"
METAS = [*sorted(WILD.glob("*/meta.toml")), *sorted(REPORTS.glob("*/meta.toml"))]
CASES = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in METAS}
FOLDERS = {path.parent.name: path.parent for path in METAS}
ASKED = [rule for rule in rules() if rule.page.severity != "info"]
BUGS = [case for case, meta in CASES.items() if meta["class"] != "innocent"]

Place = tuple[str, int, str]
"""A file's name, a line, a rule's name."""


def entries(name: str) -> set[str]:
    """The lines of a list, without comments."""
    text = "".join((corpus / name).read_text(encoding="utf-8") for corpus in (WILD, REPORTS))
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line}


MISSED = entries("MISSED.txt")
UNLABELLED = entries("UNLABELLED.txt")


@functools.cache
def findings(case: str) -> frozenset[Place]:
    files = [path for path in sorted(FOLDERS[case].glob("*.py")) if path.name != "oracle.py"]
    found = lint([Source(f"{case}/{path.name}", path.read_text(encoding="utf-8")) for path in files], ASKED)
    return frozenset((Path(one.span.path).name, one.span.line, one.name) for one in found)


def labels(meta: dict[str, Any]) -> set[tuple[str, int]]:
    """Where a finding on the bad files of a case may start."""
    files = {"bad.py": meta, **meta.get("files", {})}
    return {(name, line) for name, of in files.items() for line in [*of["lines"], *of.get("also_ok", [])]}


@pytest.mark.parametrize("case", CASES)
def test_correct_code_is_left_alone(case: str) -> None:
    assert [place for place in sorted(findings(case)) if "bad" not in place[0]] == []


@pytest.mark.parametrize("case", BUGS)
def test_bug_is_found(case: str, record_property: Callable[[str, object], None]) -> None:
    found = any((name, line) in labels(CASES[case]) for name, line, _ in findings(case))
    if case in MISSED:
        record_property("missed", case)
        assert not found, "no longer missed: drop it from MISSED.txt"
    else:
        assert found, f"missed; said: {sorted(findings(case))}"


@pytest.mark.parametrize("case", BUGS)
def test_nothing_else_is_said(case: str, record_property: Callable[[str, object], None]) -> None:
    allowed = {entry for entry in UNLABELLED if entry.startswith(f"{case}/")}
    for entry in allowed:
        record_property("false", entry.split()[-1])
    labelled = labels(CASES[case])
    said = {
        f"{case}/{name}:{line} {rule}"
        for name, line, rule in findings(case)
        if "bad" in name and (name, line) not in labelled
    }
    assert sorted(said - allowed) == []
    assert sorted(allowed - said) == [], "no longer said: drop it from UNLABELLED.txt"


def test_lists_name_cases() -> None:
    assert set(BUGS) >= MISSED
    assert set(BUGS) >= {entry.split("/")[0] for entry in UNLABELLED}


def test_torch_agrees() -> None:
    """Every bad file shows its symptom under torch, and no good file does."""
    command = [sys.executable, str(WILD / "run_all.py")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    failed = [line for line in run.stdout.splitlines() if not line.startswith("ok ")]
    assert run.returncode == 0, "\n".join([*failed, run.stderr[-2000:]])
    proved = sum(folder.parent == WILD for folder in FOLDERS.values())
    assert run.stdout.splitlines()[-1] == f"{proved} of {proved} ok"
