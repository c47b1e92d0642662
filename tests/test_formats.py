"""The reports for code hosts and CI servers, read back as those read them; and several of them in one run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from gradlint.report import Report, github, gitlab, junit, outputs
from gradlint.rule import Because, Finding
from gradlint.sources import Source, decode
from gradlint.trace import Span

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)

ROOT = Path(__file__).parent.parent
NET = Source("net.py", "def f(x):\n    y = relu(x)\n    z = 1\n    y += 1\n    return y + z\n")
FINDING = Finding(
    "saved-tensor-mutated",
    "GL201",
    "error",
    Span("net.py", 4, 5, 4, 11),
    "`y` is changed",
    (Because(Span("net.py", 2, 9, 2, 16), "kept here"),),
    "write `y = y + 1`",
)
HOSTILE = (
    "100% of\r\nlines, and: more",
    "::error::not a command",
    "]]></failure><x a='1'>&amp;\"",
    "\x1b[31m\0\udc80\ufffe",
    "日本 \U0001f600",
    "",
)
COMMAND = re.compile(r"::(?P<command>error|warning|notice) (?P<properties>[^\n]*?)::(?P<message>[^\r\n]*)")


def report(*findings: Finding, sources: tuple[Source, ...] = (NET,)) -> Report:
    """A run over `sources` with these findings."""
    return Report(list(findings), {source.path: source for source in sources}, len(sources))


def at(span: Span, code: str = FINDING.code, message: str = FINDING.message) -> Finding:
    """The finding at another place."""
    return dataclasses.replace(FINDING, span=span, code=code, message=message)


def notebook() -> Source:
    """A notebook whose third cell has two lines."""
    cells = [{"cell_type": "markdown", "source": "#"}, *({"cell_type": "code", "source": "a\nx = 1"} for _ in "12")]
    source = decode("n.ipynb", json.dumps({"cells": cells}).encode())
    assert isinstance(source, Source)
    return source


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "repo" / "src")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """What the runner of GitHub Actions makes of a log: command, properties and message of each line."""
    found = []
    for line in text.split("\n"):
        if match := COMMAND.fullmatch(line):
            pairs = (pair.split("=", 1) for pair in match["properties"].split(","))
            properties = {key: unescaped(value, {"%3A": ":", "%2C": ","}) for key, value in pairs}
            found.append((match["command"], properties, unescaped(match["message"], {})))
    return found


def unescaped(text: str, more: dict[str, str]) -> str:
    """The text that the escapes of a workflow command stand for."""
    for escape, meant in {"%0D": "\r", "%0A": "\n", **more, "%25": "%"}.items():
        text = text.replace(escape, meant)
    return text


def test_github() -> None:
    text = github.render(report(FINDING))
    place = {"file": "src/net.py", "line": "4", "endLine": "4", "col": "5", "endColumn": "11"}
    message = "net.py:4:5: GL201 saved-tensor-mutated `y` is changed\nnet.py:2:9: kept here\ninstead: write `y = y + 1`"
    assert commands(text) == [("error", {"title": "saved-tensor-mutated (GL201)", **place}, message)]
    assert text.endswith("\nFound 1 error in 1 file (1 file checked).\n")


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("info", "notice")])
def test_github_levels(severity: str, command: str) -> None:
    assert commands(github.render(report(dataclasses.replace(FINDING, severity=severity))))[0][0] == command


def test_github_places() -> None:
    told = github.render(
        report(
            at(Span("../a b,c:d%.py", 2, 3, 4, 1)),
            at(Span("n.ipynb", 4, 1, 4, 6)),
            at(Span("-", 1, 1, 1, 2)),
            at(Span("../../far.py", 0, 0, 0, 0)),
            sources=(NET, notebook()),
        )
    )
    lines, cell, stdin, far = [(properties, message) for _, properties, message in commands(told)]
    # GitHub takes columns within one line only.
    assert {key: lines[0][key] for key in lines[0] if key != "title"} == {
        "file": "a b,c:d%.py",
        "line": "2",
        "endLine": "4",
    }
    assert {*cell[0]} == {"title", "file"}
    assert cell[1].startswith("n.ipynb:cell 3:2:1: ")
    assert {*stdin[0]} == {"title"}
    assert far[0]["file"] == str(Path("../../far.py").resolve())
    assert far[0]["line"] == far[0]["endLine"] == "1"


@pytest.mark.parametrize("text", HOSTILE)
def test_github_hostile_text(text: str) -> None:
    hostile = dataclasses.replace(
        FINDING,
        message=text,
        because=(Because(FINDING.span, text),),
        instead=text,
        span=FINDING.span._replace(path=f"{text}.py"),
    )
    told = github.render(report(hostile))
    assert [kind for kind, _, _ in commands(told)] == ["error"]
    assert len(told.splitlines()) >= 2
    assert [line for line in re.split(r"[\r\n]+", told) if line.startswith("::")] == [told.split("\n")[0]]


@pytest.mark.parametrize(("count", "says"), [(github.SHOWN, False), (github.SHOWN + 1, True)])
def test_github_says_that_it_shows_only_some(count: int, says: bool) -> None:
    many = [at(Span("net.py", 1, column, 1, column + 1)) for column in range(1, count + 1)]
    warnings = [dataclasses.replace(finding, severity="warning") for finding in many[: github.SHOWN]]
    told = github.render(report(*many, *warnings))
    assert len(commands(told)) == count + github.SHOWN
    assert ("GitHub shows 10 annotations of a kind" in told) is says


# What GitLab documents of its code quality report.
CODE_QUALITY: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": r"^(?!\./)."},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {key: {"type": "integer", "minimum": 1} for key in ("begin", "end")},
                    },
                },
            },
        },
    },
}


def issues(told: Report) -> list[dict[str, Any]]:
    """The issues of a code quality report, each with a fingerprint of its own."""
    text = gitlab.render(told)
    text.encode("ascii")
    found: list[dict[str, Any]] = json.loads(text)
    jsonschema.validate(found, CODE_QUALITY)
    assert len({issue["fingerprint"] for issue in found}) == len(found) == len(told.findings)
    return found


def test_gitlab() -> None:
    [issue] = issues(report(FINDING))
    assert issue["description"] == "`y` is changed\nInstead: write `y = y + 1`"
    assert (issue["check_name"], issue["severity"]) == ("saved-tensor-mutated", "critical")
    assert issue["location"] == {"path": "src/net.py", "lines": {"begin": 4, "end": 4}}
    assert issues(report()) == []
    [cell] = issues(report(at(Span("n.ipynb", 4, 1, 4, 6)), sources=(notebook(),)))
    assert cell["description"].startswith("`y` is changed (cell 3, line 2)\n")
    assert cell["location"]["lines"] == {"begin": 1, "end": 1}
    for text in HOSTILE:
        issues(report(at(Span(f"{text}.py", 1, 1, 1, 1), message=text or "m")))


def test_gitlab_fingerprints_survive_moved_lines() -> None:
    here = (
        [at(FINDING.span, code=code) for code in ("GL201", "GL202")] + [at(Span("other.py", 4, 5, 4, 11))] + [FINDING]
    )
    before = [issue["fingerprint"] for issue in issues(report(*here, sources=(NET, Source("other.py", NET.text))))]
    moved = Source("net.py", "import torch\n\n" + NET.text)
    [after] = issues(report(at(FINDING.span._replace(line=6, end_line=6)), sources=(moved,)))
    assert after["fingerprint"] == before[0]


def suites(told: Report) -> ET.Element:
    """The report as XML, its counts checked against what it holds."""
    root = ET.fromstring(junit.render(told).encode())  # noqa: S314  # our own
    assert root.tag == "testsuites"
    for level in (root, *root):
        cases = level.findall(".//testcase")
        assert level.attrib["tests"] == str(len(cases))
        assert level.attrib["failures"] == str(len(level.findall(".//failure")))
    for case in root.iterfind("testsuite/testcase"):
        assert {"name", "classname", "time"} <= {*case.keys()}
        assert all(child.tag == "failure" and {"message", "type"} == {*child.keys()} for child in case)
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    return root


def test_junit() -> None:
    root = suites(report(FINDING, at(Span("n.ipynb", 4, 1, 4, 6)), sources=(NET, notebook(), Source("a.py", ""))))
    assert [suite.get("name") for suite in root] == ["src/net.py", "src/n.ipynb", "src/a.py"]
    plain, cell, clean = root.iter("testcase")
    assert (plain.get("name"), plain.get("file"), plain.get("line")) == (
        "saved-tensor-mutated (GL201) at 4:5",
        "src/net.py",
        "4",
    )
    assert plain[0].attrib == {"message": "`y` is changed", "type": "error"}
    assert plain[0].text == "net.py:4:5: `y` is changed\nnet.py:2:9: kept here\ninstead: write `y = y + 1`"
    assert (cell.get("name"), cell.get("line")) == ("saved-tensor-mutated (GL201) at cell 3:2:1", None)
    assert (clean.get("name"), len(clean)) == ("no findings", 0)
    assert len(suites(report(sources=()))) == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_junit_hostile_text(text: str) -> None:
    told = dataclasses.replace(FINDING, message=text, instead=text, span=Span(f"{text}.py", 1, 1, 1, 1))
    [failure] = suites(report(told)).iter("failure")
    shown = re.sub("[\x1b\0\udc80\ufffe]", "\ufffd", text)
    assert failure.get("message") == " ".join(shown.split())
    assert len(suites(report(told)).findall("testsuite")) == 2


@pytest.mark.parametrize(
    ("given", "file", "expected"),
    [
        ([], None, [("full", None)]),
        ([], "a", [("full", "a")]),
        (["json"], "a", [("json", "a")]),
        (["sarif:out/x.sarif"], None, [("sarif", "out/x.sarif")]),
        (["sarif:C:\\x"], None, [("sarif", "C:\\x")]),
        (["sarif:x", "github"], None, [("github", None), ("sarif", "x")]),
        (["json:a", "json:b"], None, [("json", "a"), ("json", "b")]),
    ],
)
def test_outputs(given: list[str], file: str | None, expected: list[tuple[str, str | None]]) -> None:
    found = outputs.wanted(given, Path(file) if file else None)
    assert [(o.format, None if o.file is None else str(o.file)) for o in found] == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--output-format", "xml"], "unknown output format `xml`; there are full, concise"),
        (["--output-format", "gihub"], "did you mean `github`?"),
        (["--output-format", "sarif:"], "write `sarif:FILE`, or `sarif`"),
        (["--output-format", "full", "--output-format", "json"], "only one format can go to standard output"),
        (["--output-format", "json:a", "--output-format", "sarif:./a"], "two formats cannot go to one file: a"),
        (["--output-format", "json:a", "-o", "b"], "both name a file"),
        (["--output-format", "json", "--output-format", "sarif:a", "-o", "b"], "`--output-file` is for one format"),
    ],
)
def test_outputs_that_cannot_be(command: Command, arguments: list[str], says: str) -> None:
    command.write({"a.py": "x += 1  # find saved-tensor-mutated changed\n"})
    result = command("check", *arguments)
    assert (result.code, result.out, [*Path().glob("a*")]) == (2, "", [Path("a.py")])
    assert says in result.err


def test_several_outputs(command: Command) -> None:
    command.write({"a.py": "x += 1  # find saved-tensor-mutated changed\n"})
    asked = ["github", *(f"{name}:{name}.out" for name in outputs.FORMATS)]
    result = command("check", *(word for one in asked for word in ("--output-format", one)))
    assert result.code == 1
    assert result.out == Path("github.out").read_text()
    assert {name for name in outputs.FORMATS if "GL201" not in Path(f"{name}.out").read_text()} == {"gitlab"}
    missing = command("check", "--output-format", "concise", "--output-format", "json:no/such/folder")
    assert (missing.code, "cannot write" in missing.err) == (2, True)
    assert missing.out.startswith("a.py:1:1: GL201")


def test_every_format_is_a_module() -> None:
    assert all(callable(importlib.import_module(f"gradlint.report.{name}").render) for name in outputs.FORMATS)


def test_a_ci_server_does_not_change_the_format() -> None:
    file = Path("net.py")
    file.write_text("import torch\nx = torch.ones(3)\nx.abs()\n")
    command = [sys.executable, "-m", "gradlint", "check", "--isolated", "--no-cache", "net.py"]
    plain, server = (
        subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PATH": "", "PYTHONPATH": str(ROOT), **more}
        )
        for more in ({}, {"GITHUB_ACTIONS": "true", "GITLAB_CI": "true", "CI": "true"})
    )
    assert plain.returncode == server.returncode == 1
    assert plain.stdout == server.stdout


SNIPPETS = dict(
    re.findall(r"```yaml\n# (\S+)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
)


@pytest.mark.parametrize(
    ("name", "schema"),
    [(".github/workflows/gradlint.yml", "vendor.github-workflows"), (".gitlab-ci.yml", "vendor.gitlab-ci")],
)
def test_the_snippets_for_ci(command: Command, name: str, schema: str) -> None:
    command.write({"ci.yml": SNIPPETS[name], "src/a.py": "x += 1  # find saved-tensor-mutated changed\n"})
    validate = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, "ci.yml"]
    told = subprocess.run(validate, check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    [line] = re.findall(r"gradlint (check .*)", SNIPPETS[name])
    assert command(*line.split()).code == 1
    for file in re.findall(r"(?:sarif_file|codequality): (\S+)", SNIPPETS[name]):
        assert json.loads(Path(file).read_text())
