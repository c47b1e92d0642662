"""Which files are read, and what becomes of their bytes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gradlint import notebook, sources
from gradlint.notebook import Cell
from gradlint.rule import Finding
from gradlint.sources import Excludes, Source
from gradlint.text import comments

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)


def found(*paths: str, force: bool = False) -> list[str]:
    """The files under `paths`, with the default excludes."""
    return sources.find(paths, Excludes(Path.cwd(), force=force))[0]


@pytest.mark.parametrize(
    ("files", "given", "expected"),
    [
        (["b.py", "a.py", "c.pyi", "d.ipynb", "e.txt", "f.pyc"], ["."], ["a.py", "b.py", "c.pyi", "d.ipynb"]),
        (["p/b.py", "p/a.py", "a.py"], ["p", "a.py"], ["a.py", "p/a.py", "p/b.py"]),
        (["p/a.py"], ["p", "./p/a.py", "p/../p"], ["p/a.py"]),
        (
            ["build/a.py", "x/dist/a.py", ".venv/lib/a.py", "x/site-packages/a.py", ".hid/a.py"],
            ["."],
            [".hid/a.py"],
        ),
        (["build/a.py", "build/x/build/b.py"], ["build"], ["build/a.py"]),
        (["build/a.py"], ["build/a.py"], ["build/a.py"]),
        (["building/a.py", "build.py"], ["."], ["build.py", "building/a.py"]),
        (["script", "a.txt"], ["script", "a.txt"], ["a.txt", "script"]),
        ([], ["."], []),
    ],
)
def test_discovery(command: Command, files: list[str], given: list[str], expected: list[str]) -> None:
    command.write(dict.fromkeys(files, ""))
    assert found(*given) == expected


def test_force_exclude(command: Command) -> None:
    command.write(dict.fromkeys(["build/a.py", "a.py"], ""))
    assert found("build/a.py", "a.py", force=True) == ["a.py"]
    assert found("build", force=True) == []


def test_absolute_paths_stay_absolute(command: Command, tmp_path: Path) -> None:
    command.write({"p/a.py": "", "p/venv/b.py": ""})
    assert found(str(tmp_path / "p")) == [str(tmp_path / "p/a.py")]
    assert sources.find([str(tmp_path / "p")], Excludes(tmp_path / "elsewhere"))[0] == [str(tmp_path / "p/a.py")]


def test_links(command: Command) -> None:
    command.write({"real/a.py": "", "outside/b.py": ""})
    Path("real/loop").symlink_to("..")
    Path("real/self").symlink_to("self")
    Path("real/self.py").symlink_to("self.py")
    Path("real/dangling.py").symlink_to("nowhere.py")
    Path("real/again.py").symlink_to("a.py")
    Path("real/linked.py").symlink_to("../outside/b.py")
    Path("entrance").symlink_to("real")
    assert found("real") == ["real/a.py", "real/linked.py"]
    assert found("entrance") == ["entrance/a.py", "entrance/linked.py"]


@pytest.mark.parametrize(
    "ignores",
    [
        {".gitignore": "b/\n"},
        {".gitignore": "/a.py\n"},
        {".gitignore": "*.py\n!a.py\n"},
        {".gitignore": "b/\n!b/a.py\n"},
        {".gitignore": "b/*\n!b/a.py\n"},
        {".gitignore": "b/**/a.py\n"},
        {".gitignore": "a.py\n", "b/.gitignore": "!a.py\n"},
        {"b/.gitignore": "/a.py\nd\n"},
        {"b/c/.gitignore": "*\n"},
        {".gitignore": "# a.py\n\\#odd.py\nodd name.py\n"},
        {".git/info/exclude": "a.py\n", ".gitignore": "!/a.py\n"},
        {".gitignore": b"\xff\xfe\na.py\n"},
        {".gitignore": "[a-\n"},
        {".gitignore": "\ufeffa.py\r\n"},
    ],
)
def test_gitignore_is_read_as_git_reads_it(command: Command, ignores: dict[str, str | bytes]) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    files = ["a.py", "b/a.py", "b/c/a.py", "b/c/d.py", "b/d/a.py", "e/a.py", "#odd.py", "odd name.py"]
    command.write(dict.fromkeys(files, ""))
    command.write(ignores)
    listing = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "-o", "--exclude-standard", "*.py"]
    git = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    assert found(".") == sorted(filter(None, git), key=lambda path: path.split("/"))
    for folder in ("b", "b/c", "e"):
        inside = [path for path in git if path.startswith(f"{folder}/")]
        assert found(folder) == sorted(inside) or not inside


def test_an_ignored_folder_that_is_named_is_entered(command: Command) -> None:
    Path(".git").mkdir()
    command.write({".gitignore": "b/\n*.gen.py\n", "b/a.py": "", "b/c/a.py": "", "d/x.gen.py": "", "d/y.py": ""})
    assert found("b") == ["b/a.py", "b/c/a.py"]
    assert found("b/c") == ["b/c/a.py"]
    assert found("d") == ["d/y.py"]
    assert found("d/x.gen.py") == ["d/x.gen.py"]


def test_closed_folders_and_files_are_findings(command: Command) -> None:
    command.write({"a.py": "", "closed/b.py": ""})
    scandir = os.scandir

    def guarded(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    command.monkeypatch.setattr(os, "scandir", guarded)
    files, closed = sources.find(["."], Excludes(Path.cwd()))
    assert files == ["a.py"]
    assert [(finding.name, finding.span.path) for finding in closed] == [("unreadable-file", "closed")]
    Path("a.py").unlink()
    gone = sources.read("a.py")
    assert isinstance(gone, Finding)
    assert "No such file" in gone.message


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b"x = 1", "x = 1"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        (b"x = 1\ry = 2\r\n\nz", "x = 1\ny = 2\n\nz"),
        (b"\x0cx = 1\n\x0c\n", "\x0cx = 1\n\x0c\n"),
        (b"# coding: latin-1\nx = '\xe9'\n", "# coding: latin-1\nx = '\u00e9'\n"),
        (
            b"#!/usr/bin/python\n# -*- coding: cp1252 -*-\nx = '\x80'\n",
            "#!/usr/bin/python\n# -*- coding: cp1252 -*-\nx = '\u20ac'\n",
        ),
        ("x = '日本語'\n".encode(), "x = '日本語'\n"),
        (b"x = '\xc2\x85'\nx", "x = '\x85'\nx"),
    ],
)
def test_decoding(content: bytes, text: str) -> None:
    assert sources.decode("x.py", content) == Source("x.py", text)


@pytest.mark.parametrize(
    ("content", "line", "column", "says"),
    [
        (b"x = 1\ny = '\xe9'\n", 2, 6, "0xe9 is not valid UTF-8"),
        (b"\xef\xbb\xbfx\nx\ny = '\xe9'\n", 3, 6, "0xe9 is not valid UTF-8"),
        ("x\ry = '日'".encode() + b"\xe9\n", 2, 8, "0xe9"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, 1, "utf-8"),
        (b"# coding: ascii\nx = '\xe9'\n", 2, 6, "0xe9 is not valid ASCII"),
        (b"# coding: klingon\n", 1, 1, "unknown encoding"),
        (b"# coding: rot13\nk = 1\n", 1, 1, "not what its encoding says"),
        (b"# coding: undefined\nk = 1\n", 1, 1, "not what its encoding says"),
        (b"# coding: utf-8\n\xff\n", 2, 1, "0xff"),
        ("x = 1\n".encode("utf-16"), 1, 1, "UTF-16"),
        (b"x = 1\n\nx\0y\n", 3, 2, "NUL"),
        (b"# coding: raw_unicode_escape\nx = '\\ud800'\n", 2, 6, "surrogate"),
        (b"\xff", 1, 1, "0xff"),
        (b"x" * (sources.LARGEST + 1), 1, 1, "5,000,001 characters"),
    ],
)
def test_undecodable(content: bytes, line: int, column: int, says: str) -> None:
    finding = sources.decode("x.py", content)
    assert isinstance(finding, Finding)
    assert (finding.name, finding.code, finding.span.line, finding.span.column) == (
        "unreadable-file",
        "GL003",
        line,
        column,
    )
    assert says in finding.message


def cell(source: object, kind: str = "code") -> dict[str, object]:
    """A notebook's cell."""
    return {"cell_type": kind, "source": source, "metadata": {}}


