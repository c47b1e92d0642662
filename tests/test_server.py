"""The language server, spoken to as editors do: what is found, where it is shown, and that nothing ends the server.

A document says itself what must be found: `# want NAME at TEXT` is a finding on just that text of its line.  Each
case runs for editors that count columns differently, and that ask for diagnostics or are told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

import pytest
from language_client import EDITORS, LINE_END, PATIENCE, Client, Document, Found, Json, Refused, at, client, wanted

import gradlint
from gradlint.rules import rules

ROOT = Path(__file__).parent.parent
SEGMENTATION = ROOT / "fixtures" / "projects" / "segmentation"
# Whatever goes wrong between two processes shows as waiting.
pytestmark = pytest.mark.timeout(240)
each_editor = pytest.mark.parametrize("editor", EDITORS)
asking_and_told = pytest.mark.parametrize("editor", ["neovim", "visual_studio_code"])
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")

START = """\
import torch

x = torch.ones(3, requires_grad=True)
y = x.exp()
"""
MUTATED = START + "y.add_(1)  # want saved-tensor-mutated at y.add_(1)\ny.sum().backward()\n"
DOCUMENTS = {
    "plain": MUTATED,
    "nothing": START + "y.sum().backward()\n",
    "empty": "",
    "astral": START + "name = '🔥é'; y.add_(1)  # want saved-tensor-mutated at y.add_(1)\ny.sum().backward()\n",
    "astral inside": START
    + "y.add_(len('🔥'))  # want saved-tensor-mutated at y.add_(len('🔥'))\ny.sum().backward()\n",
    "lines end as on Windows": MUTATED.replace("\n", "\r\n"),
    "lines end in every way": MUTATED.replace("\n", "\r\n", 2).replace("y = x.exp()\n", "y = x.exp()\r"),
    "byte order mark": "\ufeff" + MUTATED.replace("\n\n", "\n").replace("\n", "; ", 3),
    "tabs": "import torch\n\n\ndef f(x: torch.Tensor) -> None:\n\tx.abs()  # want dropped-result at x.abs()\n",
    "allowed": MUTATED.replace("  # want", "  # gradlint: allow[saved-tensor-mutated] "),
    "two": MUTATED + "x.abs()  # want dropped-result at x.abs()\n",
    "syntax error": "import torch\nx = (  # want syntax-error at (\n",
    "no line end": MUTATED + "x.abs()  # want dropped-result at x.abs()",
}
DEPENDENT = """\
import torch
from torch import nn

from blocks import head

model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    y = head(model(torch.ones(2, 3)))
    y += 1
    y.sum().backward()
    optimizer.step()
