"""Programs of one shape and any length."""

from __future__ import annotations

from collections.abc import Callable

TORCH = "import torch\nfrom torch import nn\n"

GROWING: dict[str, Callable[[int], str]] = {
    "statements": lambda n: (
        TORCH + "x = torch.ones(2, requires_grad=True)\n" + "x = x * 2\n" * n + "x.sum().backward()\n"
    ),
    "statements without torch": lambda n: "x = f(1)\n" + "x = g(x, 2)\n" * n,
    "findings": lambda n: TORCH + "x = torch.ones(2, requires_grad=True)\n" + "x += 1\n" * n + "print(x)\n",
    "views": lambda n: TORCH + "w = torch.ones(2, requires_grad=True)\nx = w * 1\n" + "y = x[0]\nx += 1\n" * n,
    "sums": lambda n: TORCH + "l = torch.ones(1, requires_grad=True)\n" + "l = l + l * l\n" * n + "l.backward()\n" * 3,
    "classes": lambda n: (
        TORCH
        + "".join(
            f"class C{i}(nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(1, 1)\n"
            "    def forward(self, x):\n        return self.a(x).detach()\n"
            for i in range(n)
        )
    ),
    "lines of a function": lambda n: (
        TORCH + "def f(x, a):\n" + "    if a:\n        x = x.relu()\n    x += 1\n" * n + "    x.sum().backward()\n"
    ),
    "functions that call each other": lambda n: (
        TORCH
        + "".join(
            f"def f{i}(x):\n    x = f{(i + 1) % n}(x.relu())\n    return f{(i * 7) % n}(x).backward()\n"
            for i in range(n)
        )
        + "f0(torch.ones(1))\n"
    ),
    "branches": lambda n: (
        TORCH
        + "def f(x, a):\n"
        + "".join(f"    if a.f{i}:\n        x = x.detach()\n" for i in range(n))
        + "    x.backward()\n"
    ),
    "nested loops": lambda n: (
        TORCH
        + "x = torch.ones(1)\n"
        + "".join(
            "    " * (i % 8) + f"for i{i} in range(3):\n" + ("    " * 8 + "x = x + 1\n" if i % 8 == 7 else "")
            for i in range(n // 8 * 8)
        )
    ),
    "words": lambda n: "x = [" + "'word', " * n + "]\ny = {" + "'k': 1, " * n + "}\nprint(x, y)\n",
    "nested brackets": lambda n: TORCH + "x = torch.ones(1)\n" + f"y = {'[' * 90}x * 2{']' * 90}\n" * n,
    "nested blocks": lambda n: (
        TORCH
        + "def f(x, a):\n"
        + ("".join(f"{' ' * i}if a.f{i}:\n" for i in range(1, 91)) + " " * 91 + "x = x.detach()\n") * n
        + "    x.backward()\n"
    ),
    "nested calls": lambda n: (
        TORCH + "def f(x):\n    return x.relu()\nx = torch.ones(1)\n" + f"y = {'f(' * 90}x{')' * 90}\n" * n
    ),
    "elifs": lambda n: (
        TORCH
        + "def f(x, a):\n    if a == 0:\n        x = x.relu()\n"
        + "".join(f"    elif a == {i}:\n        x = x.detach()\n" for i in range(1, n))
        + "    x.backward()\n"
    ),
    "cases": lambda n: (
        TORCH
        + "def f(x, a):\n    match a:\n"
        + "".join(f"        case {i}:\n            x = x.detach()\n" for i in range(n))
        + "    x.backward()\n"
    ),
    "methods": lambda n: (
        TORCH
        + "class M(nn.Module):\n"
        + "".join(f"    def m{i}(self, x):\n        x += 1\n        return self.m{(i + 1) % n}(x)\n" for i in range(n))
        + "    def forward(self, x):\n        return self.m0(x)\n"
    ),
    "layers": lambda n: (
        TORCH
        + "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + "".join(f"        self.l{i} = nn.Linear(2, 2)\n" for i in range(n))
        + "    def forward(self, x):\n"
        + "".join(f"        x = self.l{i}(x)\n" for i in range(n))
        + "        return x\n"
    ),
    "keywords": lambda n: TORCH + "x = torch.ones(1)\ny = dict(" + ", ".join(f"k{i}=x * {i}" for i in range(n)) + ")\n",
}
"""Programs of a shape, by how often its pattern is repeated."""