def test_notebook_places() -> None:
    cells = [
        cell("# Title", "markdown"),
        cell(["a = 1\n", "b = 2"]),
        cell("%%bash\nls"),
        cell([]),
        cell("c = 3\n"),
    ]
    source = sources.decode("n.ipynb", json.dumps({"cells": cells}).encode())
    assert source == Source("n.ipynb", "a = 1\nb = 2\n\n\nc = 3\n", (Cell(2, 1, 2), Cell(3, 3, 2), Cell(5, 5, 1)))
    assert [source.place(line) for line in (1, 2, 3, 5)] == [(2, 1), (2, 2), (3, 1), (5, 1)]
    assert Source("x.py", "").place(7) == (None, 7)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a notebook: Expecting value"),
        (b'{"cells": [\n{"cell_type": "code",}]}', "not a notebook"),
        (b"[]", "no list of cells"),
        (b'{"worksheets": []}', "no list of cells"),
        (b'{"cells": 3}', "no list of cells"),
        (b"[" * 100_000, "not a notebook"),
        (b"\xff", "0xff"),
        (json.dumps({"cells": [cell("x = '\ud800'")]}).encode(), "surrogate"),
        (json.dumps({"cells": [cell("x = '\0'")]}).encode(), "NUL"),
    ],
)
def test_broken_notebooks(content: bytes, says: str) -> None:
    finding = sources.decode("n.ipynb", content)
    assert isinstance(finding, Finding)
    assert says in finding.message


