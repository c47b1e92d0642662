"""The package as a whole: what it imports, what a wheel of it holds, and what the names in it may be."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHILD = ROOT / "gradlint" / "record" / "child"
PAGES = sorted(path.stem for path in (ROOT / "rules").glob("*.md"))
OURS = sorted([*(ROOT / "gradlint").rglob("*.py"), *(ROOT / "rules").glob("*.py"), ROOT / "gradlint_torch.py"])


def name(path: Path) -> str:
    """The path from the root of the checkout."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever it does so, but for those that only type checkers read."""
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or CHILD in path.parents, f"{name(path)} imports relatively"
            if node.level:
                # The child is a package of another name where it runs, and imports nothing else of ours.
                assert node.level == 1, f"{name(path)} imports what lies outside of the child"
                continue
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        todo.extend(ast.iter_child_nodes(node))


def importers(package: str) -> set[str]:
    """Our files that import `package` or something in it."""
    return {name(path) for path in OURS if package in {module.partition(".")[0] for module in imports(path)}}


def test_torch_lives_in_the_child_and_the_probe() -> None:
    child = {name(path) for path in OURS if CHILD in path.parents}
    assert importers("torch") <= {*child, "gradlint/facts/probe.py"}


def test_the_child_needs_nothing_but_torch() -> None:
    for path in OURS:
        if CHILD in path.parents:
            needed = {module.partition(".")[0] for module in imports(path)}
            assert needed <= {*sys.stdlib_module_names, "torch", "_gradlint_child"}, f"{name(path)} imports {needed}"


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("typer", {"gradlint/cli.py"}),
        ("click", set()),
        ("pygls", {"gradlint/server/diagnostics.py", "gradlint/server/language_server.py"}),
        ("rich", {"gradlint/cli.py"}),
        ("pathspec", {"gradlint/run.py", "gradlint/sources.py"}),
        ("platformdirs", {"gradlint/cache.py"}),
    ],
)
def test_each_dependency_has_a_home(package: str, homes: set[str]) -> None:
    assert importers(package) <= homes


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("gradlint/shadow", r"gradlint\.(?!shadow|facts|trace|program)\w+"),
        ("gradlint/record", r"gradlint\.(?!record|facts|trace)\w+"),
        ("gradlint/facts", r"gradlint\.(?!facts)\w+"),
        ("gradlint/trace.py", r"gradlint\b|libcst|torch"),
        ("gradlint/lint.py", r"os$|io$|pathlib|gradlint\.(cli|run|config|isolate|report)\b"),
        ("rules", r"libcst|torch|gradlint\.(?!rule\b|trace\b|edits\b)\w+"),
    ],
)
def test_rooms_are_apart(room: str, forbidden: str) -> None:
    for path in OURS:
        if name(path).startswith(room):
            wrong = [module for module in imports(path) if re.match(forbidden, module)]
            assert not wrong, f"{name(path)} imports {wrong}"


def test_nothing_has_a_name_that_says_nothing() -> None:
    files = [*OURS, *(ROOT / "tests").rglob("*.py")]
    words = {word for path in files for word in name(path).removesuffix(".py").split("/")}
    assert not words & {"util", "utils", "helper", "helpers", "common", "base", "misc"}


def test_every_rule_is_a_page_and_a_module() -> None:
    assert sorted(path.stem for path in (ROOT / "rules").glob("*.py")) == PAGES


def loaded(*arguments: str) -> set[str]:
    """The top-level packages that the command has imported when it ends."""
    code = (
        "import sys\n"
        "from gradlint.cli import main\n"
        f"sys.argv = ['gradlint', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(run.stdout.rpartition("LOADED ")[2].split())


def test_commands_import_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\nx = torch.ones(3)\n")
    heavy = {"libcst", "rich", "torch", "pygls", "pathspec", "hypothesis", "numpy"}
    assert not loaded("--version") & heavy
    assert not loaded("--help") & heavy
    assert not loaded("doctor") & {"libcst", "torch"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file.write_text("import torch\nx = torch.ones(3)\nx.abs()\n")
    check = ("check", "--isolated", "--output-format", "concise", str(file))
    assert not loaded(*check) & {"torch", "rich", "pygls", "numpy"}
    # The second run knows from the cache what the first one found.
    assert not loaded(*check) & {"torch", "rich", "pygls", "numpy", "libcst", "multiprocessing"}


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, gradlint; print(*(n for n in sys.modules if n.startswith(('gradlint', 'libcst'))))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.split() == ["gradlint"]


def requirements(distribution: str) -> Iterator[metadata.Distribution]:
    """The distributions that `distribution` needs, its own requirements and theirs, without extras."""
    seen: set[str] = set()
    todo = [distribution]
    while todo:
        for requirement in metadata.requires(todo.pop()) or ():
            word = re.match(r"[\w.-]+", requirement)
            assert word
            if "extra ==" in requirement or word[0].lower() in seen:
                continue
            seen.add(word[0].lower())
            try:
                found = metadata.distribution(word[0])
            except metadata.PackageNotFoundError:
                continue  # for another platform or version of Python
            yield found
            todo.append(word[0])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from what the source distribution holds."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], check=True, cwd=ROOT)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")  # our own, and filtered
    source = next(path for path in folder.iterdir() if path.is_dir())
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], check=True, cwd=source)
    return next(folder.glob("*.whl"))


