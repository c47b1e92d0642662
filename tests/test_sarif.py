"""The SARIF report: what the standard's own schema says of it, and what it holds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import jsonschema
import pytest

from gradlint import cli
from gradlint.confirmation import Confirmation
from gradlint.faults import FAULTS
from gradlint.gradients import GradientReport
from gradlint.report import Report, sarif
from gradlint.rule import Because, Finding, Judgement, Verdict
from gradlint.rules import rules
from gradlint.sources import Source, decode
from gradlint.trace import Span

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)

HERE = Path(__file__).parent
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((HERE / "sarif" / "sarif-2.1.0.json").read_text(encoding="utf-8")),
    format_checker=jsonschema.FormatChecker(),
)
LINK = re.compile(r"(?<!\\)\[((?:\\.|[^\\\[\]])*)\]\((\d+)\)")
"""The standard's syntax of a link in a plain message."""

Json = dict[str, Any]

NET = Source("net.py", "def f(x):\n    y = relu(x)\n    z = 1\n    y += 1\n    return y + z\n")
CHAIN = (
    Because(Span("net.py", 2, 9, 2, 16), "kept for backward here"),
    Because(Span("net.py", 4, 5, 4, 11), "changed"),
)
FINDING = Finding(
    "saved-tensor-mutated", "GL201", "error", Span("net.py", 4, 5, 4, 11), "`y` is changed", CHAIN, "write `y = y + 1`"
)


def parsed(text: str) -> Json:
    """The one run of the log, after every check that holds for any log."""
    log = json.loads(text)
    errors = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(log)]
    assert not errors
    text.encode("ascii")
    run: Json = log["runs"][0]
    assert len(log["runs"]) == 1
    known = run["tool"]["driver"]["rules"]
    bases = run["originalUriBaseIds"]
    assert all(base["uri"].startswith("file:///") and base["uri"].endswith("/") for base in bases.values())
    refuted = run.get("properties", {}).get("gradlint", {}).get("refuted", [])
    for result in run["results"] + refuted:
        assert known[result["ruleIndex"]]["id"] == result["ruleId"]
        # Any other level than "none" says "fail".
        assert (result["kind"] == "fail") == (result["level"] != "none")
        assert len(result["locations"]) == 1
        related = result.get("relatedLocations", [])
        ids = [location["id"] for location in related]
        assert ids == list(range(1, len(related) + 1))
        text = result["message"]["text"]
        assert [int(id_) for _, id_ in LINK.findall(text)] == ids
        assert not re.search(r"(?<!\{)\{(?:\{\{)*(?!\{)", text), "a lone brace begins a placeholder"
        steps = [
            step["location"]
            for flow in result.get("codeFlows", [])
            for thread in flow["threadFlows"]
            for step in thread["locations"]
        ]
        for location in [*result["locations"], *related, *steps]:
            artifact = location["physicalLocation"]["artifactLocation"]
            assert artifact["uri"].isascii()
            assert not {*' "<>\\^`{|}'} & set(artifact["uri"])
            assert artifact.get("uriBaseId", next(iter(bases))) in bases
            assert ".." not in artifact["uri"].split("/")
    assert [result for result in run["results"] if result["kind"] == "pass"] == []
    return run


def check(*findings: Finding, sources: tuple[Source, ...] = (NET,), warnings: tuple[str, ...] = ()) -> Json:
    """The run that reports these findings."""
    report = Report(list(findings), {source.path: source for source in sources}, len(sources), warnings)
    assert sarif.render(report) == sarif.render(report)
    return parsed(sarif.render(report))


def uri(result: Json) -> str:
    """The address of the file of a result."""
    found = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert isinstance(found, str)
    return found


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_nothing_found() -> None:
    run = check()
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    assert run["invocations"][0]["executionSuccessful"] is True


def test_a_finding() -> None:
    run = check(FINDING, warnings=("no `x` in {}",))
    [result] = run["results"]
    assert result["message"]["text"] == (
        "`y` is changed.\nBecause: [kept for backward here](1), [changed](2).\nInstead: write `y = y + 1`"
    )
    assert (result["ruleId"], result["kind"], result["level"]) == ("GL201", "fail", "error")
    region = {"startLine": 4, "startColumn": 5, "endLine": 4, "endColumn": 11}
    place = {"artifactLocation": {"uri": "net.py", "uriBaseId": "SRCROOT"}, "region": region}
    assert result["locations"] == [{"physicalLocation": place}]
    assert [(r["id"], r["message"]["text"]) for r in result["relatedLocations"]] == [
        (1, "kept for backward here"),
        (2, "changed"),
    ]
    [flow] = result["codeFlows"]
    [thread] = flow["threadFlows"]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in thread["locations"]] == [2, 4]
    assert [step["importance"] for step in thread["locations"]] == ["important", "essential"]
    assert result["properties"] == {"gradlint": {"instead": "write `y = y + 1`"}}
    assert run["columnKind"] == "unicodeCodePoints"
    [note] = run["invocations"][0]["toolExecutionNotifications"]
    assert note == {"level": "warning", "message": {"text": "no `x` in {{}}"}}