@pytest.mark.parametrize(
    "document",
    [
        {"cells": []},
        {"cells": [cell("# only text", "markdown"), 3, {}, cell(4), cell([4]), cell("", "code")]},
        {"cells": [cell("x <- 1")], "metadata": {"kernelspec": {"language": "R"}}},
        {"cells": [cell("x = 1")], "metadata": {"language_info": {"name": "julia"}}},
    ],
)
def test_notebooks_without_python(document: dict[str, object]) -> None:
    assert sources.decode("n.ipynb", json.dumps(document).encode()) is None


MAGICS = [
    ("x = 1\n", "x = 1\n"),
    ("%matplotlib inline\nx = 1\n", "pass\nx = 1\n"),
    ("!pip install 'x(\ny = 1\n", "pass\ny = 1\n"),
    ("if a:\n    !ls \\\n      -l\n    y = 1\n", "if a:\n    pass\n\n    y = 1\n"),
    ("x = (a\n     % b)\n", "x = (a\n     % b)\n"),
    ("x = '''\n%no magic\n!none\n'''\n", "x = '''\n%no magic\n!none\n'''\n"),
    ("x = a \\\n% b\n", "x = a \\\n% b\n"),
    ("files = !ls\nfor f in files: pass\n", "files = get_ipython()\nfor f in files: pass\n"),
    ("t = %timeit -o f(x)\n", "t = get_ipython()\n"),
    ("a, b = !ls\n", "a, b = get_ipython()\n"),
    ("%time loss.backward()\n", "pass; loss.backward()\n"),
    ("    %time y = f(x)\n", "    pass; y = f(x)\n"),
    ("%timeit f(x)\n", "pass\n"),
    ("x?\n?x\nx.y??\n", "pass\npass\npass\n"),
    ("x = d['?']\n", "x = d['?']\n"),
    ("x = y  # really?\n", "x = y  # really?\n"),
    ("%%time\nx = 1\n", "pass\nx = 1\n"),
    ("%%capture out\n!ls\nx = 1\n", "pass\npass\nx = 1\n"),
    ("%%bash\nls 'x\n", "\n\n"),
    ("%%writefile a.py\nx = 1\n", "\n\n"),
    ("%%timefold\nx\n", "\n\n"),
    ("x %= 2\nx != y\n", "x %= 2\nx != y\n"),
    ("# '\n!ls\n", "# '\npass\n"),
    ("!ls", "pass"),
    ("x = '\\\n%y'\n", "x = '\\\n%y'\n"),
    ("x: int = !ls\n", "x: int = get_ipython()\n"),
    ("d['a=b'] = %env\n", "d['a=b'] = get_ipython()\n"),
    ("x = y == !z\n", "x = y == !z\n"),
    ("f(x).y[0]?\n%time?\nx*?\n", "pass\npass\npass\n"),
    ("x = '''is it?\nno?'''\n", "x = '''is it?\nno?'''\n"),
    (",f a b\n;f a\n/f\n", "pass\npass\npass\n"),
    ("!ls \\\\\nx\ny\n", "pass\n\ny\n"),
    ("%time for x in y: f(x)\n", "pass\n"),
    ("%time !ls\n", "pass\n"),
    ("%time  f(x)  # timed\n", "pass;  f(x)  # timed\n"),
    ("%%time?\nx = 1\n", "pass\nx = 1\n"),
    ("%%!\nls 'x\n", "\n\n"),
    ("%%time\n%%bash\nls 'x\n", "\n\n\n"),
    ("%%time\n%%capture\n  !ls\n  x = 1\n", "pass\nif 1:\n  pass\n  x = 1\n"),
    ("%%time\npip install x\n", "pass\n\n"),
    ("%%time\n    x = 1\n", "if 1:\n    x = 1\n"),
    ("%%time\n    # nothing\n", "pass\n    # nothing\n"),
    ("  %%time\n  x = 1\n", "  pass\n  x = 1\n"),
    ("\n  %%bash\n  ls 'x\n", "\n\n\n"),
    ("pip install 'torch>2' x\n", "\n"),
    ("\ncd ..\n", "\n\n"),
    ("ls\n", "ls\n"),
    ("time -= 1\n", "time -= 1\n"),
    ("pipe install x\n", "pipe install x\n"),
    ("pip install x\ny = 1\n", "pip install x\ny = 1\n"),
    ("print 'old'\n", "print 'old'\n"),
    (">>> x = 1\n>>> if x:\n...     !ls\n", "    x = 1\n    if x:\n        pass\n"),
    ("In [10]: x = 1\n    ...: y = 2\n", "         x = 1\n         y = 2\n"),
    ("...\nx >>= y\n", "...\nx >>= y\n"),
]