"""
BLOCKS = "def head(x):\n    return x * 2\n"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """A client of each editor for the cases that leave the server as it was, started when one first asks."""
    with contextlib.ExitStack() as stack:

        class Started(dict[str, Client]):
            def __missing__(self, editor: str) -> Client:
                folder = tmp_path_factory.mktemp(editor)
                self[editor] = stack.enter_context(client(editor, folder))
                return self[editor]

        yield Started()


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes files, with the line ends that they have."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


# What is found, and where.


@each_editor
@pytest.mark.parametrize("name", DOCUMENTS)
def test_findings_are_those_of_the_marks(clients: dict[str, Client], editor: str, name: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / f"{name}.py", DOCUMENTS[name])
    assert one.findings(uri) == wanted(DOCUMENTS[name])
    one.shut(uri)


@asking_and_told
def test_the_findings_of_a_project_are_those_of_the_command(editor: str) -> None:
    told: dict[str, set[Found]] = {str(path): set() for path in sorted(SEGMENTATION.glob("*.py"))}
    for finding in gradlint.check(SEGMENTATION):
        told[finding.span.path].add(Found(finding.name, *finding.span[1:]))
    assert sum(map(len, told.values())) == 6
    with client(editor, SEGMENTATION) as one:
        # What other files show in one is known once these have been looked at.
        for path, findings in told.items():
            one.eventually(one.open(Path(path)), findings)


@each_editor
def test_a_diagnostic_carries_all_that_is_known(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    text = DOCUMENTS["astral"].replace("y = x.exp()", "name = '🔥é'; y = x.exp()")
    uri = one.open(one.folders[0] / "carries.py", text)
    (diagnostic,) = one.diagnostics(uri)
    assert diagnostic["severity"] == 1
    message, instead = diagnostic["message"].split("\n")
    assert message == "`add_` changes in place what `exp` kept for backward"
    assert instead.startswith("instead: use the operation that makes a new tensor")
    related = [
        (info["message"], text.split("\n")[line - 1][column - 1 : end_column - 1])
        for info in diagnostic["relatedInformation"]
        for line, column, _, end_column in [one.place(uri, info["location"]["range"])]
    ]
    assert related == [
        ("kept for backward here, as its result", "x.exp()"),
        ("changed here", "y.add_(1)"),
        ("backward needs it here", "y.sum().backward()"),
    ]
    page = Path(url2pathname(urlparse(diagnostic["codeDescription"]["href"]).path))
    assert "\n# " in page.read_text(encoding="utf-8")
    assert page.stem == "saved_tensor_mutated"
    one.shut(uri)


@each_editor
def test_edits_move_findings(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "edits.py", MUTATED)
    steps = [
        ("y.add_(1)  # want saved-tensor-mutated at y.add_(1)", "y.mul_(2)  # want saved-tensor-mutated at y.mul_(2)"),
        ("y.mul_(2)  # want", "name = '🔥é'; y.mul_(2)  # want"),
        ("'🔥é'", "'é🔥🔥'; label = '🔥'"),
        ("name = 'é🔥🔥'; label = '🔥'; ", ""),
        ("y = x.exp()", "y = x * 2\ny = y.exp()"),
        ("y.sum().backward()\n", "y.sum().backward()\nx.abs()  # want dropped-result at x.abs()\n"),
        ("y.mul_(2)  # want saved-tensor-mutated at y.mul_(2)\n", ""),
    ]
    assert one.findings(uri) == wanted(MUTATED)
    for old, new in steps:
        one.edit(uri, old, new)
        assert one.findings(uri) == wanted(one.documents[uri].text)
    one.shut(uri)


@each_editor
def test_edits_of_one_notification_follow_each_other(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "several.py", "a = '🔥'\nb = '🔥'\n")
    one.change(uri, [(0, 0, START), (len(START), len(START) + 7, "y.add_(1)"), (0, 0, "# '🔥'\r\n")])
    one.edit(uri, "b = '🔥'", "y.sum().backward()")
    text = "# '🔥'\r\n" + START + "y.add_(1)\ny.sum().backward()\n"
    assert one.documents[uri].text == text
    assert one.findings(uri) == {Found("saved-tensor-mutated", 6, 1, 6, 10)}
    one.shut(uri)


@each_editor
def test_a_syntax_error_comes_and_goes(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "broken.py", MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.edit(uri, "torch.ones(3,", "torch.ones((3,  # want syntax-error at (")
    assert {found.name for found in one.findings(uri)} == {"syntax-error"}
    one.edit(uri, "torch.ones((3,  # want syntax-error at (", "torch.ones(3,")
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)


@asking_and_told
def test_a_document_is_asked_for_or_told_of_and_never_both(editor: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(MUTATED)
    with client(editor, tmp_path) as one:
        uri = one.open(path)
        assert one.findings(uri) == wanted(MUTATED)
        one.edit(uri, "y = x.exp()", "\ny = x.exp()")
        assert one.findings(uri) == wanted(one.documents[uri].text)
        one.shut(uri)
        if one.pulls:
            one.settle()
            assert not one.told("textDocument/publishDiagnostics")
        else:
            one.wait(
                lambda m: m.get("method") == "textDocument/publishDiagnostics" and not m["params"]["diagnostics"],
                "empty list once the document is closed",
            )
            assert one.shown(uri) == []
            uri = one.open(path)
            assert one.findings(uri) == wanted(MUTATED)
            report = one.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
            assert report["items"] == []


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    with client("neovim", tmp_path) as one:
        uri = one.open(tmp_path / "a.py", MUTATED)
        document = {"textDocument": {"uri": uri}}
        first = one.request("textDocument/diagnostic", document)
        again = one.request("textDocument/diagnostic", {**document, "previousResultId": first["resultId"]})
        assert again == {"kind": "unchanged", "resultId": first["resultId"]}
        one.edit(uri, "y.add_(1)  # want saved-tensor-mutated at y.add_(1)\n", "")
        report = one.request("textDocument/diagnostic", {**document, "previousResultId": first["resultId"]})
        assert (report["kind"], report["items"]) == ("full", [])


@pytest.mark.parametrize(
    "name",
    ["a b.py", "ü🔥.py", "100%.py", "a#b.py", "[a].py", "a+b.py"],
)
def test_any_file_name(clients: dict[str, Client], name: str) -> None:
    for editor in ("neovim", "visual_studio_code"):
        one = clients[editor]
        path = one.folders[0] / name
        path.write_text(MUTATED)
        uri = one.open(path)
        assert one.findings(uri) == wanted(MUTATED)
        one.shut(uri)


@each_editor
@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "file:///nowhere/of/any/kind/a.py"])
def test_a_document_that_is_not_on_disk(clients: dict[str, Client], editor: str, uri: str) -> None:
    one = clients[editor]
    one.open(uri, MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)


def test_a_virtual_document_of_a_notebook_is_python(clients: dict[str, Client]) -> None:
    # As JupyterLab sends a notebook: all its cells in one document of Python, under the notebook's name.
    one = clients["visual_studio_code"]
    uri = one.open((one.folders[0] / ".virtual_documents" / "a.ipynb").as_uri(), MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)


# Files that are not open, and what stands in others.


@asking_and_told
def test_an_unsaved_text_counts_where_it_is_imported(editor: str, tmp_path: Path) -> None:
    write(tmp_path, {"blocks.py": BLOCKS, "train.py": DEPENDENT})
    with client(editor, tmp_path) as one:
        train = one.open(tmp_path / "train.py")
        assert one.findings(train) == set()
        blocks = one.open(tmp_path / "blocks.py")
        assert one.findings(blocks) == set()
        one.edit(blocks, "x * 2", "x.exp()")
        mutated = {Found("saved-tensor-mutated", 11, 5, 11, 11)}
        one.eventually(train, mutated)
        (diagnostic,) = one.diagnostics(train) if one.pulls else one.shown(train)
        places = {info["location"]["uri"] for info in diagnostic["relatedInformation"]}
        assert places == {train, blocks}
        # Closed without being saved: the file on disk counts again.
        one.shut(blocks)
        one.eventually(train, set())


@asking_and_told
def test_a_file_that_changes_on_disk_counts_where_it_is_imported(editor: str, tmp_path: Path) -> None:
    write(tmp_path, {"train.py": DEPENDENT})
    with client(editor, tmp_path) as one:
        train = one.open(tmp_path / "train.py")
        assert one.findings(train) == set()
        blocks = tmp_path / "blocks.py"
        mutated = {Found("saved-tensor-mutated", 11, 5, 11, 11)}
        blocks.write_text(BLOCKS.replace("x * 2", "x.exp()"))
        one.watch(blocks, kind=1)
        one.eventually(train, mutated)
        blocks.write_text(BLOCKS)
        one.watch(blocks)
        one.eventually(train, set())
        blocks.write_text(BLOCKS.replace("x * 2", "x.exp()"))
        one.watch(blocks)
        one.eventually(train, mutated)
        blocks.unlink()
        one.watch(blocks, kind=3)
        one.eventually(train, set())


def workspace(one: Client, known: dict[str, str]) -> dict[str, Json]:
    """The reports on all files of the workspace, by URI; `known` are the results of an earlier request."""
    previous = [{"uri": uri, "value": result} for uri, result in known.items()]
    report = one.request("workspace/diagnostic", {"previousResultIds": previous})
    return {item["uri"]: item for item in report["items"]}


def test_files_that_are_not_open_are_reported(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": MUTATED, "deep/b.py": MUTATED, "c.py": DOCUMENTS["nothing"]})
    a, b, c = (tmp_path / name for name in ("a.py", "deep/b.py", "c.py"))
    with client("visual_studio_code_pull", tmp_path) as one:
        assert one.server["diagnosticProvider"]["workspaceDiagnostics"]
        one.open(c, DOCUMENTS["two"])
        first = workspace(one, {})
        assert {uri: len(item["items"]) for uri, item in first.items() if item["items"]} == {
            a.as_uri(): 1,
            b.as_uri(): 1,
            c.as_uri(): 2,
        }
        known = {uri: item["resultId"] for uri, item in first.items()}
        assert {item["kind"] for item in workspace(one, known).values()} <= {"unchanged"}
        a.write_text(DOCUMENTS["nothing"])
        one.watch(a)
        b.unlink()
        one.watch(b, kind=3)
        # What is gone must not stay in the list of problems.  The client asks often, and is answered at once.
        shown = {uri: len(item["items"]) for uri, item in first.items()}
        deadline = time.monotonic() + PATIENCE
        while shown != {a.as_uri(): 0, b.as_uri(): 0, c.as_uri(): 2} and time.monotonic() < deadline:
            for uri, item in workspace(one, known).items():
                if item["kind"] == "full":
                    shown[uri] = len(item["items"])
                known[uri] = item["resultId"]
        assert shown == {a.as_uri(): 0, b.as_uri(): 0, c.as_uri(): 2}


@asking_and_told
def test_each_folder_has_its_own_configuration(editor: str, tmp_path: Path) -> None:
    one_root, other_root = tmp_path / "one", tmp_path / "other"
    write(one_root, {"a.py": DOCUMENTS["two"], "pyproject.toml": '[tool.gradlint]\nignore = ["dropped-result"]\n'})
    write(other_root, {"a.py": DOCUMENTS["two"], "pyproject.toml": '[tool.gradlint]\nselect = ["GL1"]\n'})
    with client(editor, one_root, other_root) as one:
        names = [{found.name for found in one.findings(one.open(root / "a.py"))} for root in (one_root, other_root)]
        assert names == [{"saved-tensor-mutated"}, {"dropped-result"}]


@asking_and_told
def test_the_configuration_can_change(editor: str, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    write(tmp_path, {"a.py": DOCUMENTS["two"], "pyproject.toml": "[tool.gradlint]\n"})
    both = wanted(DOCUMENTS["two"])
    mutated = {found for found in both if found.name == "saved-tensor-mutated"}
    with client(editor, tmp_path) as one:
        uri = one.open(tmp_path / "a.py")
        assert one.findings(uri) == both
        settings.write_text('[tool.gradlint]\nignore = ["dropped-result"]\n')
        one.watch(settings)
        one.eventually(uri, mutated)
        # Open in the editor, it counts once it is saved.
        toml = one.open(settings, language="toml")
        one.edit(toml, 'ignore = ["dropped-result"]\n', "")
        one.settle()
        one.save(settings)
        one.eventually(uri, both)


@asking_and_told
def test_a_broken_configuration_is_told_and_the_server_lives(editor: str, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    write(tmp_path, {"a.py": DOCUMENTS["two"], "pyproject.toml": '[tool.gradlint]\nignore = ["dropped-result"]\n'})
    with client(editor, tmp_path) as one:
        uri = one.open(tmp_path / "a.py")
        assert len(one.findings(uri)) == 1
        for broken, what in [("[tool.gradlint\n", "not valid TOML"), ('[tool.gradlint]\nselekt = ["GL1"]\n', "selekt")]:
            seen = len(one.received)
            settings.write_text(broken)
            one.watch(settings)
            said = one.wait(lambda m: m.get("method") == "window/showMessage", "message to the user", seen)
            assert what in said["params"]["message"]
            assert str(settings) in said["params"]["message"]
        settings.write_text("[tool.gradlint]\n")
        one.watch(settings)
        one.eventually(uri, wanted(DOCUMENTS["two"]))


def test_a_configuration_that_is_broken_from_the_start(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": MUTATED, "pyproject.toml": "[tool.gradlint\n"})
    with client("visual_studio_code", tmp_path) as one:
        uri = one.open(tmp_path / "a.py")
        one.wait(lambda m: m.get("method") == "window/showMessage", "message to the user")
        (tmp_path / "pyproject.toml").write_text("[tool.gradlint]\n")
        one.watch(tmp_path / "pyproject.toml")
        one.eventually(uri, wanted(MUTATED))


def test_excluded_files_are_left_alone(tmp_path: Path) -> None:
    settings = '[tool.gradlint]\nextend-exclude = ["third_party"]\n'
    write(tmp_path, {"third_party/a.py": MUTATED, "b.py": MUTATED, "pyproject.toml": settings})
    with client("visual_studio_code_pull", tmp_path) as one:
        assert one.findings(one.open(tmp_path / "third_party" / "a.py")) == set()
        reported = {uri for uri, item in workspace(one, {}).items() if item["items"]}
        assert reported == {(tmp_path / "b.py").as_uri()}


def test_files_that_nobody_asked_for_are_left_alone_when_they_change(tmp_path: Path) -> None:
    write(tmp_path, {"b.py": MUTATED, ".gitignore": "build/\n"})
    (tmp_path / ".git").mkdir()
    with client("visual_studio_code_pull", tmp_path) as one:
        assert one.findings(one.open(tmp_path / "b.py")) == wanted(MUTATED)
        # As when packages are installed, or something is built.
        installed, built, made = (tmp_path / name for name in (".venv/lib/a.py", "build/a.py", "c.py"))
        write(tmp_path, {".venv/lib/a.py": MUTATED, "build/a.py": MUTATED, "c.py": MUTATED})
        one.watch(installed, built, made, kind=1)
        known: dict[str, Json] = {}
        while made.as_uri() not in known:
            known = {uri: item for uri, item in workspace(one, {}).items() if item["items"]}
        assert known.keys() == {(tmp_path / "b.py").as_uri(), made.as_uri()}


# What is offered.


def hover(one: Client, uri: str, text: str) -> Json | None:
    """The hover over the first character of the text in the document."""
    document = one.documents[uri]
    position = document.position(document.text.index(text), one.units)
    answer: Json | None = one.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": position})
    return answer


@each_editor
def test_hover_explains_a_finding(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    text = DOCUMENTS["astral"]
    uri = one.open(one.folders[0] / "hover.py", text)
    one.findings(uri)
    answer = hover(one, uri, "y.add_(1)")
    assert answer is not None
    assert answer["contents"]["kind"] == "markdown"
    said = answer["contents"]["value"]
    page = next(rule.page for rule in rules() if rule.name == "saved-tensor-mutated")
    for part in (
        "`add_` changes in place what `exp` kept",
        "kept for backward here",
        "**Instead:**",
        page.section("Why"),
    ):
        assert part in said
    if "range" in answer:
        assert one.place(uri, answer["range"]) == next(iter(wanted(text)))[1:]
    assert hover(one, uri, "import torch") is None
    assert hover(one, uri, "name = ") is None
    one.shut(uri)


@each_editor
def test_a_finding_can_be_allowed(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    text = DOCUMENTS["astral"].replace("  # want saved-tensor-mutated at y.add_(1)", "")
    uri = one.open(one.folders[0] / "allow.py", text)
    diagnostics = one.diagnostics(uri)
    titles = {action["title"]: action for action in one.actions(uri, diagnostics)}
    assert "Explain saved-tensor-mutated" in titles
    allow = titles["Allow saved-tensor-mutated here"]
    assert allow["kind"] == "quickfix"
    assert [one["code"] for one in allow["diagnostics"]] == ["saved-tensor-mutated"]
    one.do(allow)
    assert one.findings(uri) == set()
    assert "y.add_(1)  # gradlint: allow[saved-tensor-mutated] " in one.documents[uri].text
    one.shut(uri)


def test_allowing_keeps_the_line_ends(clients: dict[str, Client]) -> None:
    one = clients["visual_studio_code"]
    text = LINE_END.sub("\r\n", START + "y.add_(1)  # a comment\ny.sum().backward()\n")
    uri = one.open(one.folders[0] / "ends.py", text)
    (diagnostic,) = one.diagnostics(uri)
    (allow,) = (action for action in one.actions(uri, [diagnostic]) if action["title"].startswith("Allow"))
    one.do(allow)
    assert one.findings(uri) == set()
    after = one.documents[uri].text
    assert after.count("\r\n") == after.count("\n") >= text.count("\n")
    one.shut(uri)


@each_editor
def test_actions_are_of_the_kind_that_is_asked_for(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "kinds.py", DOCUMENTS["two"])
    diagnostics = one.diagnostics(uri)
    kinds = {action["kind"] for action in one.actions(uri, diagnostics, only=["quickfix"])}
    assert kinds == {"quickfix"}
    assert all(
        action["kind"].startswith("source.fixAll") for action in one.actions(uri, [], only=["source.fixAll.gradlint"])
    )
    assert one.actions(uri, diagnostics, only=["refactor.rename"]) == []
    assert one.actions(uri, [], only=["source.organizeImports"]) == []
    one.shut(uri)


KEPT = """\
import torch

