"""The command line.  Typer lives here and nowhere else.

Commands import what they need when they run: `--version` and `--help` answer at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.core

import gradlint
from gradlint_torch import clash

if TYPE_CHECKING:
    from gradlint.page import Page
    from gradlint.report import Report

CLEAN, FOUND, USAGE, FAULT = range(4)
"""The exit codes: nothing found, something found, a usage or configuration error, gradlint itself failed."""
INTERRUPTED = 130
"""The exit code of a run that the user stopped, as shells have it."""


class PageFormat(str, Enum):
    """How `explain` and `rules` tell theirs."""

    text = "text"
    json = "json"


app = typer.Typer(
    name="gradlint",
    help="Find the bugs that make a PyTorch model train wrongly and say nothing.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The command `gradlint`.  Exits as `CLEAN`, `FOUND`, `USAGE` and `FAULT` say."""
    for stream in (sys.stdout, sys.stderr):
        # Source text may hold what the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001  # the last stop before a traceback
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        _complain(
            f"internal error: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}); "
            "please report it with the command and the output of `gradlint doctor`"
        )
        sys.exit(FAULT)


def _complain(message: str, kind: str = "error") -> None:
    sys.stderr.write(f"gradlint: {kind}: {message}\n")


def _refuse(message: object) -> NoReturn:
    _complain(str(message))
    raise typer.Exit(USAGE)


def _words(values: list[str] | None) -> list[str]:
    return [word for value in values or () for word in value.replace(",", " ").split()]


def _version(*, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gradlint {gradlint.__version__}\n")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  # its callback answers
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Print the version.",
            is_eager=True,
            callback=lambda wanted: _version(wanted=wanted),
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand != "doctor" and (problem := clash()):
        _refuse(problem)


_Rules = Annotated[
    list[str] | None,
    typer.Option(metavar="RULES", help="Names, codes, prefixes of codes (GL2) or ALL; commas between."),
]


@app.command()
def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATHS]...", help="Files and folders, `-` for stdin.  [default: .]"),
    ] = None,
    select: _Rules = None,
    extend_select: Annotated[
        list[str] | None, typer.Option(metavar="RULES", help="Ask these too, with those asked by default.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="RULES", help="Do not ask these.")] = None,
    output_format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT[:FILE]",
            help="How to tell the findings: full, concise, json, sarif, github, gitlab or junit; "
            "several times, each but one to a file.  [default: full]",
        ),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", "-o", metavar="FILE", help="Write the findings there.")
    ] = None,
    stdin_filename: Annotated[
        str | None, typer.Option(metavar="FILE", help="The name of what is read from stdin.")
    ] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False,
    force_exclude: Annotated[
        bool, typer.Option("--force-exclude", help="Apply `exclude` to the named files too.")
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired, and tell the rest.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print what --fix would change, and write nothing.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Repair also by what could change a correct program.")
    ] = False,
    exit_non_zero_on_fix: Annotated[
        bool, typer.Option("--exit-non-zero-on-fix", help="Exit 1 where something was repaired.")
    ] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit 0 even with findings.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache.")] = False,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=0, show_default=False, help="How many processes lint.  [default: as many as pay]"
        ),
    ] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what was not followed to its end.")] = False,
) -> None:
    """Lint files and folders.

    Exits 0 with no findings, 1 with findings, 2 on a usage or configuration error, 3 where gradlint failed, 130
    where it was interrupted, with what was found so far.  With --fix it is what is left that counts, with --diff
    whether there is anything to change.
    """
    from gradlint import repair, run
    from gradlint.config import ConfigError
    from gradlint.faults import INTERNAL
    from gradlint.report import outputs
    from gradlint.selection import Unknown
    from gradlint.sources import PathMissing

    try:
        asked = outputs.wanted(output_format or (), output_file)
    except outputs.OutputError as error:
        _refuse(error)
    given = paths or ["."]
    if run.STDIN in given and len(given) > 1:
        _refuse("`-` reads one file from stdin and takes no other paths")
    request = run.Request(
        paths=given,
        select=_words(select),
        extend_select=_words(extend_select),
        ignore=_words(ignore),
        isolated=isolated,
        force_exclude=force_exclude,
        stdin=sys.stdin.buffer.read() if given == [run.STDIN] else None,
        stdin_filename=stdin_filename or run.STDIN,
        jobs=jobs,
        cache=not no_cache,
    )
    try:
        with contextlib.closing(_Progress()) as progress:
            linted = run.Run.of(request)
            report = linted.report(progress.show)
        repaired = repair.repair(linted, report, unsafe=unsafe_fixes, make=fix or diff)
        report = repaired.report
    except (PathMissing, ConfigError, Unknown) as error:
        _refuse(error)
    for warning in report.warnings:
        _complain(warning, "warning")
    for entry in report.cut if verbose else ():
        _complain(f"{entry} used up its budget; what is left of it stays unknown", "note")
    if report.unlinted:
        files = "1 file was" if report.unlinted == 1 else f"{report.unlinted} files were"
        _complain(f"interrupted: {files} not linted", "warning")
    names = {finding.name for finding in report.findings}
    found = bool(names)
    if diff:
        _bytes(repaired.diff())
        sys.stderr.write(f"{repaired.outlook()}\n")
        found = bool(repaired.files)
    else:
        if fix and request.stdin is not None:
            _bytes(repaired.content(request.stdin_filename, request.stdin))
        failed = [*repaired.write()] if fix and request.stdin is None else []
        with contextlib.redirect_stdout(sys.stderr if fix and request.stdin is not None else sys.stdout):
            for output in asked:
                _tell(report, output.format, output.file)
        for problem in failed:
            _complain(str(problem))
        if failed:
            raise typer.Exit(USAGE)
    if report.unlinted:
        raise typer.Exit(INTERRUPTED)
    if INTERNAL.name in names:
        raise typer.Exit(FAULT)
    if fix and repaired.files and exit_non_zero_on_fix:
        raise typer.Exit(FOUND)
    raise typer.Exit(FOUND if found and not exit_zero else CLEAN)


