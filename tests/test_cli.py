"""The command from outside: exit codes, selection, configuration, faults."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)

CLEAN = "x = 1\n"
ERROR = "x += 1  # find saved-tensor-mutated changed\n"
WARNING = "x += 1  # find quantized-in-place rounded\n"
INFO = "x += 1  # find needless-retain kept\n"
DROPPED = "x.abs()  # find dropped-result dropped\n"


def names(out: str) -> list[str]:
    """The rule names of a concise report, in order."""
    return [line.split(" ")[2] for line in out.splitlines()[:-1]]


@pytest.mark.parametrize(
    ("files", "arguments", "code", "says"),
    [
        ({"a.py": CLEAN}, [], 0, "No findings (1 file checked)."),
        ({"a.py": ERROR}, [], 1, "Found 1 error in 1 file (1 file checked)."),
        (
            {"a.py": ERROR + WARNING, "b.py": CLEAN},
            [],
            1,
            "Found 1 error, 1 warning in 1 file (2 files checked).",
        ),
        ({"a.py": WARNING}, [], 1, "Found 1 warning"),
        ({"a.py": INFO}, [], 0, "No findings"),
        ({"a.py": INFO}, ["--extend-select", "GL302"], 1, "Found 1 info in"),
        ({"a.py": ERROR}, ["--exit-zero"], 0, "Found 1 error"),
        ({"a.py": ERROR}, ["--no-cache"], 1, "Found 1 error"),
        ({"a.py": b"\xff = 1\n"}, [], 1, "unreadable-file"),
        ({"a.py": b"x = 1\0\n"}, [], 1, "NUL"),
        ({}, [], 0, "warning: no Python files found"),
        ({"a.txt": ERROR}, ["."], 0, "warning: no Python files found"),
        ({"a.txt": ERROR}, ["a.txt"], 1, "Found 1 error"),
        ({}, ["missing.py"], 2, "no such file or folder: missing.py"),
        ({"a.py": CLEAN}, ["a.py", "missing"], 2, "no such file or folder: missing"),
        ({"a.py": CLEAN}, ["--no-such-option"], 2, "No such option"),
        ({"a.py": CLEAN}, ["--output-format", "xml"], 2, "xml"),
        ({"a.py": CLEAN}, ["--select", "GL999"], 2, "unknown rule `GL999`"),
        ({"a.py": CLEAN}, ["--ignore", "saved-tensor-mutatd"], 2, "did you mean `saved-tensor-mutated`?"),
        ({"a.py": CLEAN}, ["-", "a.py"], 2, "takes no other paths"),
        ({"a.py": CLEAN}, ["-o", "no/such/folder"], 2, "cannot write"),
        ({"a.py": "x  # raise odd\n"}, [], 3, "ZeroDivisionError: odd"),
        ({"a.py": "x  # raise odd\n"}, ["--exit-zero"], 3, "please report it"),
        ({"a.py": "x  # kill\n"}, [], 3, "SIGSEGV"),
        ({"a.py": "x  # exit\n"}, [], 3, "exit code 7"),
        ({"a.py": "x  # recurse\n"}, [], 3, "RecursionError"),
        ({"a.py": "x  # raise odd\n"}, ["--ignore", "internal-error"], 3, "internal-error"),
    ],
)
def test_exit_codes(
    command: Command, files: dict[str, str | bytes], arguments: list[str], code: int, says: str
) -> None:
    command.write(files)
    result = command("check", *arguments)
    assert result.code == code
    assert says in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["dropped-result", "saved-tensor-mutated", "quantized-in-place"]),
        (["--select", "GL2"], ["saved-tensor-mutated", "quantized-in-place"]),
        (["--select", "GL201,dropped_result"], ["dropped-result", "saved-tensor-mutated"]),
        (["--select", "GL201", "--select", "GL105"], ["dropped-result", "saved-tensor-mutated"]),
        (
            ["--select", "ALL"],
            ["dropped-result", "saved-tensor-mutated", "quantized-in-place", "needless-retain"],
        ),
        (["--select", "GL3"], ["needless-retain"]),
        (["--extend-select", "needless-retain", "--ignore", "GL2"], ["dropped-result", "needless-retain"]),
        (["--select", "GL2", "--ignore", "GL206"], ["saved-tensor-mutated"]),
        (["--select", "GL206", "--ignore", "GL2"], ["quantized-in-place"]),
        (["--ignore", "ALL"], []),
        (["--select", "GL201", "--ignore", "saved-tensor-mutated"], []),
    ],
)
def test_selection(command: Command, arguments: list[str], expected: list[str]) -> None:
    command.write({"a.py": DROPPED + ERROR + WARNING + INFO})
    assert names(command("check", "--output-format", "concise", *arguments).out) == expected


@pytest.mark.parametrize(
    ("toml", "arguments", "expected"),
    [
        ('select = ["GL1"]', [], ["dropped-result"]),
        ('ignore = ["GL1"]', [], ["saved-tensor-mutated", "quantized-in-place"]),
        (
            'ignore = ["GL1"]',
            ["--isolated"],
            ["dropped-result", "saved-tensor-mutated", "quantized-in-place"],
        ),
        ('ignore = ["GL1"]', ["--select", "GL105"], ["dropped-result"]),
        ('ignore = ["GL1"]', ["--ignore", "GL206"], ["saved-tensor-mutated"]),
        ('extend-select = ["GL302"]', ["--ignore", "GL1,GL2"], ["needless-retain"]),
        ('exclude = ["a.py"]', [], []),
        ('extend-exclude = ["*.py"]', [], []),
        ('exclude = ["a.py"]', ["a.py", "--select", "GL105"], ["dropped-result"]),
        ('exclude = ["a.py"]', ["a.py", "--force-exclude"], []),
        ('per-file-ignores = { "a.*" = ["GL2"] }', [], ["dropped-result"]),
        ('[tool.gradlint.per-file-ignores]\n"b.py" = ["GL2"]\n"a.py" = ["GL1"]', ["--select", "GL1"], []),
    ],
)
def test_configuration(command: Command, toml: str, arguments: list[str], expected: list[str]) -> None:
    command.write({"a.py": DROPPED + ERROR + WARNING + INFO, "pyproject.toml": f"[tool.gradlint]\n{toml}\n"})
    result = command("check", "--output-format", "concise", *arguments)
    assert result.code in (0, 1)
    assert names(result.out) == expected


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (
            "[tool.gradlint]\nselct = []",
            "pyproject.toml:2: unknown key `selct` in [tool.gradlint]; did you mean `select`?",
        ),
        ("[tool.gradlint]\nx = 1\nselect = 3", "pyproject.toml:2: unknown key `x` in [tool.gradlint]"),
        (
            '[tool.gradlint]\n\nselect = "GL1"',
            "pyproject.toml:3: `select` in [tool.gradlint] must be a list of strings",
        ),
        (
            "[tool.gradlint]\nignore = [1]",
            "pyproject.toml:2: `ignore` in [tool.gradlint] must be a list of strings",
        ),
        ("[tool.gradlint]\nper-file-ignores = []", "must be a table of lists of strings"),
        ('[tool.gradlint]\nignore = []\nselect = ["GL1", "GL77"]', "pyproject.toml:3: unknown rule `GL77`"),
        (
            '[tool.gradlint.per-file-ignores]\n"x" = ["GL20l"]',
            "pyproject.toml:2: unknown rule `GL20l`; did you mean `GL20",
        ),
        ("tool.gradlint = 1", "pyproject.toml:1: `tool.gradlint` must be a table"),
        ("[tool.gradlint\n", "pyproject.toml:1: not valid TOML"),
        ('[tool.gradlint]\nselect = ["GL1"', "pyproject.toml:2: not valid TOML"),
        (b"[tool.gradlint]\n# \xff\n", "not valid UTF-8"),
    ],
)
def test_configuration_errors(command: Command, toml: str | bytes, says: str) -> None:
    command.write({"a.py": CLEAN, "pyproject.toml": toml})
    result = command("check")
    assert result.code == 2
    assert says in result.err
    assert command("check", "--isolated").code == 0


def test_the_nearest_file_with_our_table_counts(command: Command) -> None:
    command.write(
        {
            "pyproject.toml": "[tool.gradlint]\nselect = ['GL1']\n",
            "near/pyproject.toml": "[tool.gradlint]\nselect = ['GL2']\n",
            "near/other/pyproject.toml": "[tool.ruff]\n",
            "near/other/a.py": DROPPED + ERROR,
        }
    )
    assert names(command("check", "--output-format", "concise", "near/other").out) == ["saved-tensor-mutated"]
    assert names(command("check", "--output-format", "concise", ".").out) == ["dropped-result"]
    stdin = ["-", "--stdin-filename", "near/b.py"]
    result = command("check", "--output-format", "concise", *stdin, stdin=(DROPPED + ERROR).encode())
    assert result.out.startswith("near/b.py:2:1: GL201")


@pytest.mark.parametrize(
    ("stdin", "name", "code", "says"),
    [
        (ERROR.encode(), None, 1, "-:1:1: GL201"),
        (ERROR.encode(), "src/x.py", 1, "src/x.py:1:1: GL201"),
        (b"\xef\xbb\xbf" + ERROR.encode(), "x.py", 1, "x.py:1:1: GL201"),
        (b"", None, 0, "No findings"),
        (b"\xff", "x.py", 1, "x.py:1:1: GL003 unreadable-file"),
        (b"{", "x.ipynb", 1, "x.ipynb:1:2: GL003 unreadable-file"),
        (
            json.dumps({"cells": [{"cell_type": "code", "source": ERROR}]}).encode(),
            "x.ipynb",
            1,
            "x.ipynb:cell 1:1:1:",
        ),
    ],
)
def test_stdin(command: Command, stdin: bytes, name: str | None, code: int, says: str) -> None:
    arguments = ["--stdin-filename", name] if name else []
    result = command("check", "--output-format", "concise", *arguments, "-", stdin=stdin)
    assert result.code == code
    assert says in result.out


def test_output_file(command: Command) -> None:
    command.write({"a.py": ERROR})
    result = command("check", "-o", "out.json", "--output-format", "json")
    assert (result.code, result.out) == (1, "")
    assert json.loads(Path("out.json").read_text())[0]["code"] == "GL201"


@pytest.mark.parametrize("verb", ["kill", "raise", "exit", "recurse"])
def test_faults_stay_with_their_files(command: Command, verb: str) -> None:
    files: dict[str, str | bytes] = {f"f{number}.py": ERROR for number in range(9)}
    files |= {"f2.py": f"x  # {verb}\n", "f7.py": f"x  # {verb}\n"}
    command.write(files)
    result = command("check", "--output-format", "concise")
    assert result.code == 3
    assert names(result.out).count("saved-tensor-mutated") == 7
    faults = [line.split(":")[0] for line in result.out.splitlines() if "internal-error" in line]
    assert faults == ["f2.py", "f7.py"]


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", None),
        (b"\n", None),
        (b"# only this", None),
        (b"\xef\xbb\xbfx = 1\r\n", None),
        (b"x = 1\r\nx = (\r\n", "a.py:2:5: GL001 syntax-error"),
        (b"\x0cdef f():\n\tpass\n", None),
        (b"if x:\n\ty\n        z\n", "GL001"),
        (b"print 'old'\n", "a.py:1:1: GL001 syntax-error"),
        ("x = 'é' +\n".encode(), "a.py:1:10: GL001"),
        (b"\xef\xbb\xbfx = (]\n", "a.py:1:6: GL001"),
        (b"x = 1\0", "GL003"),
        (b"x = '\xff'", "GL003"),
        (b"return\n", None),
        (b"await x\n", None),
        (b"(" * 150 + b")" * 150, None),
        (b"(" * 250 + b")" * 250, "a.py:1"),
        (b"[" * 5_000, "a.py:1"),
        (b"(\n" * 5_000, "GL00"),
        (b"x = " + b"a + " * 400 + b"a", None),
        (b"x = " + b"a + " * 5_000 + b"a", ""),
        (b"x = " + b"not " * 400 + b"a", None),
        (b"x = a" + b".b" * 500, None),
        (b"x = f" + b"(1)" * 200, None),
        (b"if a:\n  b\n" + b"elif a:\n  b\n" * 900, ""),
        (b"".join(b" " * n + b"if a:\n" for n in range(90)) + b" " * 90 + b"b", None),
        (b"".join(b" " * n + b"if a:\n" for n in range(300)) + b" " * 300 + b"b", "GL00"),
        (b"x = " + b"9" * 5_000, ""),
        (b"x = '" + b"a" * 1_000_000 + b"'", None),
        (b"lambda: (yield)\n", None),
        (b"del f(), 1\n", "GL001"),
        (b"\\\n\\\nx = 1\n", None),
        (b"x = 1 \\", "GL001"),
        (b"'''", "GL001"),
    ],
)
def test_odd_sources_are_findings_or_nothing(command: Command, content: bytes, finding: str | None) -> None:
    command.analyse()
    command.write({"a.py": content, "b.py": "(\n"})
    result = command("check", "--output-format", "concise")
    first, *_, summary = result.out.splitlines()
    assert result.code == 1
    assert summary.endswith("(2 files checked).")
    assert "b.py:1:1: GL001 syntax-error" in result.out
    assert first.startswith("b.py" if finding is None else "")
    assert (finding or "") in first


def test_explain(command: Command) -> None:
    for selector in ("dropped-result", "dropped_result", "GL105", "gl105"):
        result = command("explain", selector)
        assert result.code == 0
        assert result.out == "GL105  dropped-result  error\n\n# Dropped result\n\nIt is *lost*.\n"
    assert "GL001" in command("explain", "syntax-error").out
    assert json.loads(command("explain", "GL105", "--output-format", "json").out)["title"] == "Dropped result"
    unknown = command("explain", "droped-result")
    assert (unknown.code, "did you mean `dropped-result`?" in unknown.err) == (2, True)
    assert "means 2 rules" in command("explain", "GL2").err
    command.monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in command("explain", "GL105").out


def test_rules(command: Command) -> None:
    lines = command("rules").out.splitlines()
    assert lines[0].split() == ["GL105", "dropped-result", "error", "Dropped", "result"]
    listed = json.loads(command("rules", "--output-format", "json").out)
    assert [rule["code"] for rule in listed] == [line[:5] for line in lines] == ["GL105", "GL201", "GL206", "GL302"]


def test_doctor(command: Command) -> None:
    result = command("doctor")
    assert result.code == 0
    for word in ("gradlint", "python", "libcst", "torch", "config"):
        assert any(line.startswith(f"{word} ") for line in result.out.splitlines())
    assert "none found" in result.out
    command.write({"pyproject.toml": "[tool.gradlint]\nselect = ['GL1']\n"})
    assert str(Path("pyproject.toml").absolute()) in command("doctor").out
    command.write({"pyproject.toml": "[tool.gradlint]\nselect = 1\n"})
    result = command("doctor")
    assert (result.code, "`select`" in result.err) == (2, True)


def test_the_other_distribution_is_named(command: Command, tmp_path: Path) -> None:
    """A foreign `gradlint` beside ours: no command but doctor goes on, and both say how to mend it."""
    info = tmp_path / "site" / "gradlint-1.1.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gradlint\nVersion: 1.1.7\n")
    command.monkeypatch.syspath_prepend(str(info.parent))
    assert [other.version for other in metadata.distributions(name="gradlint")] == ["1.1.7"]
    command.write({"a.py": CLEAN})
    for arguments in (["check"], ["rules"], ["doctor"]):
        result = command(*arguments)
        assert result.code == 2
        assert "pip uninstall --yes gradlint\n" in result.err
        assert "1.1.7" in result.err
        assert bool(result.out) == (arguments == ["doctor"])
    assert command("--version").code == 0


def test_what_escapes_is_told_without_a_traceback(command: Command) -> None:
    def broken() -> None:
        raise KeyError("page")

    command.monkeypatch.setattr("gradlint.run.rules", broken)
    result = command("check")
    assert result.code == 3
    assert "internal error: KeyError: 'page'" in result.err
    assert "please report it" in result.err


def test_python_interface(command: Command) -> None:
    import gradlint

    command.write({"a.py": ERROR})
    assert [(type(finding), finding.span.line) for finding in gradlint.check("a.py")] == [(gradlint.Finding, 1)]
    with pytest.raises(ValueError, match="no such file"):
        gradlint.check(Path("missing.py"))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = gradlint.no_such_name
    assert gradlint.__version__ == metadata.version("gradlint-torch")


def test_help_names_every_command(command: Command) -> None:
    result = command("--help")
    assert result.code == 0
    for word in ("check", "explain", "rules", "doctor", "--version"):
        assert word in result.out
    assert command().code == 2
    assert sys.argv == ["gradlint"]
