"""No source, however odd, makes gradlint fail: what it cannot tell is a finding or nothing."""

from __future__ import annotations

import ast
import functools
import keyword
import os
import random
import re
import sysconfig
import threading
from pathlib import Path

import hypothesmith
import pytest
from hypothesis import HealthCheck, given, settings
from programs import Writer
from shapes import GROWING, TORCH

from gradlint import isolate
from gradlint.faults import why
from gradlint.isolate import STACK
from gradlint.lint import lint
from gradlint.program import Program
from gradlint.rules import rules
from gradlint.shadow.interpreter import Choices, Interpreter
from gradlint.shadow.tell import tell
from gradlint.sources import Source

EVERYTHING = "GRADLINT_FUZZ_EVERYTHING" in os.environ
"""Set, the sweeps take all files and many more programs; they run for hours."""

WORTH = "\nimport torch\ntorch.ones(1).abs()\n"
"""Makes what the file runs worth telling."""
RUN = "\nif __name__ == '__main__':\n    print()\n"
"""Makes the file one that runs something."""


def faults(text: str) -> list[str]:
    """What goes wrong inside gradlint with `text`, told with the worker's stack."""
    said: list[str] = []

    def work() -> None:
        try:
            said.extend(f.message for f in lint([Source("odd.py", text)], rules()) if f.name == "internal-error")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a fault
            said.append(why(error))

    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    return said


@settings(
    max_examples=2000 if EVERYTHING else 25,
    deadline=None,
    derandomize=not EVERYTHING,
    suppress_health_check=list(HealthCheck),
)
@given(hypothesmith.from_node() | hypothesmith.from_grammar())
def test_any_program(text: str) -> None:
    assert faults(text + RUN) == []


SHAPES = {
    "a long sum": "x = " + "+".join(["a"] * 400),
    "a longer sum of tensors": TORCH + "a = torch.ones(2)\nx = " + "+".join(["a"] * 3000) + "\nx.backward()",
    "many elifs": "if a == 0:\n    x = 0\n" + "".join(f"elif a == {i}:\n    x = {i}\n" for i in range(400)),
    "a chain of calls": "x = f" + "(1)" * 400,
    "a chain of attributes": "x = f" + ".a" * 1500,
    "nested lists": "x = " + "[" * 190 + "]" * 190,
    "too many brackets": "x = " + "[" * 3000 + "]" * 3000,
    "nots": "x = " + "not " * 400 + "a",
    "nested functions": "".join(" " * i + f"def f{i}(x):\n" for i in range(60)) + " " * 60 + "return x.backward()",
    "nested lambdas": "f = " + "lambda x: " * 150 + "x.detach()",
    "nested comprehensions": "x = " + "[" * 60 + "y" + " for y in z]" * 60,
    "mutual recursion": "def f(x):\n    return g(x.detach())\ndef g(x):\n    return f(x)\nf(1)\n",
    "a class that is its own base": "class A(A):\n"
    "    def forward(self, x):\n        x += 1\n        return A.forward(self, x)\n",
    "a module that holds itself": TORCH
    + "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.m = self\n"
    "    def forward(self, x):\n        x += 1\n        return self.m(x)\nM()(torch.ones(1)).sum().backward()\n",
    "a list that holds itself": TORCH + "x = []\nx.append(x)\nfor y in x:\n    y.append(torch.ones(1).detach())\n",
    "a loop without end": TORCH + "while True:\n    x = torch.ones(1, requires_grad=True)\n    x.sum().backward()\n",
    "a generator of itself": "def g():\n    yield from g()\nfor x in g():\n    x.backward()\n",
    "a decorator that is not one": "@3\ndef f(x):\n    x.backward()\nf(1)\n",
    "huge numbers": "x = 10 ** 10 ** 10\ny = 'a' * 10 ** 12\nz = [0] * 10 ** 12\nw = 1 << 10 ** 9\n__main__\n",
    "many branches": TORCH
    + "def f(x, a):\n"
    + "".join(f"    if a.f{i}:\n        x = x * {i}\n" for i in range(2000))
    + "    x.backward()\n",
    "many classes": TORCH
    + "".join(
        f"class C{i}(nn.Module):\n    def forward(self, x):\n        x += {i}\n        return x\n" for i in range(1000)
    ),
    "a long function": TORCH + "def f(x):\n" + "    x = x.relu()\n    x += 1\n" * 3000 + "    x.sum().backward()\n",
    "odd line ends": "x = 1\r\ny = 2\rz = 3\n\x0cdef f(x):\n    x.backward()\n",
    "names beyond ASCII": "\U0001d54fé = 'ü'\ndef \u210c(\U0001d569):\n    \U0001d569.backward()\n"
    "\u210c(\U0001d54fé)\n",
    "nothing": "",
    "only a comment": "# nothing",
}


