"""Programs of fixtures, run under observation: what a finding on one of their lines comes to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradlint import confirmation
from gradlint.record.read import Recording
from gradlint.rule import Finding
from gradlint.rules import rules
from gradlint.trace import Span

FORKS = Path(__file__).parent / "forks.py"


@dataclass
class Program:
    """One run to be made."""

    file: Path
    findings: Sequence[Finding] = ()
    arguments: Sequence[str] = ()
    ranks: int = 1
    steps: int = confirmation.STEPS
    recordings: list[Recording] = field(default_factory=list)
    log: str = ""


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
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
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
