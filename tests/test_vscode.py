"""The extension for VS Code agrees with the server and the package; `tests/vscode/drive.py` tests it in the editor."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import gradlint

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "editors" / "vscode"
MANIFEST: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
SOURCES = {path.name: path.read_text(encoding="utf-8") for path in (EXTENSION / "src").glob("*.ts")}
PROPERTIES: dict[str, Any] = MANIFEST["contributes"]["configuration"]["properties"]

CLIENT_ONLY = {"gradlint.enable", "gradlint.path", "gradlint.trace.server"}
"""Settings of the extension itself."""


def test_the_version_is_that_of_the_package() -> None:
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    assert MANIFEST["version"] == lock["version"] == lock["packages"][""]["version"] == gradlint.__version__


def test_dependencies_are_pinned() -> None:
    for version in {**MANIFEST["dependencies"], **MANIFEST["devDependencies"]}.values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)


@pytest.mark.parametrize("name", sorted(PROPERTIES.keys() - CLIENT_ONLY))
def test_the_server_reads_what_can_be_set(name: str) -> None:
    language_server = pytest.importorskip("gradlint.server.language_server", reason="needs the `lsp` extra")
    settings = language_server.Settings()
    before = asdict(settings)
    default = PROPERTIES[name]["default"]
    settings.read({"gradlint": {name.removeprefix("gradlint."): ["python"] if default == [] else not default}})
    changed = {key for key, value in asdict(settings).items() if value != before[key]}
    assert len(changed) == 1


def test_what_the_server_reads_can_be_set() -> None:
    language_server = pytest.importorskip("gradlint.server.language_server", reason="needs the `lsp` extra")
    assert len(asdict(language_server.Settings())) == len(PROPERTIES.keys() - CLIENT_ONLY)


def test_the_sources_use_what_the_manifest_declares() -> None:
    read = set(re.findall(r"\.get<[^(]*>\('([\w.]+)'", SOURCES["settings.ts"]))
    told = re.search(r"names = \[(.*?)\]", SOURCES["settings.ts"])
    assert told is not None
    read |= set(re.findall(r"'([\w.]+)'", told[1]))
    assert {f"gradlint.{name}" for name in read} == PROPERTIES.keys()


def test_the_sources_register_what_the_manifest_declares() -> None:
    declared = {command["command"] for command in MANIFEST["contributes"]["commands"]}
    table = re.search(r"const commands: .*? = \{(.*?)\n    \};", SOURCES["commands.ts"], re.DOTALL)
    assert table is not None
    assert {f"gradlint.{name}" for name in re.findall(r"^        (\w+): \(\)", table[1], re.MULTILINE)} == declared


def test_the_sources_execute_what_the_server_offers() -> None:
    actions = pytest.importorskip("gradlint.server.actions", reason="needs the `lsp` extra")
    offered = {actions.EXPLAIN, actions.CONFIRM, actions.FIX_ALL}
    assert set(re.findall(r"server\.execute\('([\w.]+)'", SOURCES["commands.ts"])) == offered
    # The language client registers the server's commands with the editor, where a name can be taken once.
    assert not offered & {command["command"] for command in MANIFEST["contributes"]["commands"]}
    assert f"'{actions.CONFIRM}'" in SOURCES["server.ts"], "the middleware keeps untrusted programs from being run"


def test_a_workspace_that_is_not_trusted_sets_nothing_that_is_run() -> None:
    trust = MANIFEST["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited"
    runs = {name for name, value in PROPERTIES.items() if "array" in value["type"]}
    assert set(trust["restrictedConfigurations"]) == runs


def test_what_the_test_in_the_editor_lacks_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "tests/vscode/drive.py", "--tools", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "npm install code-server@4.139.1 playwright-core@1.65.1\n" in run.stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node with npm")
@pytest.mark.skipif(not (EXTENSION / "node_modules").is_dir(), reason="needs `npm ci` in editors/vscode")
def test_it_is_packed(tmp_path: Path) -> None:
    package = tmp_path / "gradlint.vsix"
    run = subprocess.run(
        ["npm", "run", "--silent", "package", "--", "--out", str(package)],
        cwd=EXTENSION,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    with zipfile.ZipFile(package) as archive:
        names = {name.removeprefix("extension/").lower() for name in archive.namelist()}
    wanted = {"package.json", "readme.md", "license.txt", "dist/extension.js", "dist/third-party-notices.txt"}
    pictures = {f"images/{path.name}" for path in (EXTENSION / "images").iterdir()}
    assert names == {*wanted, *pictures, "extension.vsixmanifest", "[content_types].xml"}
    assert package.stat().st_size < 400_000