@pytest.mark.parametrize("name", SHAPES)
def test_odd_shapes(name: str) -> None:
    """Told by a worker, whose death would be a fault too."""
    said = isolate.lint([Source("odd.py", SHAPES[name] + RUN)], rules(), ["odd.py"])
    assert [
        finding.message for _, outcome in said for finding in outcome.findings if finding.name == "internal-error"
    ] == []


# -- programs of this repository, mangled


def originals() -> list[str]:
    """Programs that gradlint has much to say about."""
    here = Path(__file__).parent.parent
    pages = [page.read_text(encoding="utf-8") for page in sorted((here / "rules").glob("*.md"))]
    found = [
        code for page in pages for code in re.findall(r"^```python.*?\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    ]
    for folder in ("shadow", "wild", "rules", "projects"):
        found += [path.read_text(encoding="utf-8") for path in sorted((here / "fixtures" / folder).rglob("*.py"))]
    return [*found, *(Writer(seed, unknown=seed % 2 == 0).program() for seed in range(40))]


def mangled(text: str, chance: random.Random) -> str:
    """`text` with some lines dropped, doubled or moved, and some tokens taken from elsewhere in it."""
    lines = text.splitlines(keepends=True)
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(lines))
        line = lines[at]
        kind = chance.randrange(3)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, line)
        else:
            # Indented as its new place is.
            to = chance.randrange(len(lines))
            indent = re.match(r"[ ]*", lines[to])
            lines.insert(to, (indent[0] if indent else "") + line.lstrip())
    parts = re.split(r"(\w+|[^\w\s]+|\s+)", "".join(lines))
    words = [i for i, part in enumerate(parts) if re.fullmatch(r"\w+|[^\w\s]+", part) and not keyword.iskeyword(part)]
    for _ in range(chance.randint(0, 4)):
        if words:
            at = chance.choice(words)
            alike = [i for i in words if parts[i].isidentifier() == parts[at].isidentifier()]
            parts[at] = parts[chance.choice(alike)]
    return "".join(parts)


def test_mangled_programs() -> None:
    chance = random.Random(11)  # noqa: S311 - no secret
    sources = originals()
    told = 0
    while told < (20_000 if EVERYTHING else 150):
        text = mangled(chance.choice(sources), chance)
        try:
            compile(text, "odd.py", "exec", ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError):
            continue
        told += 1
        assert faults(text + RUN) == [], text


# -- growth


FEW, MANY = 300, 3_000
# One of these is a hundred lines, or a line of hundreds of characters.
LARGE = {"nested blocks": 60, "nested brackets": 6, "nested calls": 6}


@pytest.mark.parametrize("what", GROWING)
def test_steps_grow_with_the_source(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the source takes at most ten times the interpreted steps, and less where a budget ends the telling."""
    spent = 0

    class Counted(Interpreter):
        def forget(self) -> None:
            nonlocal spent
            super().forget()
            spent += self.given - self.left()

        def __init__(self, program: Program, choices: Choices, entry: str, steps: int) -> None:
            super().__init__(program, choices, entry, steps)
            self.given = self.left()

    monkeypatch.setattr("gradlint.lint.tell", functools.partial(tell, interpreter=Counted))

    def steps(count: int) -> int:
        nonlocal spent
        spent = 0
        assert faults(GROWING[what](count // LARGE.get(what, 1)) + WORTH) == []
        return spent

    few = steps(FEW)
    assert 0 < steps(MANY) <= max(few, 100) * MANY / FEW * 1.15


# -- what is installed


def installed() -> list[Path]:
    folders = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    found = sorted({path for folder in folders for path in folder.rglob("*.py") if path.stat().st_size < 200_000})
    return found if EVERYTHING else random.Random(7).sample(found, 120)  # noqa: S311 - no secret


def test_what_is_installed() -> None:
    for path in installed():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            assert faults(text) == [], path