x = torch.ones(3, requires_grad=True)
losses = []
total = 0.0
for _ in range(3):
    loss = (x * x).sum()
    loss.backward()
    label = '🔥é'; losses.append(loss)  # want live-graph-kept at losses.append(loss)
    total += loss  # want live-graph-kept at total += loss
"""


@each_editor
def test_a_finding_can_be_repaired(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "repair.py", KEPT)
    assert one.findings(uri) == wanted(KEPT)
    diagnostics = one.diagnostics(uri)
    first = next(diagnostic for diagnostic in diagnostics if one.place(uri, diagnostic["range"])[0] == 9)
    actions = one.actions(uri, [first])
    assert [action.get("isPreferred", False) for action in actions] == [True] + [False] * (len(actions) - 1)
    one.do(actions[0])
    repaired = KEPT.replace("append(loss)  # want live-graph-kept at losses.append(loss)", "append(loss.detach())  #")
    assert one.documents[uri].text.startswith(repaired.partition("#")[0])
    one.edit(uri, "# want live-graph-kept at losses.append(loss)", "#")
    assert one.findings(uri) == wanted(repaired)
    one.shut(uri)


@each_editor
@pytest.mark.parametrize("how", ["Fix all live-graph-kept in this file", "source.fixAll.gradlint", "gradlint.fixAll"])
def test_all_findings_of_a_file_can_be_repaired(clients: dict[str, Client], editor: str, how: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / f"{how}.py", KEPT)
    assert one.findings(uri) == wanted(KEPT)
    if how == "gradlint.fixAll":
        one.request("workspace/executeCommand", {"command": how, "arguments": [uri]})
    elif how == "source.fixAll.gradlint":
        (action,) = one.actions(uri, [], only=[how])
        one.do(action)
    else:
        one.do(next(action for action in one.actions(uri, one.diagnostics(uri)[:1]) if action["title"] == how))
    assert one.findings(uri) == set()
    assert one.documents[uri].text.count("loss.detach()") == 2
    assert one.actions(uri, [], only=["source.fixAll"]) == []
    one.shut(uri)


def test_a_rule_can_be_explained(tmp_path: Path) -> None:
    with client("visual_studio_code_pull", tmp_path) as one:
        assert "gradlint.explain" in one.server["executeCommandProvider"]["commands"]
        uri = one.open(tmp_path / "a.py", MUTATED)
        explain = next(a for a in one.actions(uri, one.diagnostics(uri)) if a["title"].startswith("Explain"))
        page = next(rule.page for rule in rules() if rule.name == "saved-tensor-mutated")
        command = {"command": "gradlint.explain", "arguments": ["saved-tensor-mutated"]}
        assert explain["command"]["command"] == command["command"]
        assert explain["command"]["arguments"] == command["arguments"]
        assert page.section("Why") in one.request("workspace/executeCommand", command)
        (shown,) = one.told("window/showDocument")
        assert Path(url2pathname(urlparse(shown["uri"]).path)).stem == "saved_tensor_mutated"
        one.sane = False
        for wrong in ([], ["no-such-rule"], [7]):
            with contextlib.suppress(Refused):
                arguments = {"command": "gradlint.explain", "arguments": wrong}
                assert not one.request("workspace/executeCommand", arguments)
        with pytest.raises(Refused):
            one.request("workspace/executeCommand", {"command": "gradlint.nothing", "arguments": []})
        assert one.findings(uri) == wanted(MUTATED)


@asking_and_told
def test_a_finding_can_be_confirmed(editor: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = json.dumps([sys.executable, "a.py"])
    write(tmp_path, {"a.py": KEPT, "pyproject.toml": f"[tool.gradlint.confirm]\ncommand = {command}\n"})
    with client(editor, tmp_path) as one:
        uri = one.open(tmp_path / "a.py")
        assert one.findings(uri) == wanted(KEPT)
        first = next(found for found in one.diagnostics(uri) if one.place(uri, found["range"])[0] == 9)
        actions = one.actions(uri, [first])
        confirm = next(action["command"] for action in actions if action["title"].startswith("Confirm"))
        assert confirm["arguments"][0] == uri
        request = {"command": confirm["command"], "arguments": confirm["arguments"]}
        assert one.request("workspace/executeCommand", request, timeout=200) == "confirmed"
        # The place stays, and says what came of it.
        if not one.pulls:
            one.wait(lambda m: "confirmed: " in str((m.get("params") or {}).get("diagnostics")), "verdict")
        shown = one.diagnostics(uri) if one.pulls else one.shown(uri)
        assert one.found(uri, shown) == wanted(KEPT)
        assert ["confirmed: " in found["message"] for found in shown if found["range"] == first["range"]] == [True]


@linux
def test_a_run_that_is_cancelled_is_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = json.dumps([sys.executable, "a.py"])
    text = "import time\ntime.sleep(1000)\n" + KEPT
    write(tmp_path, {"a.py": text, "pyproject.toml": f"[tool.gradlint.confirm]\ncommand = {command}\n"})
    with client("visual_studio_code_pull", tmp_path) as one:
        uri = one.open(tmp_path / "a.py")
        diagnostic = one.diagnostics(uri)[0]
        request = {"command": "gradlint.confirm", "arguments": [uri, diagnostic["data"]]}
        number = one.start("workspace/executeCommand", request)
        begun = one.wait(lambda m: m.get("method") == "$/progress" and m["params"]["value"]["kind"] == "begin", "begin")
        one.wait(lambda m: "this executes your program" in str(m.get("params")), "start of the run")
        one.notify("window/workDoneProgress/cancel", {"token": begun["params"]["token"]})
        assert one.finish(number) == ""
        one.wait(lambda m: m.get("method") == "$/progress" and m["params"]["value"]["kind"] == "end", "end")
        end = time.monotonic() + PATIENCE
        while left := [line for line in children(one.process.pid).values() if " confirm " in line]:
            assert time.monotonic() < end, left
            time.sleep(0.1)


def test_training_loops_and_modules_count_their_findings(tmp_path: Path) -> None:
    head = "class Head(nn.Module):\n    def forward(self, x):\n        return x * 2\n\n\nhead = Head()\n"
    write(
        tmp_path,
        {"a.py": DEPENDENT.replace("from blocks import head\n", head).replace("    optimizer.zero_grad()\n", "")},
    )
    lenses: list[tuple[Json, list[str]]] = [({}, [])]
    lenses.append(({"codeLens": True}, ["Head: no findings", "training loop: 1 finding"]))
    for options, titles in lenses:
        with client("visual_studio_code_pull", tmp_path, options=options) as one:
            uri = one.open(tmp_path / "a.py")
            shown = one.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
            assert [lens["command"]["title"] for lens in shown] == titles


# Notebooks.


class Notebook:
    """A notebook that the client has open."""

    def __init__(self, one: Client, path: Path, cells: Sequence[str]) -> None:
        self.client = one
        self.path = path
        self.version = 1
        self.cells: list[str] = []
        """Their URIs, in order."""
        self._count = 0
        opened = [self._new(text) for text in cells]
        one.notify(
            "notebookDocument/didOpen",
            {
                "notebookDocument": {
                    "uri": path.as_uri(),
                    "notebookType": "jupyter-notebook",
                    "version": 1,
                    "cells": [cell for cell, _ in opened],
                },
                "cellTextDocuments": [text for _, text in opened],
            },
        )
        self.cells = [cell["document"] for cell, _ in opened]

    def _new(self, text: str) -> tuple[Json, Json]:
        """A cell and its document; a text that begins with `#%% ` is Markdown."""
        self._count += 1
        uri = f"vscode-notebook-cell:{urlparse(self.path.as_uri()).path}#W{self._count}sZmlsZQ%3D%3D"
        self.client.documents[uri] = Document(uri, text)
        markdown = text.startswith("#%% ")
        document = {"uri": uri, "languageId": "markdown" if markdown else "python", "version": 1, "text": text}
        return {"kind": 1 if markdown else 2, "document": uri}, document

    def _change(self, change: Json) -> None:
        self.version += 1
        document = {"uri": self.path.as_uri(), "version": self.version}
        self.client.notify("notebookDocument/didChange", {"notebookDocument": document, "change": {"cells": change}})

    def edit(self, cell: int, old: str, new: str) -> None:
        """Replaces the one place where the cell has `old`."""
        document = self.client.documents[self.cells[cell]]
        start = document.text.index(old)
        place = {
            "start": document.position(start, self.client.units),
            "end": document.position(start + len(old), self.client.units),
        }
        document.text = document.text.replace(old, new)
        document.version += 1
        identifier = {"uri": document.uri, "version": document.version}
        self._change({"textContent": [{"document": identifier, "changes": [{"range": place, "text": new}]}]})

    def splice(self, start: int, count: int, texts: Sequence[str]) -> None:
        """Puts new cells in the place of some."""
        opened = [self._new(text) for text in texts]
        closed = self.cells[start : start + count]
        self.cells[start : start + count] = [cell["document"] for cell, _ in opened]
        array = {"start": start, "deleteCount": count, "cells": [cell for cell, _ in opened]}
        self._change(
            {
                "structure": {
                    "array": array,
                    "didOpen": [text for _, text in opened],
                    "didClose": [{"uri": uri} for uri in closed],
                }
            }
        )

    def move(self, first: int, second: int) -> None:
        """Lets two cells change their places; no document is opened or closed for it."""
        between = self.cells[first : second + 1]
        between[0], between[-1] = between[-1], between[0]
        self.cells[first : second + 1] = between
        kinds = [1 if self.client.documents[uri].text.startswith("#%% ") else 2 for uri in between]
        cells = [{"kind": kind, "document": uri} for kind, uri in zip(kinds, between, strict=True)]
        self._change({"structure": {"array": {"start": first, "deleteCount": len(cells), "cells": cells}}})

    def shut(self) -> None:
        """Closes it."""
        self.client.notify(
            "notebookDocument/didClose",
            {
                "notebookDocument": {"uri": self.path.as_uri()},
                "cellTextDocuments": [{"uri": uri} for uri in self.cells],
            },
        )

    def check(self, pushed: bool) -> None:
        """Wants the findings that the marks of the cells ask for."""
        for uri in self.cells:
            self.client.eventually(uri, wanted(self.client.documents[uri].text), pushed)


CELLS = (
    "#%% [markdown] y.add_(1)\nimport no",
    "%matplotlib inline\nimport torch\n!pip list\n",
    "x = torch.ones(3, requires_grad=True)\ny = x.exp()",
    "%%time\nname = '🔥é'; y.add_(1)  # want saved-tensor-mutated at y.add_(1)",
    "%%bash\nls 'x.abs()'",
    "y.sum().backward()\n\n\ndef f(t: torch.Tensor) -> None:\n    t.abs()  # want dropped-result at t.abs()\n",
)


@pytest.mark.parametrize("pushed", [True, False])
def test_notebooks(tmp_path: Path, pushed: bool) -> None:
    with client("visual_studio_code_pull", tmp_path, options={"notebookPull": not pushed}) as one:
        book = Notebook(one, tmp_path / "a.ipynb", CELLS)
        book.check(pushed)
        (diagnostic,) = one.shown(book.cells[3]) if pushed else one.diagnostics(book.cells[3])
        places = [info["location"]["uri"] for info in diagnostic["relatedInformation"]]
        assert places == [book.cells[2], book.cells[3], book.cells[5]]
        said = hover(one, book.cells[3], "y.add_(1)")
        assert said is not None
        assert "kept for backward" in said["contents"]["value"]

        book.edit(3, "y.add_(1)  # want saved-tensor-mutated at y.add_(1)", "y = y + 1")
        book.check(pushed)
        book.edit(3, "y = y + 1", "y.add_(2)  # want saved-tensor-mutated at y.add_(2)")
        book.check(pushed)
        # Without the cell that mutates, and with another one further down.
        gone = book.cells[3]
        book.splice(3, 1, [])
        book.check(pushed)
        if pushed:
            one.eventually(gone, set(), pushed)
        book.splice(3, 0, ["#%% [markdown] more", "y *= 2  # want saved-tensor-mutated at y *= 2"])
        book.check(pushed)
        # Mutated after backward: no harm is done.
        book.move(4, 6)
        for uri in book.cells:
            expected = {found for found in wanted(one.documents[uri].text) if found.name == "dropped-result"}
            one.eventually(uri, expected, pushed)
        book.move(4, 6)
        book.check(pushed)
        (allow,) = (
            action
            for action in one.actions(book.cells[4], one.shown(book.cells[4]) or one.diagnostics(book.cells[4]))
            if action["title"].startswith("Allow")
        )
        assert [*(allow["edit"].get("changes") or {})] == [book.cells[4]] or [
            change["textDocument"]["uri"] for change in allow["edit"]["documentChanges"]
        ] == [book.cells[4]]
        book.shut()
        one.settle()
        if pushed:
            assert not any(one.shown(uri) for uri in book.cells)
        else:
            assert not one.told("textDocument/publishDiagnostics")


def test_a_notebook_that_is_not_open_has_no_cells_to_report(tmp_path: Path) -> None:
    code: Json = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**code, "source": cell.splitlines(keepends=True)} for cell in CELLS[1:]]
    book = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    write(tmp_path, {"a.ipynb": json.dumps(book), "b.py": MUTATED})
    with client("visual_studio_code_pull", tmp_path, options={"notebookPull": True}) as one:
        assert {uri for uri, item in workspace(one, {}).items() if item["items"]} == {(tmp_path / "b.py").as_uri()}


# Nothing ends the server, and nothing outlives it.


def test_nonsense_is_survived(tmp_path: Path) -> None:
    with client("visual_studio_code_pull", tmp_path) as one:
        one.sane = False
        uri = one.open(tmp_path / "a.py", DOCUMENTS["astral"])
        document = {"uri": uri}
        positions = [at(-1, 0), at(0, -1), at(4, 9), at(4, 10_000), at(10_000, 0), at(2**31, 2**31)]
        for position in positions:
            with contextlib.suppress(Refused):
                one.request("textDocument/hover", {"textDocument": document, "position": position})
            for other in positions:
                range_ = {"start": position, "end": other}
                with contextlib.suppress(Refused):
                    one.request(
                        "textDocument/codeAction",
                        {"textDocument": document, "range": range_, "context": {"diagnostics": []}},
                    )
        requests: list[tuple[str, Json]] = [
            ("textDocument/hover", {}),
            ("textDocument/hover", {"textDocument": {"uri": "file:///not/open.py"}, "position": at(0, 0)}),
            ("textDocument/hover", {"textDocument": {"uri": "not a uri"}, "position": at(0, 0)}),
            ("textDocument/diagnostic", {"textDocument": {"uri": "file:///not/there.py"}}),
            ("textDocument/diagnostic", {"textDocument": 7}),
            ("textDocument/codeAction", {"textDocument": document}),
            ("codeAction/resolve", {"title": "?", "data": {"what": "is this"}}),
            ("workspace/executeCommand", {"command": "gradlint.fixAll", "arguments": ["file:///not/open.py"]}),
            ("workspace/executeCommand", {"command": "gradlint.confirm", "arguments": []}),
            ("gradlint/nothing", {}),
        ]
        for method, params in requests:
            with contextlib.suppress(Refused):
                one.request(method, params)
        notifications: list[tuple[str, Json]] = [
            ("textDocument/didChange", {"textDocument": {"uri": "file:///not/open.py", "version": 1}}),
            ("textDocument/didChange", {"textDocument": {"uri": "file:///n.py", "version": 1}, "contentChanges": []}),
            ("textDocument/didSave", {"textDocument": {"uri": "file:///not/open.py"}}),
            ("textDocument/didClose", {"textDocument": {"uri": "file:///not/open.py"}}),
            ("workspace/didChangeWatchedFiles", {"changes": [{"uri": "file:///not/there.py", "type": 2}]}),
            ("workspace/didChangeWatchedFiles", {"changes": [{"uri": "http://a/pyproject.toml", "type": 2}]}),
            ("workspace/didChangeConfiguration", {"settings": "nonsense"}),
            ("workspace/didChangeConfiguration", {"settings": {"gradlint": {"hover": 7}}}),
            ("notebookDocument/didClose", {"notebookDocument": {"uri": "file:///a.ipynb"}, "cellTextDocuments": []}),
            ("gradlint/nothing", {}),
            ("$/nothing", {}),
        ]
        for method, params in notifications:
            one.notify(method, params)
        assert one.findings(uri) == wanted(DOCUMENTS["astral"])


def test_a_change_of_a_place_that_is_not_there_is_survived(clients: dict[str, Client]) -> None:
    one = clients["visual_studio_code_pull"]
    uri = one.open(one.folders[0] / "places.py", DOCUMENTS["astral"])
    outside = at(10_000, 3)
    # In UTF-16, the tenth unit of the line is the second half of a character.
    for version, (start, end) in enumerate([(outside, outside), (at(4, 9), at(4, 9)), (at(5, 0), at(4, 0))], 2):
        change = {"range": {"start": start, "end": end}, "text": ""}
        one.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
        )
        one.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
    one.documents[uri].version = 10
    one.write(uri, MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)


@each_editor
def test_thousands_of_open_brackets_are_survived(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    uri = one.open(one.folders[0] / "brackets.py", "(" * 3_000)
    assert {found.name for found in one.findings(uri)} <= {"too-deep", "syntax-error"}
    assert one.findings(uri)
    one.write(uri, "x = " + "[" * 3_000 + "]" * 3_000 + "\n")
    assert {found.name for found in one.findings(uri)} <= {"too-deep", "syntax-error"}
    one.write(uri, MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)


@asking_and_told
def test_a_file_of_a_hundred_thousand_lines(clients: dict[str, Client], editor: str) -> None:
    one = clients[editor]
    text = "# 🔥\n" * 50_000 + "'''\n" + "'🔥' \n" * 49_998 + "'''\n" + MUTATED
    uri = one.open(one.folders[0] / "long.py", text)
    mark = wanted(text)
    assert {found.line for found in mark} == {100_005}
    assert one.findings(uri) == mark
    one.edit(uri, "y.add_(1)  # want saved-tensor-mutated at y.add_(1)", "pass")
    assert one.findings(uri) == set()
    one.shut(uri)


STEPS = "".join(f"    if flag[{number}]:\n        x = x.exp() + {number}\n" for number in range(8))
SLOW = "import torch\n" + "".join(f"def f{number}(x, flag):\n{STEPS}    return x\n" for number in range(300))


def test_a_request_can_be_cancelled(tmp_path: Path) -> None:
    with client("neovim", tmp_path) as one:
        uri = one.open(tmp_path / "a.py", SLOW)
        number = one.start("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        one.notify("$/cancelRequest", {"id": number})
        with pytest.raises(Refused) as refused:
            one.finish(number)
        assert refused.value.code == -32800
        one.write(uri, MUTATED)
        assert one.findings(uri) == wanted(MUTATED)


def test_twenty_quick_edits_are_told_once(tmp_path: Path) -> None:
    with client("visual_studio_code", tmp_path) as one:
        uri = one.open(tmp_path / "a.py", MUTATED)
        assert one.findings(uri) == wanted(MUTATED)
        seen = len(one.received)
        for number in range(20):
            one.edit(uri, f"y.add_({number + 1})  #", f"y.add_({number + 2})  #")
        one.edit(uri, "# want saved-tensor-mutated at y.add_(1)", "# want saved-tensor-mutated at y.add_(21)")
        assert one.findings(uri) == wanted(one.documents[uri].text)
        time.sleep(1)
        one.settle()
        assert [params["version"] for params in one.told("textDocument/publishDiagnostics", seen)] == [22]


def test_what_is_asked_for_between_quick_edits_is_answered(tmp_path: Path) -> None:
    with client("visual_studio_code_pull", tmp_path) as one:
        uri = one.open(tmp_path / "a.py", MUTATED)
        numbers = []
        for number in range(20):
            one.edit(uri, f"y.add_({number + 1})  #", f"y.add_({number + 2})  #")
            numbers.append(one.start("textDocument/diagnostic", {"textDocument": {"uri": uri}}))
        one.edit(uri, "# want saved-tensor-mutated at y.add_(1)", "# want saved-tensor-mutated at y.add_(21)")
        assert one.findings(uri) == wanted(one.documents[uri].text)
        for number in numbers:
            try:
                one.finish(number)
            except Refused as refused:
                # RequestCancelled, ContentModified, ServerCancelled: the client asks again.
                assert refused.code in (-32800, -32801, -32802)  # noqa: PT017


def children(pid: int) -> dict[int, str]:
    """The processes that descend from one, each with its command line."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (folder / "stat").read_text(errors="replace")
            fields = status.rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                todo.append(child)
    return found