def test_one_reason_is_no_flow() -> None:
    [result] = check(dataclasses.replace(FINDING, because=CHAIN[:1]))["results"]
    assert len(result["relatedLocations"]) == 1
    assert "codeFlows" not in result
    [result] = check(dataclasses.replace(FINDING, because=()))["results"]
    assert "relatedLocations" not in result


@pytest.mark.parametrize(("severity", "level"), [("error", "error"), ("warning", "warning"), ("info", "note")])
def test_levels(severity: str, level: str) -> None:
    [result] = check(dataclasses.replace(FINDING, severity=severity))["results"]
    assert result["level"] == level


def test_every_rule_has_its_page() -> None:
    pages = [*FAULTS, *(rule.page for rule in rules())]
    run = check(*(Finding(page.name, page.code, page.severity, Span("net.py", 1, 1, 1, 2), "m") for page in pages))
    told = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in told] == [page.code for page in pages]
    for rule, page in zip(told, pages, strict=True):
        assert rule["name"] == page.name
        assert rule["shortDescription"]["text"] == page.title
        assert rule["help"]["markdown"] == rule["help"]["text"] == page.text
        # GitHub takes no more.
        assert 20 < len(rule["fullDescription"]["text"]) <= 1024
        assert "\n" not in rule["fullDescription"]["text"]
        assert not rule["fullDescription"]["text"].startswith("#")
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
        assert len(rule["properties"]["tags"]) == 3


def test_a_rule_of_another_version() -> None:
    run = check(dataclasses.replace(FINDING, code="GL999", name="later", severity="fatal"))
    assert run["tool"]["driver"]["rules"] == [{"id": "GL999", "name": "later"}]
    assert run["results"][0]["level"] == "warning"


@pytest.mark.parametrize(
    "text",
    [
        "[click](javascript:alert) [x](1) [y](99)",
        "`a[0](1)` ](2) [[ ]]",
        "'{' was never closed {0} {{1}} }",
        "\\",
        "back\\slash\\[",
        "\x1b[31mred\x07\u202e \udc80 \0",
        "two\n\nparagraphs.",
        "</script><img src=x onerror=alert(1)>",
        "\U0001f600 日本",
        "",
        "x" * 10_000,
    ],
)
def test_hostile_text(text: str) -> None:
    hostile = dataclasses.replace(FINDING, message=text, because=(Because(CHAIN[0].span, text),), instead=text)
    run = check(hostile, warnings=(text,))
    told = json.dumps(run, ensure_ascii=False)
    assert not re.search("[\0\x1b\u202e\ud800-\udfff]", told)
    [result] = run["results"]
    # Nothing but our own link is one.
    [(link, _)] = LINK.findall(result["message"]["text"])
    assert re.sub(r"\\(.)", r"\1", link).split() == (
        re.sub("[\0\x1b\x07\u202e\udc80]", "\ufffd", text).replace("{", "{{").replace("}", "}}").split() or ["here"]
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a b.py", "a%20b.py"),
        ("./deep/../net.py", "net.py"),
        ("100%.py", "100%25.py"),
        ("c:x.py", "c%3Ax.py"),
        ("q?a=1#f.py", "q%3Fa%3D1%23f.py"),
        ("日本/é.py", "%E6%97%A5%E6%9C%AC/%C3%A9.py"),
        ("odd\udcff.py", "odd%FF.py"),
        ("half\ud800.py", "half%3F.py"),
        ('"<\n>.py', "%22%3C%0A%3E.py"),
        (".", "."),
    ],
)
def test_paths(path: str, expected: str) -> None:
    [result] = check(dataclasses.replace(FINDING, span=Span(path, 1, 1, 1, 2)))["results"]
    assert uri(result) == expected
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] == "SRCROOT"


