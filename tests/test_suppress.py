"""Comments that allow a finding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from command import Command

pytest_plugins = ("command",)

FIND = "# find saved-tensor-mutated m"


@pytest.mark.parametrize(
    "source",
    [
        "x += 1  {f} # gradlint: allow[saved-tensor-mutated] on purpose",
        "x += 1  {f} # gradlint: allow[saved_tensor_mutated]",
        "x += 1  {f} # gradlint:allow[GL201]",
        "x += 1  {f} # gradlint: allow[GL2]",
        "x += 1  {f} # gradlint: allow[dropped-result, GL201] both",
        "# gradlint: allow[saved-tensor-mutated] on purpose\nx += 1  {f}",
        "# gradlint: allow[saved-tensor-mutated] on purpose,\n# because it is so\nx += 1  {f}",
        "if x:\n    # gradlint: allow[GL201]\n    x += 1  {f}",
        "# gradlint: allow-file[saved-tensor-mutated] generated\n\n\nx += 1  {f}",
        "'''Text.'''\n# gradlint: allow-file[GL201]\nx += 1  {f}",
        "x += 1  {f} # noqa",
        "x += 1  {f} # NOQA",
        "x += 1  {f} # noqa: GL201",
        "x += 1  {f} # noqa:E501,GL201",
        "x += 1  {f} # noqa : E501 GL201 as it must be",
        "x += 1  {f} # type: ignore # noqa: GL2",
        "x = 'open\nx += 1  {f} # gradlint: allow[GL201]\n(((",
    ],
)
def test_allowed(command: Command, source: str) -> None:
    command.write({"a.py": source.format(f=FIND) + "\n"})
    result = command("check")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    "source",
    [
        "x += 1  {f} # gradlint: allow[dropped-result]",
        "x += 1  {f}\n# gradlint: allow[GL201]",
        "# gradlint: allow[GL201]\n\nx += 1  {f}",
        "y = 1  # gradlint: allow[GL201]\nx += 1  {f}",
        "s = '# gradlint: allow[GL201]'; x += 1  {f}",
        "s = '''\n# gradlint: allow[GL201]\nx''' ; x += 1  {f}",
        "s = '''\n# gradlint: allow-file[GL201]\n'''\nx += 1  {f}",
        "y = 1  # gradlint: allow-file[GL201]\nx += 1  {f}",
        "x += 1  {f} # noqa: E501",
        "x += 1  {f} # noqa: GL206",
        "# noqa\nx += 1  {f}",
        "x += 1  {f} # noqaGL201",
    ],
)
def test_not_allowed(command: Command, source: str) -> None:
    command.write({"a.py": source.format(f=FIND) + "\n"})
    result = command("check")
    assert (result.code, result.err) == (1, "")


@pytest.mark.parametrize(
    ("comment", "warning"),
    [
        (
            "allow[saved-tensor-mutatd]",
            "a.py:2: unknown rule `saved-tensor-mutatd`; did you mean `saved-tensor-mutated`?",
        ),
        ("allow[GL9]", "a.py:2: unknown rule `GL9`"),
        ("allow[]", "a.py:2: `gradlint: allow` names no rule; write `allow[name]`"),
        ("allow", "a.py:2: `gradlint: allow` names no rule"),
        ("ignore[GL201]", "a.py:2: `gradlint: ignore` means nothing; write `gradlint: allow[name]`"),
    ],
)
def test_comments_that_allow_nothing_are_told(command: Command, comment: str, warning: str) -> None:
    command.write({"a.py": f"\nx += 1  {FIND} # gradlint: {comment}\n"})
    result = command("check")
    assert result.code == 1
    assert f"gradlint: warning: {warning}" in result.err


def test_faults_are_not_allowed_away(command: Command) -> None:
    command.write({"a.py": "# gradlint: allow-file[ALL]\nx  # raise odd\n"})
    assert command("check").code == 3


def test_in_notebooks(command: Command) -> None:
    cells = [
        {"cell_type": "code", "source": f"!ls 'x\nx += 1  {FIND} # gradlint: allow[GL201]"},
        {"cell_type": "code", "source": f"x += 1  {FIND}\ny  # gradlint: allow[none]"},
    ]
    command.write({"n.ipynb": json.dumps({"cells": cells})})
    result = command("check", "--output-format", "concise")
    assert result.out.splitlines()[0] == "n.ipynb:cell 2:1:1: GL201 saved-tensor-mutated m"
    assert "n.ipynb:cell 2:2: unknown rule `none`" in result.err
