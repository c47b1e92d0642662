"""Runs many small programs under observation: torch is imported once, and each program runs in a fork of this process.

`python forks.py jobs.json` takes a list of jobs: `plan` (a file), `argv`, `cwd`, and `environments`, one a rank.  What
a program prints goes to `log` beside its plan.  It says on its standard output which jobs ran past their time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

CHILD = Path(__file__).parent.parent / "gradlint" / "record" / "child"
SECONDS = 60


def main() -> None:
    jobs: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    _load()
    running: dict[int, tuple[int, float]] = {}
    waiting = [(at, job, extra) for at, job in enumerate(jobs) for extra in job["environments"]]
    waiting.reverse()
    while waiting or running:
        # Ranks of one job wait for each other: all of them are started.
        while waiting and (len(running) < (os.cpu_count() or 1) or waiting[-1][0] in {n for n, _ in running.values()}):
            at, job, extra = waiting.pop()
            running[_fork(job, extra)] = at, time.monotonic() + SECONDS
        process, _ = os.waitpid(-1, os.WNOHANG)
        if process:
            running.pop(process, None)
            continue
        for late, (at, until) in running.items():
            if time.monotonic() > until:
                os.kill(late, signal.SIGKILL)
                print(jobs[at]["argv"])
        time.sleep(0.005)


def _load() -> None:
    """Import torch, what torch imports late, and the child."""
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    spec = importlib.util.spec_from_file_location(
        "_gradlint_child", CHILD / "__init__.py", submodule_search_locations=[str(CHILD)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["_gradlint_child"] = package
    spec.loader.exec_module(package)
    importlib.import_module("_gradlint_child.start")
    importlib.import_module("_gradlint_child.install")


def _fork(job: dict[str, Any], extra: dict[str, str]) -> int:
    process = os.fork()
    if process:
        return process
    try:
        os.chdir(job["cwd"])
        os.environ.update(extra)
        log = os.open(Path(job["plan"]).with_name("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = [str(CHILD), job["plan"], *job["argv"]]
        sys.modules["_gradlint_child.start"].main()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