@pytest.mark.parametrize(("source", "masked"), MAGICS)
def test_magics(source: str, masked: str) -> None:
    assert notebook.mask(source) == masked
    assert masked.count("\n") == source.count("\n")


@pytest.mark.parametrize("line", ["%%time", "!ls", "%time x", "x?", "'", "x = (", ">>>", "pip x \\", "    ", "#"])
@pytest.mark.timeout(60)  # Less than a second, unless a pattern tries everything.
def test_long_cells(line: str) -> None:
    long = f"{line}\n" * 20_000
    for source in (long, line * 20_000 + "\n", "x" * 200_000 + "\n", "x = " + "'a' + " * 50_000 + "y\n"):
        masked = notebook.mask(source)
        assert masked.count("\n") == source.count("\n")


def test_what_ipython_reads_is_read() -> None:
    transformers = pytest.importorskip("IPython.core.inputtransformer2", reason="needs IPython to compare with")
    read = 0
    for source, _ in MAGICS:
        try:
            ast.parse(transformers.TransformerManager().transform_cell(source))
        except SyntaxError:
            continue
        found = sources.decode("n.ipynb", json.dumps({"cells": [cell(source)]}).encode())
        assert isinstance(found, Source)
        ast.parse(found.text)
        read += 1
    assert read > len(MAGICS) * 3 // 4


