"""An editor, as far as a language server can tell: speaks the protocol over pipes and is strict about what it reads.

Findings are what an editor would show: the name of the rule and the exact place, in characters from 1, whatever
units the client and the server have agreed on and whichever of them asks for diagnostics.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest_lsp
from lsprotocol.converters import get_converter

Json = dict[str, Any]
LINE_END = re.compile(r"\r\n|\r|\n")
WANT = re.compile(r"# want (?P<name>[\w-]+) at (?P<text>.*?)\s*$")
PATIENCE = 60.0
"""Seconds to wait for the server; machines that run tests on all cores are slow."""


class Found(NamedTuple):
    """A diagnostic as an editor shows it."""

    name: str
    line: int
    column: int
    end_line: int
    end_column: int


def wanted(text: str) -> set[Found]:
    """What the `# want NAME at TEXT` marks of a source ask for: a finding on just that text of the line."""
    found = set()
    for number, line in enumerate(LINE_END.split(text), 1):
        if mark := WANT.search(line):
            start = line.index(mark["text"])
            assert start < mark.start(), f"line {number} has no `{mark['text']}` before its mark"
            found.add(Found(mark["name"], number, start + 1, number, start + 1 + len(mark["text"])))
    return found


def capabilities(editor: str) -> Json:
    """What the editor says it can do."""
    recorded = pytest_lsp.client_capabilities(editor.removesuffix("_pull"))
    plain: Json = json.loads(json.dumps(get_converter().unstructure(recorded)))
    if editor.endswith("_pull"):
        # The recorded Visual Studio Code is older than these parts of the protocol.
        plain["textDocument"]["diagnostic"] = {"dynamicRegistration": True, "relatedDocumentSupport": False}
        plain["workspace"]["diagnostics"] = {"refreshSupport": True}
        plain["general"]["positionEncodings"] = ["utf-16"]
        plain["notebookDocument"] = {"synchronization": {"dynamicRegistration": True, "executionSummarySupport": True}}
    return plain


EDITORS = ("neovim", "visual_studio_code", "visual_studio_code_pull", "emacs")
"""Columns in bytes and asking for diagnostics, UTF-16 and being told, UTF-16 and asking, code points and being told."""


class Refused(Exception):
    """The server answered a request with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Silent(Exception):
    """The server did not say what was waited for."""


@dataclass
class Document:
    """A text that the client has open."""

    uri: str
    text: str
    version: int = 1
    since: int = 0
    """How much the server had said when the document was opened."""

    def offset(self, position: Json, units: Callable[[str], int]) -> int:
        """Where a position of the protocol is in the text."""
        starts = [0, *(end.end() for end in LINE_END.finditer(self.text))]
        start = starts[position["line"]]
        column = 0
        while units(self.text[start : start + column]) < position["character"]:
            column += 1
        return start + column

    def position(self, offset: int, units: Callable[[str], int]) -> Json:
        """The position of the protocol that an index into the text has."""
        starts = [0, *(end.end() for end in LINE_END.finditer(self.text, 0, offset))]
        return {"line": len(starts) - 1, "character": units(self.text[starts[-1] : offset])}

    def line(self, number: int) -> str:
        """The line of that number, from 0."""
        return LINE_END.split(self.text)[number]