def test_paths_are_told_from_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my repo" / ".git").mkdir(parents=True)
    (tmp_path / "my repo" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "my repo" / "src")
    paths = ["net.py", "../other.py", "../../far.py", str(tmp_path / "my repo" / "a.py")]
    run = check(*(dataclasses.replace(FINDING, span=Span(path, 1, 1, 1, 2)) for path in paths))
    far = (tmp_path / "far.py").as_uri()
    assert [uri(result) for result in run["results"]] == ["src/net.py", "other.py", far, "a.py"]
    assert run["originalUriBaseIds"] == {"SRCROOT": {"uri": f"{(tmp_path / 'my repo').as_uri()}/"}}
    assert run["invocations"][0]["workingDirectory"]["uri"].endswith("/my%20repo/src/")


def test_a_linked_folder_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "net.py").touch()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    [result] = check(dataclasses.replace(FINDING, span=Span(str(tmp_path / "link" / "net.py"), 1, 1, 1, 2)))["results"]
    assert uri(result) == "net.py"


@pytest.mark.parametrize(
    "span",
    [
        Span("net.py", 0, 0, 0, 0),
        Span("net.py", 9, 9, 12, 1),
        Span("net.py", 3, 7, 3, 2),
        Span("net.py", 3, 7, 2, 9),
        Span("net.py", 2, 5, 2, 5),
    ],
)
def test_odd_places(span: Span) -> None:
    [result] = check(dataclasses.replace(FINDING, span=span))["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"])


def test_notebooks() -> None:
    cells = [
        {"cell_type": "markdown", "source": "#"},
        *({"cell_type": "code", "source": f"a\nx{n} = 1"} for n in "12"),
    ]
    source = decode("n.ipynb", json.dumps({"cells": cells}).encode())
    assert isinstance(source, Source)
    finding = dataclasses.replace(
        FINDING, span=Span("n.ipynb", 4, 1, 4, 7), because=(Because(Span("n.ipynb", 2, 1, 2, 3), "kept"),), instead=""
    )
    [result] = check(finding, sources=(source,))["results"]
    assert result["message"]["text"] == (
        "`y` is changed.\nThis is in cell 3, line 2.\nBecause: [kept](1) (cell 2, line 2)."
    )
    [location] = result["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "n.ipynb", "uriBaseId": "SRCROOT"}}
    place = {"cell": 3, "startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 7}
    assert location["properties"] == {"gradlint": place}
    # With no line to hash, GitHub gets ours, so that two findings in a notebook are two alerts.
    assert len(set(result["partialFingerprints"].values())) == 1


def fingerprints(text: str, *lines: int, key: str = "gradlint/v1") -> list[str]:
    """The fingerprints of findings on these lines."""
    source = Source("net.py", text)
    run = check(*(dataclasses.replace(FINDING, span=Span("net.py", n, 1, n, 2)) for n in lines), sources=(source,))
    return [result["partialFingerprints"][key] for result in run["results"]]


def test_fingerprints_survive_moved_lines() -> None:
    body = "x += 1\nfill = 0\nx += 1\ny -= 1\n" + "pass\n" * 50
    before = fingerprints(body, 1, 3, 4)
    assert len(set(before)) == 3
    assert before[0].split(":")[0] == before[1].split(":")[0]
    assert fingerprints("import torch\n\n" + body, 3, 5, 6) == before
    assert fingerprints(body.replace("fill = 0\n", "a = 1\nb = 2\nc = 3\n"), 1, 5, 6) == before
    assert fingerprints(body.replace("x += 1", "    x  +=  1"), 1, 3, 4) == before
    changed = fingerprints(body.replace("y -= 1", "y -= 2"), 1, 3, 4)
    assert (changed[:2], changed[2] == before[2]) == (before[:2], False)
    # GitHub's own stay where nothing near them changes.
    github = fingerprints(body, 4, key="primaryLocationLineHash")
    assert fingerprints("import torch\n\n" + body, 6, key="primaryLocationLineHash") == github


def test_fingerprints_are_of_the_rule_and_the_file() -> None:
    other = dataclasses.replace(FINDING, code="GL203", name="leaf-mutated")
    far = dataclasses.replace(FINDING, span=FINDING.span._replace(path="other.py"))
    sources = (NET, Source("other.py", NET.text))
    prints = [r["partialFingerprints"]["gradlint/v1"] for r in check(FINDING, other, far, sources=sources)["results"]]
    assert len(set(prints)) == 2
    assert prints[0] == prints[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["c129715d7a2bc9a3:1"]),
        (" a\nb\n  \t\tc\n d", ["271789c17abda88f:1", "54703d4cd895b18:1", "180aee12dab6264:1", "a23a3dc5e078b07b:1"]),
        (
            " hello; \t\nworld!!!\n\n\n  \t\tGreetings\n End\n",
            [
                "e9496ae3ebfced30:1",
                "fb7c023a8b9ccb3f:1",
                "ce8ba1a563dcdaca:1",
                "e20e36e16fcb0cc8:1",
                "b3edc88f2938467e:1",
                "c8e28b0b4002a3a0:1",
                "c129715d7a2bc9a3:1",
            ],
        ),
        (
            "Lorem ipsum dolor sit amet.\n" * 10,
            [
                *(f"a7f2ff13bc495cf2:{number}" for number in range(1, 7)),
                "a7f2ff1481e87703:1",
                "a9cf91f7bbf1862b:1",
                "55ec222b86bcae53:1",
                "cc97dc7b1d7d8f7b:1",
                "c129715d7a2bc9a3:1",
            ],
        ),
    ],
)
def test_line_hashes_are_those_of_github(text: str, expected: list[str]) -> None:
    # The values are from the tests of github/codeql-action, whose upload complains of others.
    lines = list(range(1, len(expected) + 1))
    assert fingerprints(text, *lines, key="primaryLocationLineHash") == expected