def running(pids: Sequence[int]) -> list[int]:
    """Which of the processes still run."""
    alive = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z":
                alive.append(pid)
    return alive


def end(pids: Sequence[int]) -> None:
    """Wants the processes to end by themselves."""
    deadline = time.monotonic() + 60
    while left := running(pids):
        if time.monotonic() > deadline:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"{len(left)} processes are left behind")
        time.sleep(0.05)


@linux
@asking_and_told
@pytest.mark.parametrize("moment", [0.0, 0.02, 0.4])
def test_a_worker_may_die_at_any_moment(tmp_path: Path, editor: str, moment: float) -> None:
    with client(editor, tmp_path) as one:
        uri = one.open(tmp_path / "a.py", MUTATED)
        assert one.findings(uri) == wanted(MUTATED)
        workers = [pid for pid, line in children(one.process.pid).items() if "resource_tracker" not in line]
        assert workers
        one.write(uri, SLOW)
        pending = one.start("textDocument/diagnostic", {"textDocument": {"uri": uri}}) if one.pulls else None
        time.sleep(moment)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pending is not None:
            with contextlib.suppress(Refused):
                one.finish(pending)
        one.write(uri, MUTATED)
        assert one.findings(uri) == wanted(MUTATED)


@linux
@pytest.mark.parametrize("busy", [False, True])
def test_nothing_is_left_when_the_input_ends(tmp_path: Path, busy: bool) -> None:
    one = Client("visual_studio_code", [tmp_path])
    try:
        uri = one.open(tmp_path / "a.py", MUTATED)
        assert one.findings(uri) == wanted(MUTATED)
        if busy:
            one.write(uri, SLOW)
        family = [one.process.pid, *children(one.process.pid)]
        assert len(family) > 1
        assert one.process.stdin is not None
        one.process.stdin.close()
        one.process.wait(60)
        end(family)
        assert "Traceback" not in one.errors()
    finally:
        one.kill()


