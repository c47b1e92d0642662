"""One confirmed run: the user's program, run for a few steps, and a verdict on every finding.

This is the only part of gradlint that runs the code it reads, and it does so in a child process, when it is asked to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradlint import gradients, judge, run, sources, suppress
from gradlint.gradients import GradientReport
from gradlint.record.launch import CommandError, Launch, interpreter, substitute
from gradlint.record.read import NO_CUDA, PLACES, Recording, read
from gradlint.record.sandbox import Sandbox
from gradlint.record.supervise import Ended
from gradlint.record.supervise import run as supervise
from gradlint.report import Report
from gradlint.rule import Because, Finding, Judgement, Verdict
from gradlint.sources import Source
from gradlint.trace import Span

CHILD = Path(__file__).parent / "record" / "child"

STEPS = 2
"""By default a run sees a step and what the next one makes of what it left behind."""
TIMEOUT = 300.0
"""Seconds."""


class FindingsError(ValueError):
    """A report of findings that cannot be read; the message names the file."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and what to ask of it."""

    command: Sequence[str] = ()
    paths: Sequence[str] = (".",)
    step: str = ""
    """`file.py:function` instead of a command."""
    steps: int = STEPS
    every: int = 1
    """Gradients are measured at every so many steps."""
    timeout: float = TIMEOUT
    max_memory: int | None = None
    """Bytes, of all processes together."""
    device: str = "auto"
    nproc: int | None = None
    sandbox: Sandbox = Sandbox.AUTO
    seed: int = 0
    python: str | None = None
    findings: str | None = None
    """A report of `gradlint check --output-format json` to judge, instead of linting `paths`."""
    select: Sequence[str] = ()
    prove: bool = False
    """Run again with each confirmed finding left out, and compare gradients."""
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a run said."""

    command: str
    judgements: list[Judgement]
    """The verdict on each finding, in the order of the findings."""
    seen: list[Judgement]
    """What only the run shows: confirmed, where `check` had found nothing."""
    gradients: GradientReport | None
    """None where no backward ran."""
    report: Report
    """The findings with their sources."""
    ended: str
    """How the program ended, as a sentence to follow 'the program'."""
    steps: int
    notes: tuple[str, ...] = ()
    recordings: list[Recording] = field(default_factory=list, repr=False)

    @property
    def confirmed(self) -> list[Judgement]:
        """Every finding that the run confirms, those that only the run shows included."""
        return [j for j in self.judgements if j.verdict is Verdict.CONFIRMED] + self.seen

    @property
    def judged(self) -> bool:
        """Whether the run could say anything: some backward ran."""
        return self.gradients is not None


def confirm(
    command: Sequence[str] | str = (),
    *,
    step: str = "",
    paths: Sequence[str | os.PathLike[str]] = (".",),
    steps: int = STEPS,
    timeout: float = TIMEOUT,
    device: str = "auto",
    on_output: Callable[[str], object] | None = None,
) -> Confirmation:
    """Run a program for a few optimizer steps and judge every finding of `gradlint check` on `paths`.

    `command` is what one types to train (`"python train.py --lr 1"`); `step` names instead a function that gives a
    step, as `file.py:function`: it returns model, optimizer, loss function and batch, or a callable that does a step.
    `timeout` is in seconds.  The program runs in a child process whose writes are contained where the system lets it.

    Raises CommandError for a command that cannot be run, and what `gradlint.check` raises.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    request = Request(words, [os.fspath(p) for p in paths], step, steps=steps, timeout=timeout, device=device)
    return observe(request, on_output)


def announcement(request: Request) -> str:
    """What is about to be run, for how long: said before anything runs."""
    what = f"`{shlex.join(request.command)}`" if request.command else f"`{request.step}`"
    steps = f"{request.steps} step{'s' * (request.steps != 1)}"
    return f"this executes your program: {what}, for {steps}, at most {request.timeout:g} s"


