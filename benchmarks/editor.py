"""How long an editor waits for findings: `python -m benchmarks.editor [FILE]...`, from a checkout.

The real server is started, a file is opened, and a letter is typed into names inside its functions, and taken out
again, at random places.  What is measured is the time from the keystroke to the findings, without the pause that the
server makes on purpose before it pushes any.  One libcst parse of the same text follows each keystroke, so that both
see the same machine.  Without a file, about a thousand lines of fixtures are taken.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import keyword
import random
import statistics
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path

import libcst

from gradlint.server.language_server import DEBOUNCE

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from language_client import Client, client  # noqa: E402  # the tests speak to the server by it

EDITS = 60
LINES = 1_000
EDITORS = {"pull": ("visual_studio_code_pull", 0.0), "push": ("visual_studio_code", DEBOUNCE)}
"""Who asks for findings and who is told, and how long the server waits on purpose."""


def assembled() -> str:
    """The text of some fixtures, one after the other."""
    text = ""
    for file in sorted((ROOT / "fixtures" / "wild").rglob("*.py"))[::3]:
        part = file.read_text(encoding="utf-8")
        if text.count("\n") < LINES and "__future__" not in part:
            text += part + "\n\n"
    return text


def places(text: str) -> list[int]:
    """Where a letter makes another name out of one that a function uses."""
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    inside = {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)}
    return [
        starts[token.start[0] - 1] + token.start[1] + 1
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and token.start[0] in inside and not keyword.iskeyword(token.string)
    ]


def typed(text: str, count: int) -> Iterator[tuple[int, int, str]]:
    """Edits: each is taken back before the next one is made."""
    chance = random.Random(5)  # noqa: S311 - no secret
    everywhere = places(text)
    for _ in range(count // 2):
        place = chance.choice(everywhere)
        yield place, place, "q"
        yield place, place + 1, ""


def measure(file: Path, how: str, count: int) -> None:
    """Print how long the findings of one file take."""
    editor, pause = EDITORS[how]
    text = file.read_text(encoding="utf-8")
    waits, parses = [], []
    with client(editor, file.parent) as one:
        uri = one.open(file)
        one.diagnostics(uri)
        for number, edit in enumerate(typed(text, count + 2)):
            began = time.perf_counter()
            one.change(uri, [edit])
            one.diagnostics(uri)
            waited = time.perf_counter() - began - pause
            began = time.perf_counter()
            libcst.parse_module(one.documents[uri].text)
            # The first edit finds what the server has not looked at yet.
            if number >= 2:
                waits.append(waited)
                parses.append(time.perf_counter() - began)
        parse = statistics.median(parses)
        middle, most = statistics.median(waits) / parse, statistics.quantiles(waits, n=20)[-1] / parse
        print(
            f"  {how}: {len(waits)} edits, p50 {middle:.2f}, p95 {most:.2f} libcst parses; {_memory(one)}", flush=True
        )


def _memory(one: Client) -> str:
    """What the server's processes hold, where the system tells."""
    held: dict[int, tuple[int, int]] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError, ValueError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            held[int(fields["Pid"])] = int(fields["PPid"]), int(fields["VmRSS"].split()[0]) // 1024
    family = {one.process.pid}
    while new := {pid for pid, (parent, _) in held.items() if parent in family} - family:
        family |= new
    others = sorted((held[pid][1] for pid in family - {one.process.pid} if pid in held), reverse=True)
    if one.process.pid not in held:
        return "memory not known"
    return f"server {held[one.process.pid][1]} MB, its processes {', '.join(map(str, others))} MB"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.editor", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="what is edited, with its folder around it")
    parser.add_argument("--edits", type=int, default=EDITS, help="how many letters are typed or taken out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [file.resolve() for file in options.files]
        if not files:
            files = [Path(folder) / "training.py"]
            files[0].write_text(assembled(), encoding="utf-8")
        for file in files:
            lines = file.read_bytes().count(b"\n")
            print(f"{file.name}: {lines} lines; the pause of {DEBOUNCE} s before a push is left out")
            for how in EDITORS:
                measure(file, how, options.edits)


if __name__ == "__main__":
    main()