VANISHING = """
import json, subprocess, sys, time
from pathlib import Path

def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    server.stdin.flush()

server = subprocess.Popen([sys.executable, "-m", "gradlint", "server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
uri = (Path.cwd() / "a.py").as_uri()
send({"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}})
send({"method": "initialized", "params": {}})
document = {"uri": uri, "languageId": "python", "version": 1, "text": sys.argv[1]}
send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
answer = b""
while b"publishDiagnostics" not in answer:
    length = int(server.stdout.readline().split()[1])
    while server.stdout.readline().strip():
        pass
    answer = server.stdout.read(length)
print(server.pid, flush=True)
time.sleep(600)
"""


@linux
def test_nothing_is_left_when_the_client_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", VANISHING, MUTATED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path) as editor:
        assert editor.stdout is not None
        server = int(editor.stdout.readline())
        family = [server, *children(server)]
        editor.kill()
    assert len(family) > 1
    end(family)


@linux
def test_nothing_is_left_when_the_client_that_was_named_is_gone(tmp_path: Path) -> None:
    # The pipe may be held open by others.
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as editor:
        one = Client("visual_studio_code", [tmp_path], process_id=editor.pid)
        try:
            uri = one.open(tmp_path / "a.py", MUTATED)
            assert one.findings(uri) == wanted(MUTATED)
            family = [one.process.pid, *children(one.process.pid)]
            editor.kill()
            editor.wait()
            one.process.wait(60)
            end(family)
        finally:
            editor.kill()
            one.kill()


