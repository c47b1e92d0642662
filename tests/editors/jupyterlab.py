"""Opens a notebook in JupyterLab with a real browser and checks what is underlined in its cells.

`python jupyterlab.py CONFIGURATION CHROMIUM`, with the Python that JupyterLab, jupyterlab-lsp and playwright are
installed for; CONFIGURATION is the text of the `jupyter_server_config.json` to be tested.  Ends with an error where
something else is shown than the `# want NAME at TEXT` marks of the cells ask for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page, sync_playwright  # type: ignore[import-not-found, unused-ignore]

CELLS = [
    "import torch\n\nx = torch.ones(3, requires_grad=True)\ny = x.exp()",
    "label = '🔥é'; y.add_(1)  # want saved-tensor-mutated at y.add_(1)",
    "y.sum().backward()\n\n\ndef f(t: torch.Tensor) -> None:\n    t.abs()  # want dropped-result at t.abs()",
]
PATIENCE = 90
"""Seconds; a browser on a machine that does other things is slow."""


def main(configuration: str, chromium: str) -> None:
    """Raises where the notebook does not look as it should."""
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for folder in ("config", "project"):
            (home / folder).mkdir()
        (home / "config" / "jupyter_server_config.json").write_text(configuration, encoding="utf-8")
        code: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        metadata = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        }
        cells = [{**code, "id": f"cell-{number}", "source": cell} for number, cell in enumerate(CELLS)]
        notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        (home / "project" / "a.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            **os.environ,
            "HOME": temporary,
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        }
        options = ["--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"]
        lab = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options, "--IdentityProvider.token=", "--ServerApp.password="],
            cwd=home / "project",
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                page.goto(f"{address}/lab/tree/a.ipynb?reset", timeout=PATIENCE * 1000)
                check(page)
                browser.close()
        finally:
            os.killpg(lab.pid, signal.SIGTERM)
            try:
                lab.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(lab.pid, signal.SIGKILL)
                lab.wait()


def wait_for(address: str) -> None:
    """Returns when the server answers."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{address}/api/status", timeout=5).close()  # noqa: S310 - our own address
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return


def check(page: Page) -> None:
    """Wants just the marked places underlined, also after an edit, and the reason on hover."""
    page.wait_for_selector(".jp-Notebook .cm-content", timeout=PATIENCE * 1000)
    settle(page, "opened")
    # What it is, where the pointer is.
    page.locator(".cm-lintRange", has_text="add_").first.hover()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.cm-tooltip')].some(one => one.textContent.includes('kept for backward'))"
        " || [...document.querySelectorAll('.cm-tooltip')].some(one => one.textContent.includes('changes in place'))",
        timeout=PATIENCE * 1000,
    )
    page.mouse.move(5, 5)
    # A repair by hand.
    second = page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1)
    second.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("y = y + 1")
    settle(page, "repaired")
    page.keyboard.press("Control+a")
    page.keyboard.type("y *= 2  # want saved-tensor-mutated at y *= 2")
    settle(page, "broken again")


def settle(page: Page, what: str) -> None:
    """Wants what is underlined to become what is marked."""
    end = time.monotonic() + PATIENCE
    while True:
        texts = page.locator(".jp-Notebook .jp-CodeCell .cm-content").all_inner_texts()
        wanted = [re.findall(r"# want [\w-]+ at (.*)", text) for text in texts]
        shown = page.evaluate(
            """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .cm-content')].map(cell => {
                const parts = [...cell.querySelectorAll('.cm-lintRange-error, .cm-lintRange-warning')];
                const text = parts.map(part => part.textContent).join('');
                return text ? [text] : [];
            })"""
        )
        if shown == wanted and len(texts) == len(CELLS):
            return
        if time.monotonic() > end:
            raise SystemExit(f"{what}: want {wanted}, got {shown}")
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
