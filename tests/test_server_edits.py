"""Edits an open file at random: what the server tells must be what a fresh lint of the text tells.

A short run is part of the tests; `GRADLINT_EDITS=10000 python -m pytest tests/test_server_edits.py` is the long one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from language_client import Client, Found

from gradlint import run, sources, suppress
from gradlint.lint import lint
from gradlint.rule import Finding
from gradlint.rules import rules
from gradlint.sources import Source

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "fixtures" / "projects" / "segmentation" / "model.py"
EDITS = int(os.environ.get("GRADLINT_EDITS", "120"))
AT_ONCE = 20
"""So many edits lie between two looks."""

# What people type, beside what they delete: whole statements, halves of statements, and what breaks a file.
TYPED = st.one_of(
    st.sampled_from(
        [
            "x",
            " ",
            "\n",
            "    ",
            "\n    ",
            "(",
            ")",
            "'",
            '"""',
            "#",
            "\\",
            ".detach()",
            ".data",
            "loss.backward()",
            "optimizer.zero_grad()",
            "retain_graph=True",
            "y += x",
            "with torch.no_grad():",
            "if ",
            "return ",
            "# gradlint: allow[saved-tensor-mutated] reason",
            "\r\n",
            "\f",
            "\u2028",
            "\U0001d54f",
            "é",
        ]
    ),
    st.text(max_size=5),
)
EDIT = st.tuples(st.floats(0, 1), st.one_of(st.just(0), st.integers(0, 40)), TYPED)


@pytest.fixture(scope="module", params=["neovim", "visual_studio_code"])
def editor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str]]:
    folder = tmp_path_factory.mktemp("project") / "segmentation"
    shutil.copytree(MODEL.parent, folder)
    client = Client(request.param, [folder])
    yield client, client.open(folder / "model.py")
    client.close()


def fresh(folder: Path, path: Path, text: str) -> set[Found]:
    """What `gradlint check` would find in the file, were that its text."""
    wanted = run.wanted_by(run.Request([str(path)]))
    found: list[Finding] = []
    known: list[Source] = []
    for file in sorted(folder.glob("*.py")):
        content = text.encode() if file == path else file.read_bytes()
        source = sources.decode(str(file), content)
        if isinstance(source, Source):
            known.append(source)
        elif source is not None:
            found.append(source)
    found += lint(known, rules())
    allowed = {source.path: suppress.read(source, wanted.catalog.meant) for source in known}
    return {
        Found(finding.name, *finding.span[1:])
        for finding in found
        if finding.span.path == str(path) and wanted.tells(finding, allowed.get(str(path)))
    }


def apply(client: Client, uri: str, edits: list[tuple[float, int, str]]) -> None:
    for where, length, typed in edits:
        text = client.documents[uri].text
        start = int(where * len(text))
        end = min(start + length, len(text))
        # No position of the protocol is between these two.
        start -= text[start - 1 : start + 1] == "\r\n"
        end += text[end - 1 : end + 1] == "\r\n"
        client.change(uri, [(start, end, typed)])


@settings(
    max_examples=max(1, EDITS // AT_ONCE),
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(edits=st.lists(EDIT, min_size=AT_ONCE, max_size=AT_ONCE), again=st.booleans())
def test_what_is_told_is_of_the_text_as_it_is(
    editor: tuple[Client, str], edits: list[tuple[float, int, str]], again: bool
) -> None:
    client, uri = editor
    if again:
        # Else soon nothing is left that parses.
        client.write(uri, MODEL.read_text())
    apply(client, uri, edits)
    path = Path(client.folders[0], MODEL.name)
    client.diagnostics(uri)
    client.eventually(uri, fresh(path.parent, path, client.documents[uri].text))


def test_memory_does_not_grow(editor: tuple[Client, str]) -> None:
    client, uri = editor
    text = MODEL.read_text()
    client.write(uri, f"\n{text}")
    sizes = []
    for turn in range(4):
        for number in range(25 * max(1, EDITS // 400)):
            # The first line is another one each time, and the text does not grow.
            client.change(uri, [(0, len(client.documents[uri].text) - len(text) - 1, f"# {turn} {number}")])
            client.diagnostics(uri)
        sizes.append(_resident(client.process.pid))
    # The first turn is what every server needs.
    assert sizes[-1] < sizes[1] * 1.1, sizes


def _resident(pid: int) -> int:
    """The memory of a process and its children, in pages."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return own + sum(_resident(int(child)) for child in children)
