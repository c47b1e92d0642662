"""A linter whose files are edited says what a new one says of the same texts, whatever the edits were."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlint.lint import Linter, Stopped
from gradlint.outcome import Outcome
from gradlint.rules import rules
from gradlint.sources import Source

EVERYTHING = "GRADLINT_FUZZ_EVERYTHING" in os.environ
"""Set, many more edits are made; they run for hours."""

FIXTURES = Path(__file__).parent.parent / "fixtures"
TOGETHER = ("projects/segmentation",)
"""Folders whose files import each other."""
ALONE = ("reports/*/bad.py", "wild/*/bad.py", "shadow/*.py")


def programs() -> list[dict[str, str]]:
    folders = [FIXTURES / folder for folder in TOGETHER]
    together = [{p.name: p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.py"))} for folder in folders]
    # Two programs that do not know of each other are a project too: an edit of one must not change the other.
    alone = sorted(path for pattern in ALONE for path in FIXTURES.glob(pattern))
    pairs = zip(alone[::2], alone[1::2], strict=False)
    return together * 20 + [
        {f"{n}.py": path.read_text(encoding="utf-8") for n, path in zip("ab", pair, strict=True)} for pair in pairs
    ]


PROGRAMS = programs()
Edit = Callable[[str, int, int], str]
"""A text, the number of a line of it, and another number, to the edited text."""


def on_lines(change: Callable[[list[str], int, int], None]) -> Edit:
    def edit(text: str, line: int, other: int) -> str:
        lines = text.split("\n")
        change(lines, line % len(lines), other)
        return "\n".join(lines)

    return edit


def _delete(lines: list[str], at: int, other: int) -> None:
    del lines[at : at + 1 + other % 3]


def _repeat(lines: list[str], at: int, other: int) -> None:
    lines[at:at] = [lines[at]] * (1 + other % 2)


def _blank(lines: list[str], at: int, other: int) -> None:
    lines[at:at] = [""] * (1 + other % 3)


def _remark(lines: list[str], at: int, other: int) -> None:
    lines.insert(at, " " * (other % 9) + "# a remark")


def _swap(lines: list[str], at: int, other: int) -> None:
    end = at + 2 + other % 2
    lines[at:end] = lines[at:end][::-1]


def _type(lines: list[str], at: int, other: int) -> None:
    # What a user has half typed, syntax errors among it.
    column = other % (len(lines[at]) + 1)
    lines[at] = lines[at][:column] + '(z1 ."='[other % 7] + lines[at][column:]


def _erase(lines: list[str], at: int, other: int) -> None:
    column = other % (len(lines[at]) + 1)
    lines[at] = lines[at][:column] + lines[at][column + 1 :]


def _write(lines: list[str], at: int, other: int) -> None:
    indent = re.match(r" *", lines[at]).group()  # type: ignore[union-attr]
    lines.insert(at, indent + STATEMENTS[other % len(STATEMENTS)])


STATEMENTS = (
    "pass",
    "loss.backward()",
    "optimizer.zero_grad()",
    "x = x.detach()",
    "import torch",
    "from model import *",
    "if torch.cuda.is_available(): print()",
    "return",
    "yield 1",
    "def helper(x): return x.item()",
    "model.eval()",
    "y = helper(x)",
    "global x",
)


def _move(text: str, line: int, other: int) -> str:
    """Move a whole definition."""
    parts = re.split(r"\n(?=(?:@|def |class ))", text)
    part = parts.pop(line % len(parts))
    parts.insert(other % (len(parts) + 1), part)
    return "\n".join(parts)


def _rename(text: str, line: int, other: int) -> str:
    names = re.findall(r"[^\W\d]\w*", text)
    if not names:
        return text
    name = names[line * 31 % len(names)]
    new = name + "_" if other % 2 else names[other % len(names)]
    # Everywhere, or from one place on, as when a user has not got round to the rest.
    start = 0 if other % 3 else text.index(name)
    count = 0 if other % 5 else 1
    return text[:start] + re.sub(rf"\b{name}\b", new, text[start:], count=count)


def _number(text: str, line: int, other: int) -> str:
    numbers = list(re.finditer(r"\b\d+\b", text))
    if not numbers:
        return text
    match = numbers[line % len(numbers)]
    return text[: match.start()] + str(other % 5) + text[match.end() :]


EDITS: tuple[Edit, ...] = (
    *map(on_lines, (_delete, _repeat, _blank, _remark, _swap, _type, _erase, _write)),
    _move,
    _rename,
    _number,
)
MEND = len(EDITS)
"""Back to the text before the last edit."""
REMOVE = MEND + 1
"""The file is deleted, and comes back with the next edit of it."""

numbers = st.integers(0, 10_000)
edits = st.lists(
    st.tuples(st.integers(0, REMOVE), numbers, numbers, numbers, st.integers(-300, 300)), min_size=1, max_size=8
)


def said(linter: Linter, path: str) -> Outcome:
    outcome = linter.file(path)
    return Outcome(outcome.findings, dict(outcome.asked), outcome.cut)


def interrupted(linter: Linter, path: str, after: int) -> None:
    """Begin to lint a file, and give up once it has been asked `after` times whether to."""
    left = after

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    try:
        linter.file(path, stop)
    except Stopped:
        assert left < 0
    else:
        assert left >= 0


def check_trees(linter: Linter) -> None:
    """Each tree, most of them made of pieces, spells the text that it stands for."""
    for file in linter.program.files.values():
        parts = [] if file.problem else [part for chunk in file.chunks for part in (chunk, *chunk.inner) if part]
        for part in parts:
            if "module" in vars(part) and part.module.body:
                assert part.module.code == part.outline


def check(linter: Linter, texts: Mapping[str, str]) -> None:
    fresh = Linter([Source(*item) for item in texts.items()], linter.rules)
    for path in texts:
        assert said(linter, path) == said(fresh, path), texts[path]
    check_trees(linter)


@settings(
    max_examples=3000 if EVERYTHING else 10,
    deadline=None,
    derandomize=not EVERYTHING,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(program=st.sampled_from(PROGRAMS), steps=edits)
def test_edits(program: dict[str, str], steps: list[tuple[int, int, int, int, int]]) -> None:
    texts = dict(program)
    linter = Linter([Source(*item) for item in texts.items()], rules())
    check(linter, texts)
    before: dict[str, str] = {}
    for kind, which, line, other, stop in steps:
        path = sorted(program)[which % len(program)]
        text = texts.get(path, "")
        if kind == REMOVE:
            if path in texts and len(texts) > 1:
                linter.remove(path)
                before[path] = texts.pop(path)
        else:
            texts[path] = before.get(path, program[path]) if kind == MEND else EDITS[kind](text, line, other)
            before[path] = text
            linter.update(Source(path, texts[path]))
            if stop > 0:
                interrupted(linter, path, stop // 4)
        check(linter, texts)


LONG = "import torch\n\ndef step(model, x):\n" + "    x = model(x) + 1\n" * 400 + "    x.sum().backward()\n"


def test_a_stop_is_heard_soon_and_changes_nothing() -> None:
    linter = Linter([Source("long.py", LONG)], rules())
    asked = 0

    def never() -> bool:
        nonlocal asked
        asked += 1
        return False

    whole = linter.file("long.py", never)
    assert asked > len(rules())
    linter.update(Source("long.py", LONG.replace("+ 1", "+ 2", 1)))
    with pytest.raises(Stopped):
        linter.file("long.py", lambda: True)
    linter.update(Source("long.py", LONG))
    assert linter.file("long.py") == whole


def test_an_edit_costs_what_it_touches() -> None:
    """What read nothing of the change is not told again, and what stands below it is not even parsed again."""
    text = "import torch\n\n" + "".join(
        f"def step{n}(model, x):\n    loss = model(x)\n    loss.detach_().backward()\n\n" for n in range(5)
    )
    linter = Linter([Source("steps.py", text)], rules())
    linter.file("steps.py")
    chunks = {chunk.defines: chunk for chunk in linter.program.files["steps.py"].chunks}
    entries = dict(linter._heard["steps.py"])
    linter.update(Source("steps.py", text.replace("model(x)\n", "model(x + 1)\n\n", 1)))
    linter.file("steps.py")
    after = {chunk.defines: chunk for chunk in linter.program.files["steps.py"].chunks}
    assert {name for name in chunks if chunks[name] is not after[name]} == {"step0"}
    assert {name for (name, _), heard in linter._heard["steps.py"].items() if entries[name, 0] is not heard} == {
        "step0"
    }