class _Progress:
    """A bar on the terminal's standard error, for runs of more than a second; nothing elsewhere."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._bar: Any = None

    def show(self, done: int, total: int) -> None:
        if not sys.stderr.isatty() or time.monotonic() - self._since < 1:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.add_task("linting")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _tell(report: Report, output_format: str, file: Path | None) -> None:
    import importlib

    if output_format == "full" and file is None and _colourful():
        from gradlint.report import full

        _colour(full.pieces(report))
        return
    _out(importlib.import_module(f"gradlint.report.{output_format}").render(report), file)


def _colour(pieces: Iterable[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(*pieces, end="")
    Console(highlight=False, emoji=False, markup=False).print(text, soft_wrap=True, end="")


def _bytes(content: bytes) -> None:
    """Print what has an encoding and line ends of its own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _out(text: str, file: Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
    else:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        _refuse(f"cannot write {file}: {error.strerror}")


def _colourful() -> bool:
    """Whether standard output shows colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


class ConfirmFormat(str, Enum):
    """How `confirm` tells its verdicts."""

    text = "text"
    json = "json"
    sarif = "sarif"


class Device(str, Enum):
    """Where a confirmed program runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class SandboxChoice(str, Enum):
    """Whether the writes of a confirmed program are contained."""

    auto = "auto"
    off = "off"


class _BeforeCommand(typer.core.TyperCommand):
    """Keeps what follows `--` apart: it is the user's command, whatever its options are called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split off the command."""
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Show where the command goes."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] [PATHS]... -- COMMAND...")