class Environment:
    """A virtual environment with gradlint's dependencies and nothing else; torch is not there."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder)
        self.bin = folder / "bin"
        site = next(folder.glob("lib/python*/site-packages"))
        for distribution in requirements("gradlint-torch"):
            for file in distribution.files or ():
                top = file.parts[0]
                if top not in ("..", "__pycache__") and not (site / top).exists():
                    (site / top).symlink_to(Path(str(distribution.locate_file(top))))

    def pip(self, *arguments: str | Path) -> None:
        """Runs this process's pip on the environment."""
        python = str(self.bin / "python")
        command = [sys.executable, "-m", "pip", "--python", python, "-q", *map(str, arguments)]
        subprocess.run([*command, "--disable-pip-version-check"], check=True)

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "FORCE_COLOR"))}
        program = [str(self.bin / command[0]), *map(str, command[1:])]
        return subprocess.run(program, check=False, capture_output=True, text=True, cwd=cwd, env=clean)


def test_the_wheel_works_where_torch_is_not_installed(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.pip("install", "--no-index", "--no-deps", wheel)
    assert environment.run("python", "-c", "import torch", cwd=tmp_path).returncode == 1

    listed = environment.run("gradlint", "rules", cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert sorted(line.split()[1].replace("-", "_") for line in listed.stdout.splitlines()) == PAGES

    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(3)\nx.abs(\n")
    for command in (["gradlint"], ["gradlint-torch"], ["python", "-m", "gradlint"]):
        checked = environment.run(*command, "check", "a.py", "--output-format", "concise", cwd=tmp_path)
        assert (checked.returncode, checked.stderr) == (1, "")
        assert checked.stdout.startswith("a.py:3:")
    assert "torch     not found" in environment.run("gradlint", "doctor", cwd=tmp_path).stdout


def test_the_wheel_holds_what_it_must(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for page in PAGES:
        assert {f"gradlint/rules/{page}.md", f"gradlint/rules/{page}.py"} <= set(names)
    assert {
        "gradlint/py.typed",
        "gradlint/facts/ops.toml",
        "gradlint/facts/layers.toml",
        "gradlint_torch.py",
    } <= set(names)
    tops = {path.split("/")[0] for path in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gradlint", "gradlint_torch.py"}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the other distribution of the name `gradlint`."""
    wheel = tmp_path_factory.mktemp("foreign") / "gradlint-1.1.7-py3-none-any.whl"
    files = {
        "gradlint/__init__.py": "",
        "gradlint/cli.py": "def main():\n    print('diffusion')\n",
        "gradlint-1.1.7.dist-info/METADATA": "Metadata-Version: 2.1\nName: gradlint\nVersion: 1.1.7\n",
        "gradlint-1.1.7.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "gradlint-1.1.7.dist-info/entry_points.txt": "[console_scripts]\ngradlint = gradlint.cli:main\n",
    }
    files["gradlint-1.1.7.dist-info/RECORD"] = "".join(f"{path},,\n" for path in files)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.mark.parametrize("ours_last", [True, False])
def test_the_other_distribution(wheel: Path, foreign: Path, tmp_path: Path, ours_last: bool) -> None:
    environment = Environment(tmp_path / "venv")
    for file in (foreign, wheel) if ours_last else (wheel, foreign):
        environment.pip("install", "--no-index", "--no-deps", file)
    commands: Sequence[str] = ("gradlint", "gradlint-torch") if ours_last else ("gradlint-torch",)
    for command in commands:
        run = environment.run(command, "check", cwd=tmp_path)
        assert run.returncode == 2
        assert "`gradlint` 1.1.7" in run.stderr
    environment.pip("uninstall", "--yes", "gradlint")
    run = environment.run("gradlint-torch", "check", cwd=tmp_path)
    assert (run.returncode, "files of gradlint-torch are missing" in run.stderr) == (2, True)
    environment.pip("install", "--no-index", "--no-deps", "--force-reinstall", wheel)
    assert environment.run("gradlint", "--version", cwd=tmp_path).returncode == 0