def test_faults(command: Command) -> None:
    command.analyse()
    command.write({"a.py": "x = (\n", "b.py": b"x = '\xff'\n", "c.py": "(" * 900 + ")" * 900, "d.ipynb": "{"})
    result = command("check", "--output-format", "sarif")
    run = parsed(result.out)
    assert result.code == 1
    assert [(found["ruleId"], uri(found)) for found in run["results"]] == [
        ("GL003", "b.py"),
        ("GL003", "d.ipynb"),
        ("GL001", "a.py"),
        ("GL002", "c.py"),
    ]
    assert all(found["level"] == "error" for found in run["results"])
    assert "region" in run["results"][1]["locations"][0]["physicalLocation"]


def test_internal_errors(command: Command) -> None:
    command.write({"a.py": "x = 1  # raise {oops}\n"})
    result = command("check", "--output-format", "sarif", "-o", "out.sarif")
    run = parsed(Path("out.sarif").read_text(encoding="utf-8"))
    assert (result.code, result.out) == (3, "")
    assert [found["ruleId"] for found in run["results"]] == ["GL004"]
    assert "{{oops}}" in run["results"][0]["message"]["text"]
    assert run["invocations"][0]["executionSuccessful"] is False


def test_stdin(command: Command) -> None:
    command.analyse()
    run = parsed(command("check", "-", "--output-format", "sarif", stdin=b"x = (\n").out)
    artifact = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "-", "description": {"text": "standard input"}}


