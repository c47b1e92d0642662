"""No source, however odd, makes gradlint fail: what it cannot tell is a finding or nothing."""

from __future__ import annotations

import os
import random
import sysconfig
import threading
from pathlib import Path

import hypothesmith
import pytest
from hypothesis import HealthCheck, given, settings

from gradlint.isolate import RECURSION, STACK
from gradlint.lint import lint
from gradlint.rules import rules
from gradlint.sources import Source

EVERYTHING = "GRADLINT_FUZZ_EVERYTHING" in os.environ
"""Set, the sweeps take all files and many more programs; they run for hours."""

TORCH = "import torch\nfrom torch import nn\n"


def faults(text: str) -> list[str]:
    """The internal errors that `text` leads to, told with the worker's stack."""
    said: list[str] = []

    def work() -> None:
        said.extend(f.message for f in lint([Source("odd.py", text)], rules()) if f.name == "internal-error")

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
@given(hypothesmith.from_node())
def test_any_program(text: str) -> None:
    assert faults(text + "\n__main__\n") == []


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
    "a class that is its own base": "class A(A):\n    def forward(self, x):\n        x += 1\n        return A.forward(self, x)\n",
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
    "names beyond ASCII": "𝕏é = 'ü'\ndef ℌ(𝕩):\n    𝕩.backward()\nℌ(𝕏é)\n",
    "nothing": "",
    "only a comment": "# nothing",
}


@pytest.mark.parametrize("name", SHAPES)
def test_odd_shapes(name: str) -> None:
    assert faults(SHAPES[name]) == []


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