@linux
def test_an_exit_without_a_shutdown_is_an_error(tmp_path: Path) -> None:
    one = Client("visual_studio_code", [tmp_path])
    try:
        uri = one.open(tmp_path / "a.py", MUTATED)
        assert one.findings(uri) == wanted(MUTATED)
        family = [one.process.pid, *children(one.process.pid)]
        one.notify("exit", {})
        assert one.process.wait(60) == 1
        end(family)
    finally:
        one.kill()


def test_what_is_no_message_is_survived_or_ends_the_server_cleanly(tmp_path: Path) -> None:
    one = Client("visual_studio_code", [tmp_path])
    try:
        uri = one.open(tmp_path / "a.py", MUTATED)
        one.sane = False
        one.send_bytes(b"Content-Length: 9\r\n\r\nnot json!")
        one.send_bytes(b"Content-Length: 2\r\n\r\n[]")
        one.send_bytes(b'Content-Length: 17\r\n\r\n{"jsonrpc":"2.0"}')
        assert one.findings(uri) == wanted(MUTATED)
    finally:
        one.close()


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['pygls'] = None\nsys.argv = ['gradlint', 'server']\n"
        "from gradlint.cli import main\nmain()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    (line,) = run.stderr.splitlines()
    assert "gradlint-torch[lsp]" in line