@dataclass
class Client:
    """A client with a server of its own."""

    editor: str
    folders: Sequence[Path]
    options: Json = field(default_factory=dict)
    settings: Json | None = None
    """What it answers when the server asks for the section `gradlint`; None where it cannot be asked."""
    command: Sequence[str] = (sys.executable, "-m", "gradlint", "server")
    environment: Mapping[str, str] | None = None
    process_id: int | None = None
    """The process that the server is told to be the editor's."""

    def __post_init__(self) -> None:
        self.received: list[Json] = []
        """All that the server has sent, in order."""
        self.noise = b""
        """What the server has written that is no message."""
        self.sane = True
        """Whether all that is sent makes sense: then the server's log has no traceback."""
        self.documents: dict[str, Document] = {}
        self._arrived = threading.Condition()
        self._writing = threading.Lock()
        self._requests = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the client
        self.process = subprocess.Popen(
            [*self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self.folders[0],
            env=self.environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        known = capabilities(self.editor)
        known["workspace"]["configuration"] = self.settings is not None
        folders = [{"uri": folder.as_uri(), "name": folder.name} for folder in self.folders]
        answer = self.request(
            "initialize",
            {
                "processId": self.process_id,
                "rootUri": folders[0]["uri"],
                "workspaceFolders": folders,
                "capabilities": known,
                "initializationOptions": self.options,
            },
        )
        self.server: Json = answer["capabilities"]
        self.encoding: str = self.server.get("positionEncoding", "utf-16")
        self.pulls = "diagnostic" in known["textDocument"]
        self.notify("initialized", {})

    # The wire.

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            match = re.fullmatch(rb"Content-Length: (\d+)\r\n", header)
            if match is None:
                if not re.fullmatch(rb"Content-Type: [^\r\n]+\r\n", header):
                    self.noise += header
                continue
            while (line := stream.readline()) not in (b"\r\n", b""):
                if not line.startswith(b"Content-Type: "):
                    self.noise += line
            message: Json = json.loads(stream.read(int(match[1])))
            if "method" in message and "id" in message:
                with contextlib.suppress(OSError):
                    self.send(
                        {"id": message["id"], "result": self._answer(message["method"], message.get("params") or {})}
                    )
            with self._arrived:
                self.received.append(message)
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def _answer(self, method: str, params: Json) -> object:
        if method == "workspace/configuration":
            return [self.settings if item.get("section") == "gradlint" else None for item in params["items"]]
        if method == "workspace/applyEdit":
            self.apply(params["edit"])
            return {"applied": True}
        return {"success": True} if method == "window/showDocument" else None

    def send(self, message: Json) -> None:
        """Sends a message as it is."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def send_bytes(self, data: bytes) -> None:
        """Sends what may be no message at all."""
        assert self.process.stdin is not None
        with self._writing:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def notify(self, method: str, params: Json) -> None:
        """Sends a notification."""
        self.send({"method": method, "params": params})

    def start(self, method: str, params: Json) -> int:
        """Sends a request and does not wait for its answer, which has the number that is returned."""
        self._requests += 1
        self.send({"id": self._requests, "method": method, "params": params})
        return self._requests

    def finish(self, number: int, timeout: float = PATIENCE) -> Any:  # noqa: ANN401 - each request has its own answer
        """The answer to a request.  Raises Refused."""
        answer = self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}", timeout=timeout)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def request(self, method: str, params: Json | None = None, timeout: float = PATIENCE) -> Any:  # noqa: ANN401
        """Sends a request and waits for its answer.  Raises Refused."""
        return self.finish(self.start(method, params or {}), timeout)

    def wait(self, meant: Callable[[Json], bool], what: str, since: int = 0, timeout: float = PATIENCE) -> Json:
        """The first message from `since` on that is meant.  Raises Silent."""
        end = time.monotonic() + timeout
        with self._arrived:
            while True:
                for message in self.received[since:]:
                    if meant(message):
                        return message
                since = len(self.received)
                left = end - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise Silent(f"no {what}; standard error: {self.errors()}")
                self._arrived.wait(min(left, 0.5))

    def told(self, method: str, since: int = 0) -> list[Json]:
        """The parameters of all notifications and requests of that name so far."""
        with self._arrived:
            return [message["params"] for message in self.received[since:] if message.get("method") == method]

    def settle(self) -> None:
        """Returns when the server has answered to what it was sent before."""
        self.request("textDocument/hover", {"textDocument": {"uri": "file:///none.py"}, "position": at(0, 0)})

    def errors(self) -> str:
        """What the server has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def close(self) -> None:
        """Ends the server as an editor does, and wants it gone without a word that is no message."""
        try:
            self.request("shutdown", None)
            self.notify("exit", {})
            assert self.process.wait(PATIENCE) == 0
            self._reader.join(PATIENCE)
            assert self.noise == b""
            assert not self.sane or "Traceback" not in self.errors(), self.errors()
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the server as no editor should."""
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self._errors.close()

    # Documents.

    def units(self, text: str) -> int:
        """How long a text is in the units that client and server have agreed on."""
        if self.encoding == "utf-32":
            return len(text)
        return len(text.encode("utf-8")) if self.encoding == "utf-8" else len(text.encode("utf-16-le")) // 2

    def open(self, path: Path | str, text: str | None = None, language: str = "python") -> str:
        """Opens a file, with its text on disk unless another one is given, and returns its URI."""
        uri = path if isinstance(path, str) else path.as_uri()
        if text is None:
            assert isinstance(path, Path)
            text = path.read_bytes().decode()
        self.documents[uri] = Document(uri, text, since=len(self.received))
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    def edit(self, uri: str, old: str, new: str) -> None:
        """Replaces the one place where the document has `old`."""
        document = self.documents[uri]
        assert document.text.count(old) == 1, f"{document.text.count(old)} places have {old!r}"
        start = document.text.index(old)
        self.change(uri, [(start, start + len(old), new)])

    def change(self, uri: str, edits: Sequence[tuple[int, int, str]]) -> None:
        """Replaces stretches of the text, one after the other, in one notification."""
        document = self.documents[uri]
        changes = []
        for start, end, new in edits:
            place = {
                "start": document.position(start, self.units),
                "end": document.position(end, self.units),
            }
            changes.append({"range": place, "text": new})
            document.text = document.text[:start] + new + document.text[end:]
        document.version += 1
        self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": document.version}, "contentChanges": changes},
        )

    def write(self, uri: str, text: str) -> None:
        """Replaces the whole document."""
        document = self.documents[uri]
        document.text = text
        document.version += 1
        self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": document.version}, "contentChanges": [{"text": text}]},
        )

    def save(self, path: Path) -> None:
        """Writes a document to its file and says so."""
        uri = path.as_uri()
        path.write_bytes(self.documents[uri].text.encode())
        self.notify("textDocument/didSave", {"textDocument": {"uri": uri}})

    def shut(self, uri: str) -> None:
        """Closes a document."""
        del self.documents[uri]
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def watch(self, *paths: Path, kind: int = 2) -> None:
        """Says that files have changed on disk (1: are new, 2: have changed, 3: are gone)."""
        changes = [{"uri": path.as_uri(), "type": kind} for path in paths]
        self.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    def apply(self, edit: Json) -> None:
        """Does what a workspace edit says, as the editor would."""
        files = dict(edit.get("changes") or {})
        for change in edit.get("documentChanges") or []:
            files.setdefault(change["textDocument"]["uri"], []).extend(change["edits"])
        for uri, edits in files.items():
            document = self.documents[uri]
            places = [
                (
                    document.offset(one["range"]["start"], self.units),
                    document.offset(one["range"]["end"], self.units),
                    one["newText"],
                )
                for one in edits
            ]
            # From the end, so that no edit moves the place of another.
            self.change(uri, sorted(places, reverse=True))

    # What the editor shows.

    def found(self, uri: str, diagnostics: Sequence[Json]) -> set[Found]:
        """Diagnostics of a document, in characters from 1."""
        assert all(one["source"] == "gradlint" for one in diagnostics)
        return {Found(one["code"], *self.place(uri, one["range"])) for one in diagnostics}

    def place(self, uri: str, range_: Json) -> tuple[int, int, int, int]:
        """A range as lines and columns in characters, from 1; it must end at whole characters of its lines."""
        document = self.documents[uri]
        numbers = []
        for end in ("start", "end"):
            position = range_[end]
            line = document.line(position["line"])
            columns = [n for n in range(len(line) + 1) if self.units(line[:n]) == position["character"]]
            assert columns, f"no column {position['character']} in {line!r}"
            numbers += [position["line"] + 1, columns[0] + 1]
        return numbers[0], numbers[1], numbers[2], numbers[3]

    def diagnostics(self, uri: str) -> list[Json]:
        """The diagnostics of the document as it is now: asked for, or awaited."""
        if self.pulls:
            report = self.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
            assert report["kind"] == "full"
            return list(report["items"])
        version = self.documents[uri].version
        self.wait(
            lambda m: (
                m.get("method") == "textDocument/publishDiagnostics"
                and (m["params"]["uri"], m["params"].get("version")) == (uri, version)
            ),
            f"diagnostics of version {version} of {uri}",
            self.documents[uri].since,
        )
        return self.shown(uri)

    def shown(self, uri: str) -> list[Json]:
        """What the server has told last."""
        published = [p for p in self.told("textDocument/publishDiagnostics") if p["uri"] == uri]
        return list(published[-1]["diagnostics"]) if published else []

    def findings(self, uri: str) -> set[Found]:
        """What the editor shows of the document as it is now."""
        return self.found(uri, self.diagnostics(uri))

    def eventually(self, uri: str, expected: set[Found], pushed: bool | None = None) -> None:
        """Wants the editor to show just that, once the server has seen to what happened elsewhere."""
        end = time.monotonic() + PATIENCE
        pause = 0.05
        while True:
            pull = self.pulls if pushed is None else not pushed
            seen = self.findings(uri) if pull else self.found(uri, self.shown(uri))
            if seen == expected or time.monotonic() > end:
                assert seen == expected
                return
            # What nobody waits for is done while nobody asks.
            time.sleep(pause)
            pause = min(2 * pause, 2)

    def actions(self, uri: str, diagnostics: Sequence[Json], only: Sequence[str] | None = None) -> list[Json]:
        """The code actions that are offered on diagnostics, or on all of the document where there are none."""
        everything = {"start": at(0, 0), "end": at(len(LINE_END.split(self.documents[uri].text)), 0)}
        context: Json = {"diagnostics": [*diagnostics], "triggerKind": 1}
        if only is not None:
            context["only"] = [*only]
        return (
            self.request(
                "textDocument/codeAction",
                {
                    "textDocument": {"uri": uri},
                    "range": diagnostics[0]["range"] if diagnostics else everything,
                    "context": context,
                },
            )
            or []
        )

    def do(self, action: Json) -> None:
        """Applies a code action."""
        if "edit" not in action and "data" in action:
            action = self.request("codeAction/resolve", action)
        if edit := action.get("edit"):
            self.apply(edit)
        if command := action.get("command"):
            self.request(
                "workspace/executeCommand",
                {"command": command["command"], "arguments": command.get("arguments", [])},
            )


def at(line: int, character: int) -> Json:
    """A position of the protocol."""
    return {"line": line, "character": character}


@contextlib.contextmanager
def client(editor: str, *folders: Path, options: Json | None = None, settings: Json | None = None) -> Iterator[Client]:
    """A client with a server; both are gone at the end."""
    one = Client(editor, folders, options or {}, settings)
    try:
        yield one
    except BaseException:
        one.kill()
        raise
    one.close()
