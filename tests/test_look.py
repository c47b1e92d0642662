"""What an editor is told of a name: a mark `# look NAME` on a line, and what is known there each time."""

from __future__ import annotations

import re

import pytest

from gradlint.lint import Linter
from gradlint.rules import rules
from gradlint.shadow.look import look
from gradlint.sources import Source

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"

CASES = {
    "what is kept, and at which version": (
        """
        w = torch.ones(3, requires_grad=True)
        p = F.softmax(w, 0)
        p += 1  # look p
        p.sum().backward()
        """,
        [
            "requires_grad: yes · made by `add_`, line 6 · version 1",
            "kept for backward by `softmax` at version 0, line 5 · changed in place by `add_`, line 6",
        ],
    ),
    "a cut": (
        """
        w = torch.ones(3, requires_grad=True)
        x = (w * 2).detach()  # look x
        """,
        ["requires_grad: no · cut from the graph, line 5 · version 0"],
    ),
    "what cannot be known": (
        """
        def step(x):
            y = F.relu(x)  # look y
            return y.backward()
        """,
        [
            "requires_grad: maybe · made by `relu`, line 5 · version 0",
        ],
    ),
    "another at each turn of a loop": (
        """
        model = nn.Linear(2, 2)
        total = 0
        for x in torch.ones(5, 1, 2):
            total = total + model(x).sum()  # look total
        total.backward()
        """,
        [
            "requires_grad: yes · made by `add`, line 7 · version 0",
        ],
    ),
    "a module": (
        """
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        model.eval()
        model(torch.ones(2))  # look model
        """,
        ["Sequential, line 4 · 2 parameters · training: no"],
    ),
    "an optimizer": (
        """
        model = nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters())  # look optimizer
        """,
        ["Adam, line 5 · 2 parameters"],
    ),
    "an attribute is looked at as a whole": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(1))
            def forward(self, x):
                return x * self.scale  # look scale
        Net()(torch.ones(1)).backward()
        """,
        ["requires_grad: yes · a parameter, line 7 · version 0"],
    ),
    "what is no tensor": (
        """
        rate = 0.1  # look rate
        """,
        [],
    ),
    "what never runs": (
        """
        if False:
            x = torch.ones(1)  # look x
        """,
        [],
    ),
    "a file that does not parse": (
        """
        x = torch.ones(1  # look x
        """,
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_a_name(name: str) -> None:
    body, expected = CASES[name]
    text = HEAD + re.sub(r"^ {8}", "", body.lstrip("\n"), flags=re.MULTILINE)
    line, column = next(
        (number, re.search(rf"\b{mark[1]}\b", row).start() + 1)  # type: ignore[union-attr]
        for number, row in enumerate(text.split("\n"), 1)
        if (mark := re.search(r"# look (\w+)", row))
    )
    linter = Linter([Source("a.py", text)], rules())
    states = look(linter.program, "a.py", line, column, lambda: None)
    told = [" · ".join(f.text + (f", line {f.span.line}" if f.span else "") for f in state) for state in states]
    # Each case has one state at most, which may take more than one line here.
    assert told == ([" · ".join(expected)] if expected else [])