# Settings.


TENSOR = START + "z = y.detach()\n"


def test_hover_on_a_tensor_says_what_is_known_when_asked_to(tmp_path: Path) -> None:
    with client("visual_studio_code_pull", tmp_path) as one:
        uri = one.open(tmp_path / "a.py", TENSOR)
        assert one.findings(uri) == set()
        assert hover(one, uri, "y = x.exp()") is None
        one.notify("workspace/didChangeConfiguration", {"settings": {"gradlint": {"hover": {"tensors": True}}}})
        said = hover(one, uri, "y = x.exp()")
        assert said is not None
        assert "requires_grad" in said["contents"]["value"]
    with client("visual_studio_code_pull", tmp_path, settings={"hover": {"tensors": True}}) as one:
        uri = one.open(tmp_path / "a.py", TENSOR)
        assert one.findings(uri) == set()
        assert hover(one, uri, "y = x.exp()") is not None


def test_uris_are_told_as_they_were_given(clients: dict[str, Client]) -> None:
    # Editors write the same file differently, and know a document by the name that they gave it.
    one = clients["visual_studio_code"]
    path = one.folders[0] / "a b.py"
    path.write_text(MUTATED)
    odd = path.as_uri().replace("a%20b", "%61%20%62")
    assert unquote(odd) == unquote(path.as_uri())
    uri = one.open(odd, MUTATED)
    assert one.findings(uri) == wanted(MUTATED)
    one.shut(uri)