def observe(
    request: Request,
    on_output: Callable[[str], object] | None = None,
    announce: Callable[[str], object] = lambda _: None,
) -> Confirmation:
    """Run `request` and judge.  Raises CommandError, FindingsError, and what `run.lint` raises.

    `announce` is told what is about to be run, once it is known that it can be.
    """
    words = _words(request)
    _launch(request, words, "plan.json")
    report = _findings(request)
    announce(announcement(request))
    with tempfile.TemporaryDirectory(prefix="gradlint-", ignore_cleanup_errors=True) as folder:
        out = os.path.realpath(folder)
        keep = {"keep": os.path.join(out, "gradients.pt")} if request.prove else {}
        found, ended = _run(request, words, report.findings, out, on_output, keep)
        if any(recording.ended == NO_CUDA for recording in found):
            raise CommandError("--device cuda: torch finds no CUDA device here; --device cpu runs such a program, too")
        judgements = judge.judge(report.findings, found)
        extra = _wanted(request, judge.seen(found, judgements))
        fault = judge.in_the_way([*judgements, *extra], found)
        further: list[Recording] = []
        if fault is not None:
            # Behind the first error, the program is seen in a run that leaves its cause out.
            beyond = os.path.join(out, "beyond")
            further, _ = _run(request, words, report.findings, beyond, on_output, _without(fault))
            judgements = judge.beyond(judgements, judge.judge(report.findings, further), fault)
            extra += _wanted(request, judge.seen(further, [*judgements, *extra]))
        if request.prove:
            proofs = _proofs(request, words, report.findings, [*judgements, *extra], out, on_output)
            judgements = [dataclasses.replace(j, proof=proofs.get(id(j), "")) for j in judgements]
            extra = [dataclasses.replace(j, proof=proofs.get(id(j), "")) for j in extra]
    told = max((r for r in (*found, *further) if r.torch), key=lambda r: (r.steps, len(r.trace.events)), default=None)
    command = shlex.join(request.command) if request.command else f"--step {request.step}"
    notes = tuple(dict.fromkeys([*ended.notes, *(note for r in found for note in r.notes)]))
    if told is None and (ended.error or "").endswith("No module named 'torch'"):
        python = _launch(request, words, "plan.json").argv[0]
        notes = (*notes, f"{python} has no torch: --python names the interpreter that has")
    if fault is not None and told in further:
        place = f"{fault.finding.span.path}:{fault.finding.span.line}"
        told.notes.append(f"the program stops at an error; these gradients are of a run without its cause at {place}")
    return Confirmation(
        command=command,
        judgements=judgements,
        seen=extra,
        gradients=gradients.report(told, command) if told is not None and told.losses else None,
        report=_with_sources(report, extra, judgements),
        ended=ended.sentence,
        steps=told.steps if told is not None else 0,
        notes=notes,
        recordings=found,
    )


def _wanted(request: Request, seen: list[Judgement]) -> list[Judgement]:
    """What only the run shows, without what the configuration or a comment in the source refuses."""
    wanted = run.wanted_by(_linting(request))
    allowed = {}
    for path in {judgement.finding.span.path for judgement in seen}:
        reading = sources.read(path)
        if isinstance(reading, Source):
            allowed[path] = suppress.read(reading, wanted.catalog.meant)
    return [j for j in seen if wanted.tells(j.finding, allowed.get(j.finding.span.path))]


def _linting(request: Request) -> run.Request:
    return run.Request(paths=request.paths, select=request.select, isolated=request.isolated)


def _proofs(
    request: Request,
    words: list[str],
    findings: Sequence[Finding],
    judgements: list[Judgement],
    out: str,
    on_output: Callable[[str], object] | None,
) -> dict[int, str]:
    """Per confirmed judgement, by `id`, what a run says that leaves its fault out."""
    kept = os.path.join(out, "gradients.pt")
    wanted = [j for j in judgements if j.verdict is Verdict.CONFIRMED and judge.way_without(j.finding)]
    if not wanted or not os.path.exists(kept):
        return {}
    compare = {"compare": kept}
    again, _ = _run(request, words, findings, os.path.join(out, "again"), on_output, compare)
    found = {}
    for number, judgement in enumerate(wanted):
        folder = os.path.join(out, f"without-{number}")
        without, _ = _run(request, words, findings, folder, on_output, {**compare, **_without(judgement)})
        if without and again:
            found[id(judgement)] = judge.proof(without[0], again[0])
    return found


def _without(judgement: Judgement) -> dict[str, object]:
    """What a plan says to leave a fault out."""
    finding = judgement.finding
    path = os.path.realpath(finding.span.path)
    return {"neutralise": {"how": judge.way_without(finding), "path": path, "span": _bytes(path, finding.span)}}


