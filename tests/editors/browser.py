"""JupyterLab in a real browser.  Not a part of every test run: it takes half a minute and more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from test_editors import CHECKS, blocks, installed

pytestmark = pytest.mark.timeout(400)


def test_jupyterlab() -> None:
    labs = [path for path in installed("jupyter-lab") if _has_all(path)]
    if not labs:
        pytest.skip("no JupyterLab: `pip install jupyterlab jupyterlab-lsp playwright`")
    browsers = [*installed("chromium"), *installed("google-chrome")]
    if not browsers:
        pytest.skip("no Chromium: `apt install chromium`")
    (configuration,) = blocks("JupyterLab", "json")
    command = [_python(labs[0]), str(CHECKS / "jupyterlab.py"), configuration, browsers[0]]
    ours = os.pathsep.join([os.path.dirname(installed("gradlint")[0]), os.environ.get("PATH", os.defpath)])
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=380, env={**os.environ, "PATH": ours}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _python(script: str) -> str:
    """The Python that a script is installed for."""
    return str(Path(script).with_name("python"))


def _has_all(script: str) -> bool:
    code = "import jupyter_lsp, jupyterlab_lsp, playwright"
    return subprocess.run([_python(script), "-c", code], check=False, capture_output=True).returncode == 0