def test_a_project(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(HERE.parent / "fixtures" / "projects" / "segmentation")
    runs = []
    for output_format in ("sarif", "sarif", "json"):
        monkeypatch.setattr(sys, "argv", ["gradlint", "check", "--isolated", "--output-format", output_format])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == 1
        runs.append(capsys.readouterr().out)
    assert runs[0] == runs[1]
    run = parsed(runs[0])
    findings = json.loads(runs[2])
    assert len(findings) >= 6
    root = unquote(run["originalUriBaseIds"]["SRCROOT"]["uri"].removeprefix("file://"))
    for result, finding in zip(run["results"], findings, strict=True):
        assert os.path.join(root, unquote(uri(result))) == finding["filename"]
        region = result["locations"][0]["physicalLocation"]["region"]
        assert {"row": region["startLine"], "column": region["startColumn"]} == finding["location"]
        assert {"row": region["endLine"], "column": region["endColumn"]} == finding["end_location"]
        assert result["ruleId"] == finding["code"]
        assert result["message"]["text"].startswith(finding["message"])
        chain = [link["message"] for link in finding["because"]]
        assert [location["message"]["text"] for location in result.get("relatedLocations", [])] == chain
        for flow in result.get("codeFlows", []):
            steps = flow["threadFlows"][0]["locations"]
            assert [step["location"]["message"]["text"] for step in steps] == chain


GRADIENTS = GradientReport.__new__(GradientReport)
RAN = (CHAIN[1], CHAIN[0])


def confirmation(*judgements: Judgement, seen: tuple[Judgement, ...] = (), judged: bool = True) -> Confirmation:
    """What a run said."""
    return Confirmation(
        command="python train.py --name '{x}'",
        judgements=list(judgements),
        seen=list(seen),
        gradients=GRADIENTS if judged else None,
        report=Report([j.finding for j in judgements], {"net.py": NET}, 1, ["a warning"]),
        ended="ran for 2 steps and was stopped",
        steps=2,
        notes=("trackers are switched off",),
    )


def test_verdicts() -> None:
    judgements = [
        Judgement(
            FINDING,
            Verdict.CONFIRMED,
            "backward raised",
            RAN,
            {"version": 2, "norms": [1.0, float("nan"), float("inf")], "nested": {"none": None, "set": (1, True)}},
            "without it, 4 of 4 gradients are finite",
            (0, 1),
        ),
        Judgement(FINDING, Verdict.REFUTED, "it did not happen in 2 steps"),
        Judgement(FINDING, Verdict.NOT_REACHED, "net.py:4 did not run"),
        Judgement(FINDING, Verdict.UNDECIDED, "the run could not tell", CHAIN),
    ]
    extra = Judgement(dataclasses.replace(FINDING, severity="info"), Verdict.CONFIRMED, "seen")
    text = sarif.render_confirmation(confirmation(*judgements, seen=(extra,)))
    assert text == sarif.render_confirmation(confirmation(*judgements, seen=(extra,)))
    run = parsed(text)
    assert run["tool"]["driver"]["name"] == "gradlint confirm"

    results = run["results"]
    assert [(r["properties"]["gradlint"]["verdict"], r["kind"], r["level"]) for r in results] == [
        ("confirmed", "fail", "error"),
        ("not reached", "open", "none"),
        ("undecided", "open", "none"),
        ("confirmed", "fail", "note"),
    ]
    assert [r["properties"]["gradlint"]["foundBy"] for r in results] == ["check", "check", "check", "run"]
    assert results[0]["properties"]["gradlint"] == {
        "verdict": "confirmed",
        "reason": "backward raised",
        "foundBy": "check",
        "evidence": {"version": 2, "norms": [1.0, "nan", "inf"], "nested": {"none": None, "set": [1, True]}},
        "proof": "without it, 4 of 4 gradients are finite",
        "ranks": [0, 1],
        "instead": "write `y = y + 1`",
    }
    assert results[0]["message"]["text"].split("\n")[:4] == [
        "`y` is changed.",
        "Confirmed: backward raised.",
        "Proof: without it, 4 of 4 gradients are finite.",
        "Because: [changed](1), [kept for backward here](2).",
    ]
    # As it ran, and as `check` tells it; once where they are the same.
    assert [
        [step["location"]["message"]["text"] for step in flow["threadFlows"][0]["locations"]]
        for flow in results[0]["codeFlows"]
    ] == [["changed", "kept for backward here"], ["kept for backward here", "changed"]]
    assert len(results[2]["codeFlows"]) == 1

    told = run["properties"]["gradlint"]
    assert told["steps"] == 2
    [refuted] = told["refuted"]
    assert (refuted["kind"], refuted["level"]) == ("pass", "none")
    assert refuted["properties"]["gradlint"]["reason"] == "it did not happen in 2 steps"

    [invocation] = run["invocations"]
    assert invocation["commandLine"] == "python train.py --name '{x}'"
    assert invocation["exitCodeDescription"] == "the program ran for 2 steps and was stopped"
    assert invocation["executionSuccessful"] is True
    assert [(n["level"], n["message"]["text"]) for n in invocation["toolExecutionNotifications"]] == [
        ("warning", "a warning"),
        ("note", "trackers are switched off"),
    ]


def test_a_verdict_does_not_change_the_fingerprint() -> None:
    both = [FINDING, FINDING]
    plain = [result["partialFingerprints"] for result in check(*both)["results"]]
    for verdict in Verdict:
        judgements = [Judgement(FINDING, verdict, "so"), Judgement(FINDING, Verdict.CONFIRMED, "so")]
        run = parsed(sarif.render_confirmation(confirmation(*judgements, seen=(judgements[1],))))
        assert [r["partialFingerprints"] for r in run["results"]][-2] == plain[1]


def test_a_run_that_could_not_be_judged() -> None:
    run = parsed(sarif.render_confirmation(confirmation(judged=False)))
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][-1]["level"] == "error"
    assert run["results"] == []


def test_the_command_confirm(command: Command) -> None:
    told = confirmation(Judgement(FINDING, Verdict.CONFIRMED, "backward raised"))
    command.monkeypatch.setattr("gradlint.confirmation.observe", lambda *_, **__: told)
    result = command("confirm", "--output-format", "sarif", "--", "python", "train.py")
    assert result.code == 1
    assert parsed(result.out) == parsed(sarif.render_confirmation(told))
