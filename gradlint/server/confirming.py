"""Runs `gradlint confirm` for one finding, because the user asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gradlint import sources
from gradlint.report import Report
from gradlint.report.json import finding_fields
from gradlint.rule import Finding, Verdict
from gradlint.server.verdicts import Told
from gradlint.sources import Source

_GRACE = 5.0
"""So many seconds a stopped run has to leave nothing behind."""


class NotConfirmed(Exception):
    """There is no verdict; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """A finding, and how its program is run."""

    finding: Finding
    command: tuple[str, ...]
    folder: str
    """Where the command is run."""
    source: Source | None
    """The text that the finding is in."""


async def run(request: Request, report: Callable[[str], None], log: Callable[[str], None]) -> Told:
    """The verdict.  Raises NotConfirmed.  When cancelled, the run is ended first."""
    if not request.command:
        raise NotConfirmed(
            "say how your program is run: `command` in `[tool.gradlint.confirm]` of pyproject.toml, "
            "or the setting `gradlint.confirm.command`"
        )
    saved = sources.read(request.finding.span.path)
    if request.source is None or not isinstance(saved, Source) or saved.text != request.source.text:
        raise NotConfirmed("save the file first: a run sees what is on disk")
    with tempfile.TemporaryDirectory() as folder:
        findings = Path(folder, "findings.json")
        asked = Report([request.finding], {request.source.path: request.source}, 1)
        findings.write_text(json.dumps([finding_fields(asked, request.finding)]), encoding="utf-8")
        answer = Path(folder, "verdicts.json")
        words = ["confirm", "--findings", str(findings), "--output-format", "json", "--output-file", str(answer)]
        report(" ".join(request.command))
        ended = await _run([*words, "--", *request.command], request.folder, log)
        try:
            judged = json.loads(answer.read_text(encoding="utf-8"))["findings"]
        except (OSError, ValueError):
            raise NotConfirmed(f"nothing could be judged: {ended}") from None
    told = next(iter(judged), None)
    if told is None:
        raise NotConfirmed(f"nothing could be judged: {ended}")
    return Told(Verdict(told["verdict"]), told["reason"])


async def _run(words: list[str], folder: str, log: Callable[[str], None]) -> str:
    """Run gradlint; its last line of complaint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gradlint",
        *words,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    last = ""
    try:
        assert process.stderr is not None  # noqa: S101  # it is a pipe
        async for line in process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            log(text)
            last = text.removeprefix("gradlint: ") or last
        await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
        raise
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return last or f"the run ended with exit code {process.returncode}"
