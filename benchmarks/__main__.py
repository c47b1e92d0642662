"""Measures gradlint beside its peers: `python -m benchmarks [FOLDER]...`, from a checkout.

A machine that does other things has no seconds worth writing down, so everything here is a ratio of user CPU time
between two commands that were run in turns, several times, and the fastest of each counts.  Peers are looked for on
the path and beside this interpreter; what is not installed is said and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benchmarks import growth
from gradlint.isolate import cores

ROOT = Path(__file__).parent.parent
ROUNDS = 3
TORCH = ("torch/nn", "torch/optim", "torch/distributed")
"""The packages of torch that are measured, where torch is installed."""

_AST = "import ast, sys, pathlib\nfor f in pathlib.Path(sys.argv[1]).rglob('*.py'): ast.parse(f.read_bytes())"
_CST = (
    "import libcst, sys, pathlib\nfor f in pathlib.Path(sys.argv[1]).rglob('*.py'): libcst.parse_module(f.read_bytes())"
)


class Cost(NamedTuple):
    """What a command used."""

    cpu: float
    wall: float
    memory: int
    """In MB, of the largest of its processes."""


def cost(command: list[str], cache: str) -> Cost | None:
    """What one run cost; None where it failed to run at all.  It runs in the cache's folder, where no module is."""
    environment = os.environ | {
        "XDG_CACHE_HOME": cache,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "ignore",
    }
    code = (
        "import json, resource, subprocess, sys, time\n"
        "before = time.monotonic()\n"
        "run = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, time.monotonic() - before, used.ru_maxrss // 1024]))\n"
        "sys.exit(run.returncode if run.returncode not in range(64) else 0)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *command], check=False, capture_output=True, text=True, env=environment, cwd=cache
    )
    return Cost(*json.loads(run.stdout)) if run.returncode == 0 else None


def found(name: str) -> str | None:
    """The command `name`, on the path or beside this interpreter."""
    here = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), here]))


def version(command: str) -> str:
    """The version that a command says it has, '' where it does not."""
    run = subprocess.run([command, "--version"], check=False, capture_output=True, text=True)
    said = re.search(r"\d+(?:\.\d+)+\w*", run.stdout + run.stderr)
    return said[0] if run.returncode == 0 and said is not None else ""


def machine() -> str:
    """What the numbers are of."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = platform.platform()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{date.today().isoformat()}, {cores()} cores, {system}, {python}"


def contestants(folder: Path) -> Iterator[tuple[str, list[str] | None]]:
    """Every command to measure on a folder, the first as the measure of the others; None: not installed."""
    check = [sys.executable, "-m", "gradlint", "check", "--isolated", "--output-format", "concise", str(folder)]
    yield "gradlint, cold, one job", [*check, "--no-cache", "--jobs", "1"]
    yield "gradlint, cold, all cores", [*check, "--no-cache"]
    yield "gradlint, warm", check
    peers = {
        "torch-preflight": ["check"],
        "torchfix": [],
        "ruff": ["check", "--isolated", "--quiet"],
        "pylint": ["--disable=all", "--enable=E", "--recursive=y", "--persistent=n"],
    }
    for name, arguments in peers.items():
        command = found(name)
        title = " ".join([name, version(command) if command else "", *arguments])
        yield " ".join(title.split()), [command, *arguments, str(folder)] if command else None
    yield "ast.parse of the same files", [sys.executable, "-c", _AST, str(folder)]
    yield "libcst.parse_module of the same files", [sys.executable, "-c", _CST, str(folder)]


def compare(folder: Path, rounds: int, slow: bool) -> None:
    """Print the table of one folder."""
    files = list(folder.rglob("*.py"))
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    print(f"\n{folder.name}: {len(files)} files, {lines:,} lines")
    print(f"  {'':66}{'CPU':>9}{'wall':>9}{'MB':>7}   of gradlint cold, one job")
    best: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as cache:
        commands = dict(contestants(folder))
        for number in range(rounds):
            for name, command in commands.items():
                if command is None or (number and best.get(name, Cost(0, 0, 0)).wall > 60 and not slow):
                    continue
                if number == 0 and name.endswith("warm"):
                    cost(command, cache)
                spent = cost(command, cache)
                if spent is not None and (name not in best or spent.cpu < best[name].cpu):
                    best[name] = spent
    measure = best["gradlint, cold, one job"]
    for name, command in commands.items():
        if command is None:
            print(f"  {name:66}  not installed")
        elif name not in best:
            print(f"  {name:66}  failed")
        else:
            one = best[name]
            cpu, wall = one.cpu / measure.cpu, one.wall / measure.wall
            print(f"  {name:66}{cpu:>8.3f}x{wall:>8.3f}x{one.memory:>7}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="what to measure on, beside the fixtures and torch")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each command runs")
    parser.add_argument("--only", action="store_true", help="only the folders given")
    parser.add_argument("--slow", action="store_true", help="repeat what takes over a minute too")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        folders = [folder.resolve() for folder in options.folders]
        if not options.only:
            neutral = Path(place) / "fixtures"
            shutil.copytree(ROOT / "fixtures", neutral)
            folders.append(neutral)
            spec = importlib.util.find_spec("torch")
            if spec is not None and spec.origin is not None:
                for name in TORCH:
                    shutil.copytree(Path(spec.origin).parent.parent / name, Path(place) / name)
                folders.append(Path(place) / "torch")
        for folder in folders:
            compare(folder, options.rounds, options.slow)
        if not options.only:
            growth.grow(options.rounds)


if __name__ == "__main__":
    main()