def _findings(request: Request) -> Report:
    if request.findings is None:
        return run.lint(_linting(request))
    try:
        text = Path(request.findings).read_text(encoding="utf-8")
        findings = [_finding(entry) for entry in json.loads(text)]
    except OSError as error:
        raise FindingsError(f"{request.findings}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FindingsError(f"{request.findings}: not a report of `gradlint check --output-format json`") from None
    return Report(findings, {}, len({f.span.path for f in findings}))


def _finding(entry: Mapping[str, Any]) -> Finding:
    return Finding(
        name=entry["name"],
        code=entry["code"],
        severity=entry["severity"],
        span=_span(entry),
        message=entry["message"],
        because=tuple(Because(_span(b), b["message"]) for b in entry.get("because", ())),
        instead=entry.get("instead") or "",
    )


def _span(entry: Mapping[str, Any]) -> Span:
    start, end = entry["location"], entry["end_location"]
    return Span(_shown(entry["filename"]), start["row"], start["column"], end["row"], end["column"])


def _shown(path: str) -> str:
    """The path as people read it: relative where it lies below the working folder."""
    here = os.path.join(os.path.realpath(os.curdir), "")
    full = os.path.realpath(path)
    return full[len(here) :] if full.startswith(here) else path


def _with_sources(report: Report, extra: Sequence[Judgement], judgements: Sequence[Judgement]) -> Report:
    """The report with the source of every file that a judgement points at."""
    known = dict(report.sources)
    for judgement in (*judgements, *extra):
        finding = judgement.finding
        for span in (finding.span, *(b.span for b in (*finding.because, *judgement.because))):
            if span.path not in known:
                reading = sources.read(span.path)
                if isinstance(reading, Source):
                    known[span.path] = reading
    return Report(report.findings, known, report.checked, report.warnings)


def _words(request: Request) -> list[str]:
    if not request.step:
        if not request.command:
            raise CommandError(
                "what to run is missing: write the command after `--`, as in `gradlint confirm -- python train.py`, "
                'or once and for all as `command = ["python", "train.py"]` under [tool.gradlint.confirm]'
            )
        return list(request.command)
    path, _, name = request.step.rpartition(":")
    if request.command:
        raise CommandError("--step says what to run: it takes no command")
    if not path.endswith(".py") or not name.isidentifier():
        raise CommandError(f"--step {request.step}: write it as file.py:function")
    if not os.path.isfile(path):
        raise CommandError(f"--step {request.step}: there is no file {path}")
    return []


def _run(
    request: Request,
    words: list[str],
    findings: Sequence[Finding],
    out: str,
    on_output: Callable[[str], object] | None,
    more: Mapping[str, object],
) -> tuple[list[Recording], Ended]:
    os.makedirs(out, exist_ok=True)
    plan_file = os.path.join(out, "plan.json")
    here = os.path.realpath(os.curdir)
    with open(plan_file, "w", encoding="utf-8") as file:
        json.dump({**plan(request, findings, here, out), **more}, file)
    launch = _launch(request, words, plan_file)
    ended = supervise(
        launch,
        cwd=Path(here),
        timeout=request.timeout,
        max_memory=request.max_memory,
        sandbox=request.sandbox,
        writable=[Path(out), *_temporary(here)],
        finished=lambda: any(name.endswith(".done") for name in os.listdir(out)),
        on_output=on_output,
    )
    return recordings(out), ended


def _temporary(here: str) -> list[Path]:
    """The system's folder for temporary files, which programs name outright; not where the program lies in it."""
    folder = Path(tempfile.gettempdir()).resolve()
    return [] if folder in (Path(here), *Path(here).parents) else [folder]


def _launch(request: Request, words: list[str], plan_file: str) -> Launch:
    runner = (str(CHILD), plan_file)
    environment = dict(os.environ)
    if request.step:
        python = request.python or interpreter(environment)
        return Launch((python, *runner, "--step", request.step), environment)
    return substitute(words, runner, python=request.python, nproc=request.nproc, environment=environment)


def plan(request: Request, findings: Sequence[Finding], here: str, out: str) -> dict[str, Any]:
    """What the child needs to know."""
    flags: dict[str, list[tuple[int, int, int, int, int]]] = {}
    for number, finding in enumerate(findings):
        for place, span in enumerate((finding.span, *(b.span for b in finding.because))[:PLACES]):
            path = os.path.realpath(os.path.join(here, span.path))
            flags.setdefault(path, []).append((number * PLACES + place, *_bytes(path, span)))
    linted = [os.path.realpath(p) for p in request.paths]
    roots = {here, *(p if os.path.isdir(p) else os.path.dirname(p) for p in linted), *map(os.path.dirname, flags)}
    for word in (*request.command, request.step.rpartition(":")[0]):
        if word.endswith(".py") and os.path.isfile(word):
            roots.add(os.path.dirname(os.path.realpath(word)))
    return {
        "out": out,
        "roots": sorted(os.path.join(root, "") for root in roots if os.path.dirname(root) != root),
        "flags": flags,
        "places": PLACES,
        "steps": request.steps,
        "every": request.every,
        "seed": request.seed,
        "device": request.device,
    }


def _bytes(path: str, span: Span) -> tuple[int, int, int, int]:
    """A span with byte offsets from 0 for columns, as Python's own tree counts them."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError:
        lines = []

    def offset(line: int, column: int) -> int:
        if not 0 < line <= len(lines):
            return column - 1
        return len(lines[line - 1].decode("utf-8", "replace")[: column - 1].encode("utf-8"))

    return (span.line, offset(span.line, span.column), span.end_line, offset(span.end_line, span.end_column))


def recordings(folder: str) -> list[Recording]:
    """The recordings of every process of a run, in the order of their ranks."""
    found = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        with path.open(encoding="utf-8", errors="replace") as lines:
            found.append(read(lines, _shown))
    return sorted(found, key=lambda r: (r.rank, r.process))