@app.command(cls=_BeforeCommand)
def confirm(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATHS]...", help="Files and folders whose findings are judged.  [default: .]"),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps to look at.  [default: 2]")] = None,
    every: Annotated[int, typer.Option(min=1, help="Measure gradients at every so many steps.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds until the run is ended.  [default: 300]")
    ] = None,
    max_memory: Annotated[
        float | None,
        typer.Option(metavar="GB", help="Memory at which the run is ended, of all its processes together."),
    ] = None,
    device: Annotated[
        Device, typer.Option(help="`cpu` runs programs that ask for CUDA on the CPU, `cuda` asks for CUDA.")
    ] = Device.auto,
    nproc: Annotated[
        int | None, typer.Option(min=1, help="Run a plain script as so many ranks under torchrun.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="FILE:FUNC", help="A function that makes a step, instead of a command.")
    ] = None,
    sandbox: Annotated[
        SandboxChoice, typer.Option(help="`off` lets the program write where it wants.")
    ] = SandboxChoice.auto,
    seed: Annotated[int, typer.Option(help="The seed of random, numpy and torch.")] = 0,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter that has the program's torch.")
    ] = None,
    findings: Annotated[
        str | None, typer.Option(metavar="FILE", help="Judge the findings of this JSON report.")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Run again without each confirmed fault, and compare the gradients.")
    ] = False,
    select: _Rules = None,
    output_format: Annotated[ConfirmFormat, typer.Option(help="How to tell the verdicts.")] = ConfirmFormat.text,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", "-o", metavar="FILE", help="Write the verdicts there.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with the picture there.")] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False,
) -> None:
    """Run the program for a few steps and give every finding a verdict.  This executes your code.

    Exits 0 with nothing confirmed, 1 with something confirmed, 2 on a usage error, 3 where nothing could be judged.
    """
    from gradlint import config, confirmation
    from gradlint.config import ConfigError
    from gradlint.record.launch import CommandError
    from gradlint.record.sandbox import Sandbox
    from gradlint.record.supervise import NotStarted
    from gradlint.selection import Unknown
    from gradlint.sources import PathMissing

    given = paths or ["."]
    try:
        settings = config.default() if isolated else config.load(given)
        request = confirmation.Request(
            command=context.obj or (() if step else settings.confirm.command),
            paths=given,
            step=step or "",
            steps=steps or settings.confirm.steps or confirmation.STEPS,
            every=every,
            timeout=timeout or settings.confirm.timeout or confirmation.TIMEOUT,
            max_memory=int(max_memory * 1e9) if max_memory is not None else None,
            device=device.value,
            nproc=nproc,
            sandbox=Sandbox(sandbox.value),
            seed=seed,
            python=python,
            findings=findings,
            select=_words(select),
            prove=prove,
            isolated=isolated,
        )
        told = confirmation.observe(request, _pass_on, lambda text: _complain(text, "note"))
    except (CommandError, confirmation.FindingsError, PathMissing, ConfigError, Unknown, NotStarted) as error:
        _refuse(error)
    from gradlint.report import verdicts

    for warning in (*told.report.warnings, *told.notes):
        _complain(warning, "note")
    if html is not None:
        from gradlint.report import html as page

        sources = {path: source.text for path, source in told.report.sources.items()}
        if told.gradients is not None:
            _write(html, page.render(told.gradients, [*told.judgements, *told.seen], sources))
    if output_format is ConfirmFormat.json:
        _out(verdicts.render_json(told), output_file)
    elif output_format is ConfirmFormat.sarif:
        from gradlint.report import sarif

        _out(sarif.render_confirmation(told), output_file)
    elif output_file is None and _colourful():
        _colour(verdicts.pieces(told))
    else:
        _out(verdicts.render(told), output_file)
    if not told.judged:
        _complain(f"nothing could be judged: no backward ran; the program {told.ended}")
        raise typer.Exit(FAULT)
    raise typer.Exit(FOUND if told.confirmed else CLEAN)


def _pass_on(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(metavar="NAME|CODE", help="A rule's name or code.")],
    output_format: Annotated[PageFormat, typer.Option(help="How to print the page.")] = PageFormat.text,
) -> None:
    """Print a rule's page: why it is wrong, what is right, and what the rule does not see."""
    from gradlint.selection import Unknown, catalog

    try:
        page = catalog().page(rule)
    except Unknown as error:
        _refuse(error)
    if output_format is PageFormat.json:
        sys.stdout.write(json.dumps(_fields(page) | {"text": page.text}, indent=2) + "\n")
    elif _colourful():
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console()
        console.print(f"{page.code}  {page.name}  {page.severity}", style="bold", highlight=False)
        console.print(Markdown(page.text))
    else:
        sys.stdout.write(f"{page.code}  {page.name}  {page.severity}\n\n{page.text}")


@app.command("rules")
def list_rules(
    output_format: Annotated[PageFormat, typer.Option(help="How to print the list.")] = PageFormat.text,
) -> None:
    """List the rules: code, name, severity, title."""
    from gradlint.rules import rules

    pages = [rule.page for rule in rules()]
    if output_format is PageFormat.json:
        sys.stdout.write(json.dumps([_fields(page) for page in pages], indent=2) + "\n")
        return
    width = max((len(page.name) for page in pages), default=0)
    for page in pages:
        sys.stdout.write(f"{page.code}  {page.name:<{width}}  {page.severity:<7}  {page.title}\n")


def _fields(page: Page) -> dict[str, str]:
    return {
        "code": page.code,
        "name": page.name,
        "severity": page.severity,
        "fix": page.fix,
        "since": page.since,
        "title": page.title,
    }


@app.command()
def clean() -> None:
    """Remove the cache."""
    from gradlint import cache

    cache.clean()


@app.command()
def server() -> None:
    """Speak the Language Server Protocol over standard input and output, for editors."""
    try:
        from gradlint.server.language_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        _refuse(f'the server needs {error.name}: install "gradlint-torch[lsp]" in {sys.prefix}')
    serve()


@app.command()
def doctor() -> None:
    """Say what gradlint runs on and what is wrong with its installation or configuration."""
    from gradlint.doctor import examine

    lines, problems = examine()
    sys.stdout.write("\n".join(lines) + "\n")
    for problem in problems:
        _complain(problem)
    raise typer.Exit(USAGE if problems else CLEAN)
