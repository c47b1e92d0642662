"""What the formats print, to the letter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gradlint.report import Report, concise, full
from gradlint.report import json as as_json
from gradlint.rule import Because, Finding
from gradlint.sources import Source, decode
from gradlint.trace import Span

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)


def span(source: Source, text: str, *, nth: int = 0) -> Span:
    """Where `text` stands in the source, the `nth` time."""
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(text, start + 1)
    end = start + len(text)
    line, end_line = source.text.count("\n", 0, start) + 1, source.text.count("\n", 0, end) + 1
    column = start - source.text.rfind("\n", 0, start)
    return Span(source.path, line, column, end_line, end - source.text.rfind("\n", 0, end))


def finding(where: Span, *because: Because, instead: str = "") -> Finding:
    """A finding at `where`."""
    return Finding("saved-tensor-mutated", "GL201", "error", where, "`y` is changed in place", because, instead)


def report(sources: Sequence[Source], *findings: Finding) -> Report:
    """A report on all of these."""
    return Report(list(findings), {source.path: source for source in sources}, len(sources))


MODEL = Source(
    "model.py", "def f(x):\n    y = relu(x)\n    z = 1\n    y += 1\n    return y + z\n" + "\n" * 20 + "f(x)\n"
)
TRAIN = Source("train.py", "\n" * 99 + "loss.backward()\n")


def test_full_shows_the_chain() -> None:
    found = finding(
        span(MODEL, "y += 1"),
        Because(span(MODEL, "relu(x)"), "kept for backward here"),
        Because(span(MODEL, "f(x)", nth=1), "called here"),
        Because(span(TRAIN, "loss.backward()"), "backward needs it here"),
        instead="write this:\n    y = y + 1\n",
    )
    assert full.render(report([MODEL, TRAIN], found)).splitlines() == [
        "error[GL201] saved-tensor-mutated: `y` is changed in place",
        "   --> model.py:4:5",
        "    |",
        "  2 |     y = relu(x)",
        "    |         ------- kept for backward here",
        "  3 |     z = 1",
        "  4 |     y += 1",
        "    |     ^^^^^^",
        "    |",
        "   ::: model.py:26:1",
        "    |",
        " 26 | f(x)",
        "    | ---- called here",
        "    |",
        "   ::: train.py:100:1",
        "    |",
        "100 | loss.backward()",
        "    | --------------- backward needs it here",
        "    |",
        "    = instead: write this:",
        "                   y = y + 1",
        "    = more: gradlint explain saved-tensor-mutated",
        "",
        "Found 1 error in 1 file (2 files checked).",
    ]


@pytest.mark.parametrize(
    ("text", "marked", "lines"),
    [
        ("y += 1\n", "y += 1", ["1 | y += 1", "  | ^^^^^^"]),
        ("\ty += 1\n", "y += 1", ["1 |     y += 1", "  |     ^^^^^^"]),
        ("a\ty += 1\n", "y += 1", ["1 | a   y += 1", "  |     ^^^^^^"]),
        ("'日本' + y\n", "y", ["1 | '日本' + y", "  |          ^"]),
        ("'e\u0301' + y\n", "y", ["1 | 'e\u0301' + y", "  |       ^"]),
        ("f('日本')\n", "'日本'", ["1 | f('日本')", "  |   ^^^^^^"]),
        ("f(a,\n  b)\nc\n", "f(a,\n  b)", ["1 | f(a,", "  | ^^^^"]),
        ("x = 1\n", "", ["1 | x = 1", "  | ^"]),
        ("\x1b[31mx\x07\u202e\n", "x", ["1 | \u241b[31mx\u2407\ufffd", "  |      ^"]),
        (f"{'a' * 300}\n", "a" * 300, [f"1 | {'a' * 140}...", f"  | {'^' * 140}"]),
        (
            f"{'a' * 300}; y += 1; {'b' * 300}\n",
            "y += 1",
            [f"1 | ...{'a' * 44}; y += 1; {'b' * 86}...", f"  | {' ' * 49}^^^^^^"],
        ),
    ],
)
def test_full_underlines(text: str, marked: str, lines: list[str]) -> None:
    source = Source("a.py", text)
    out = full.render(report([source], finding(span(source, marked)))).splitlines()
    assert out[3 : 3 + len(lines)] == lines
    assert all(line == line.rstrip() for line in out)


def test_full_puts_marks_of_one_line_under_each_other() -> None:
    source = Source("a.py", "y += relu(y)\n\n\n\n\ny.backward()\n")
    found = finding(
        span(source, "y += relu(y)"),
        Because(span(source, "y += relu(y)"), "changed here"),
        Because(span(source, "relu(y)"), "kept here"),
        Because(span(source, "relu(y)"), "as its result"),
        Because(span(source, "y.backward()"), "needed here"),
    )
    assert full.render(report([source], found)).splitlines()[3:9] == [
        "1 | y += relu(y)",
        "  | ^^^^^^^^^^^^ changed here",
        "  |      ------- kept here; as its result",
        "...",
        "6 | y.backward()",
        "  | ------------ needed here",
    ]


def test_full_without_source() -> None:
    found = Finding("unreadable-file", "GL003", "error", Span("a.py", 3, 1, 3, 1), "bad\nbytes")
    assert full.render(Report([found], {}, 1)).splitlines()[:4] == [
        "error[GL003] unreadable-file: bad bytes",
        " --> a.py:3:1",
        "  |",
        "  = more: gradlint explain unreadable-file",
    ]


def test_places_past_the_end_do_no_harm() -> None:
    source = Source("a.py", "x\n")
    found = finding(Span("a.py", 9, 9, 12, 1), Because(Span("a.py", 1, 40, 1, 50), "here"))
    for render in (full.render, concise.render, as_json.render):
        assert "9" in render(report([source], found))


def test_notebooks() -> None:
    cells = [
        {"cell_type": "markdown", "source": "#"},
        *({"cell_type": "code", "source": f"a\nx{n} = 1"} for n in "12"),
    ]
    source = decode("n.ipynb", json.dumps({"cells": cells}).encode())
    assert isinstance(source, Source)
    found = finding(span(source, "x2 = 1"), Because(span(source, "x1"), "kept"))
    told = report([source], found)
    assert concise.render(told).startswith("n.ipynb:cell 3:2:1: GL201")
    assert [line for line in full.render(told).splitlines() if "n.ipynb" in line or " = 1" in line] == [
        " --> n.ipynb:cell 3:2:1",
        "2 | x2 = 1",
        " ::: n.ipynb:cell 2:2:1",
        "2 | x1 = 1",
    ]
    [entry] = json.loads(as_json.render(told))
    assert (entry["cell"], entry["location"], entry["because"][0]["cell"]) == (3, {"row": 2, "column": 1}, 2)


def test_json() -> None:
    found = finding(span(MODEL, "y += 1"), Because(span(MODEL, "relu(x)"), "kept"), instead="y = y + 1")
    path = str(Path("model.py").absolute())
    assert json.loads(as_json.render(report([MODEL], found))) == [
        {
            "code": "GL201",
            "name": "saved-tensor-mutated",
            "severity": "error",
            "message": "`y` is changed in place",
            "filename": path,
            "cell": None,
            "location": {"row": 4, "column": 5},
            "end_location": {"row": 4, "column": 11},
            "because": [
                {
                    "message": "kept",
                    "filename": path,
                    "cell": None,
                    "location": {"row": 2, "column": 9},
                    "end_location": {"row": 2, "column": 16},
                }
            ],
            "instead": "y = y + 1",
            "fix": None,
            "url": None,
        }
    ]
    assert json.loads(as_json.render(report([MODEL]))) == []


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1"}, False),
    ],
)
def test_colours(command: Command, environment: dict[str, str], coloured: bool) -> None:
    command.monkeypatch.setenv("TERM", "xterm-256color")
    command.write({"a.py": f"x[{'1, ' * 200}] += 1  # find saved-tensor-mutated [bold]m[/bold] :smile:\n"})
    plain = command("check").out
    for name, value in environment.items():
        command.monkeypatch.setenv(name, value)
    out = command("check").out
    assert ("\x1b[" in out) is coloured
    assert "[bold]m[/bold] :smile:" in out
    # Nothing is wrapped, whatever the terminal's width.
    assert out.count("\n") == plain.count("\n")
    for name in ("concise", "json"):
        assert "\x1b[" not in command("check", "--output-format", name).out