@pytest.mark.parametrize(
    ("cells", "text", "first_lines"),
    [
        (["  %matplotlib inline\nx = 1"], "if 1:\n  pass\nx = 1\n", [2]),
        (["a = 1", "\n  x = 1\n  y = 2", "b = 3"], "a = 1\nif 1:\n\n  x = 1\n  y = 2\nb = 3\n", [1, 3, 6]),
        ([" !pip install \\\n  -q x", "\tx = 1"], "if 1:\n pass\n\nif 1:\n\tx = 1\n", [2, 5]),
        (["    # first\n  x = 1"], "if 1:\n    # first\n  x = 1\n", [2]),
        (["  # only this\n"], "  # only this\n", [1]),
        (["  # first\nx = 1\n"], "  # first\nx = 1\n", [1]),
        (["# first\n  x = 1\n"], "# first\n  x = 1\n", [1]),
        (["  %%bash\n  ls"], "\n\n", [1]),
        (["  %%time\nx = 1"], "if 1:\n  pass\nx = 1\n", [2]),
        ([">>> x = 1"], "if 1:\n    x = 1\n", [2]),
        (["await f()\nasync with x: pass"], "await f()\nasync with x: pass\n", [1]),
    ],
)
def test_indented_cells(cells: list[str], text: str, first_lines: list[int]) -> None:
    source = sources.decode("n.ipynb", json.dumps({"cells": [cell(code) for code in cells]}).encode())
    assert isinstance(source, Source)
    assert source.text == text
    assert [part.first_line for part in source.cells] == first_lines
    assert [source.place(line) for line in first_lines] == [(number, 1) for number in range(1, len(cells) + 1)]


def test_findings_in_indented_cells_keep_their_columns(command: Command) -> None:
    bug = ["x = torch.ones(3, requires_grad=True).exp()", "x.add_(1)", "x.sum().backward()"]
    check = [
        sys.executable,
        "-m",
        "gradlint",
        "check",
        "--isolated",
        "--no-cache",
        "--output-format",
        "json",
        "n.ipynb",
    ]
    for indent in ("", "    "):
        code = "".join(f"{indent}{line}\n" for line in bug)
        command.write({"n.ipynb": json.dumps({"cells": [cell("import torch"), cell(code), cell("y = 1")]})})
        [found] = json.loads(subprocess.run(check, check=False, capture_output=True, text=True).stdout)
        assert (found["name"], found["cell"]) == ("saved-tensor-mutated", 2)
        assert found["location"] == {"row": 2, "column": len(indent) + 1}
        assert found["end_location"] == {"row": 2, "column": len(indent) + 10}
        assert [(link["cell"], link["location"]["row"]) for link in found["because"]] == [(2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x  # a\n# b", [(1, 4, "# a"), (2, 1, "# b")]),
        ("x = '# no'  # yes\n", [(1, 13, "# yes")]),
        ('x = """\n# no\n"""  # yes\n', [(3, 6, "# yes")]),
        ('x = "\\"# no"\n', []),
        ("x = 'open  # broken\n# yes\n", [(1, 12, "# broken"), (2, 1, "# yes")]),
        ('x = """open\n# yes\n', [(2, 1, "# yes")]),
        ("x = (\n# yes\n", [(2, 1, "# yes")]),
        ("'é'  # yes\n", [(1, 6, "# yes")]),
        ("x = '\\\n# no'\n", []),
    ],
)
def test_comments(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert comments(text) == expected
