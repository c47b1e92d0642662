"""The server: what a client tells it, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter
from pygls.protocol.language_server import lsp_method

import gradlint
from gradlint.rule import Finding
from gradlint.selection import Unknown, catalog
from gradlint.server import actions, confirming, diagnostics, hover
from gradlint.server.buffers import Buffer, Document, Notebook
from gradlint.server.project import Host, Project
from gradlint.server.text import Text
from gradlint.server.verdicts import Verdicts
from gradlint.server.worker import Died, Worker, prepare

DEBOUNCE = 0.2
"""So many seconds without an edit pass before findings are pushed."""
_REFRESH = 0.5
"""A client that asks for findings is told at most once in so many seconds that others may have changed."""
_WATCH = 3.0
"""So often, in seconds, it is looked whether the client is still there."""

PYTHON = "python"


@dataclass
class Settings:
    """What a client may set; all else stands in pyproject.toml."""

    hover_tensors: bool = False
    code_lens: bool = False
    confirm_command: tuple[str, ...] = ()

    def read(self, given: object) -> None:
        """Take what is there, whether its keys are nested or dotted; what is not as it should be is left."""
        flat = dict(_flat(given))
        for key, name in (("hover.tensors", "hover_tensors"), ("codeLens", "code_lens")):
            if isinstance(flat.get(key), bool):
                setattr(self, name, flat[key])
        command = flat.get("confirm.command")
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            self.confirm_command = tuple(command)


def _flat(given: object, prefix: str = "") -> Iterable[tuple[str, object]]:
    if not isinstance(given, dict):
        return
    for key, value in given.items():
        name = prefix + str(key)
        for section in ("gradlint.", "settings."):
            name = name.removeprefix(section)
        if isinstance(value, dict):
            yield from _flat(value, "" if name in ("gradlint", "settings") else f"{name}.")
        else:
            yield name, value


class _Protocol(LanguageServerProtocol):
    """Keeps texts as this package has them in the place of pygls's own, whose lines end at form feeds too."""

    _server: Server

    def structure_message(self, data: dict[str, Any]) -> Any:  # noqa: ANN401  # pygls does not say what it makes
        """As pygls does it, but a request that makes no sense has an answer too: the client waits for one."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "method" in data and "id" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self._server.opened(params.text_document)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        self._server.edited(params.text_document, params.content_changes)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self._server.closed(params.text_document.uri)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def lsp_notebook_document__did_open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        self._server.opened_notebook(params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def lsp_notebook_document__did_change(self, params: types.DidChangeNotebookDocumentParams) -> None:
        self._server.edited_notebook(params)

    @lsp_method(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def lsp_notebook_document__did_close(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self._server.closed(params.notebook_document.uri)

    @lsp_method(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def lsp_workspace__did_change_workspace_folders(
        self, params: types.DidChangeWorkspaceFoldersParams
    ) -> Generator[Any, Any, None]:
        yield from super().lsp_workspace__did_change_workspace_folders(params)
        self._server.folders_changed()


@dataclass
class _Shown:
    """One document of a client: what it is a part of, and what it was last told."""

    project: Project
    path: str
    pulled: bool
    """Whether the client asks for its findings."""
    published: tuple[int | None, str] = None, ""
    """The version that was last told of, and what was told."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Server(LanguageServer):
    """Everything that is known of one client."""

    def __init__(self) -> None:
        super().__init__(
            "gradlint",
            gradlint.__version__,
            protocol_cls=_Protocol,
            converter_factory=default_converter,
            notebook_document_sync=types.NotebookDocumentSyncOptions(
                notebook_selector=[
                    types.NotebookDocumentFilterWithNotebook(
                        notebook="jupyter-notebook", cells=[types.NotebookCellLanguage(language=PYTHON)]
                    )
                ]
            ),
        )
        self.settings = Settings()
        self.verdicts = Verdicts()
        self.projects: dict[str, Project] = {}
        """By folder; '' for what is in none."""
        self.shown: dict[str, _Shown] = {}
        """By the URI of the document or cell."""
        self._reports: dict[str, tuple[tuple[int, int], list[tuple[str, list[types.Diagnostic], str]]]] = {}
        self._pulls = self._pulls_cells = False
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.dismissed = False
        """Whether the client has said that it leaves."""

    # The beginning and the end

    def begin(self, params: types.InitializeParams) -> None:
        """Learn what the client can do and which folders it has."""
        text = params.capabilities.text_document
        self._pulls = text is not None and text.diagnostic is not None
        options = dict(_flat(params.initialization_options))
        self._pulls_cells = self._pulls and options.get("notebookPull") is True
        self.settings.read(params.initialization_options)

    async def begun(self) -> None:
        """Ask the client for what it must be asked for, and read the folders."""
        self._watching = asyncio.get_running_loop().create_task(self._watch_client())
        self.folders_changed()
        self.log(f"gradlint {gradlint.__version__} on Python {sys.version.split()[0]} ({sys.executable})")
        with contextlib.suppress(Exception):
            await self._watch_files()
        with contextlib.suppress(Exception):
            await self.read_settings()

    def folders_changed(self) -> None:
        """Begin with new folders, and leave those that are gone; what is open moves to where it belongs now."""
        folders = {
            path for folder in self.workspace.folders.values() if (path := uris.to_fs_path(folder.uri)) is not None
        }
        if not folders and self.workspace.root_path:
            folders = {self.workspace.root_path}
        folders = {os.path.normpath(folder) for folder in folders}
        buffers = [buffer for project in self.projects.values() for buffer in project.buffers.values()]
        for gone in self.projects.keys() - folders - {""}:
            self.projects.pop(gone).end()
        for folder in folders - self.projects.keys():
            self.projects[folder] = self._project(folder)
        for buffer in buffers:
            self._take(buffer)

    def _project(self, folder: str) -> Project:
        host = Host(self.log, self.warn, self._changed)
        project = Project(folder or None, host, Worker(asyncio.get_running_loop()))
        if folder:
            project.reconfigure()
        return project

    async def _watch_client(self) -> None:
        """End when the client's process has, whoever still holds our pipes open."""
        # Elsewhere, to ask for a process by `kill` would end it.
        while self.process_id is not None and os.name == "posix":
            await asyncio.sleep(_WATCH)
            try:
                os.kill(self.process_id, 0)
            except PermissionError:
                continue
            except OSError:
                self.end()
                os._exit(1)

    def end(self) -> None:
        """Leave no process behind."""
        for project in self.projects.values():
            project.end()

    async def _watch_files(self) -> None:
        workspace = self.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace is not None else None
        if watched is None or not watched.dynamic_registration:
            return
        patterns = ("**/*.py", "**/*.pyi", "**/*.ipynb", "**/pyproject.toml")
        options = types.DidChangeWatchedFilesRegistrationOptions(
            watchers=[types.FileSystemWatcher(glob_pattern=pattern) for pattern in patterns]
        )
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        await self.client_register_capability_async(
            types.RegistrationParams([types.Registration("gradlint-files", method, options)])
        )

    async def read_settings(self) -> None:
        """Ask the client for its settings, where it can be asked."""
        workspace = self.client_capabilities.workspace
        if workspace is None or not workspace.configuration:
            return
        item = types.ConfigurationItem(section="gradlint")
        for given in await self.workspace_configuration_async(types.ConfigurationParams([item])):
            self.settings.read(given)

    def settings_changed(self, given: object) -> None:
        """Take the settings that came with a notification."""
        self.settings.read(given)
        workspace = self.client_capabilities.workspace
        lens = workspace.code_lens if workspace is not None else None
        if lens is not None and lens.refresh_support:
            self.workspace_code_lens_refresh(None)

    # Texts

    def opened(self, item: types.TextDocumentItem) -> None:
        """A text document was opened."""
        if item.language_id != PYTHON:
            return
        path = _path(item.uri)
        self._take(Document(item.uri, path, item.version, Text(item.text, self._encoding)))

    def edited(
        self,
        item: types.VersionedTextDocumentIdentifier,
        changes: Iterable[types.TextDocumentContentChangeEvent],
    ) -> None:
        """A text document was edited."""
        _, buffer = self._open(item.uri) or (None, None)
        if isinstance(buffer, Document):
            text = _edited(buffer.text, changes)
            self._take(Document(buffer.uri, buffer.path, item.version, text))

    def opened_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """A notebook was opened."""
        document = params.notebook_document
        texts = {item.uri: Text(item.text, self._encoding) for item in params.cell_text_documents}
        self._take(Notebook(document.uri, _path(document.uri), document.version, [*document.cells], texts))

    def edited_notebook(self, params: types.DidChangeNotebookDocumentParams) -> None:
        """Cells of a notebook were added, removed or edited."""
        notebook = next((buffer for _, buffer in self._buffers(params.notebook_document.uri)), None)
        change = params.change.cells
        if not isinstance(notebook, Notebook) or change is None:
            return
        cells, texts = [*notebook.cells], dict(notebook.texts)
        if change.structure is not None:
            array = change.structure.array
            cells[array.start : array.start + array.delete_count] = array.cells or ()
            for closed in change.structure.did_close or ():
                texts.pop(closed.uri, None)
                self._hide(closed.uri)
            for opened in change.structure.did_open or ():
                texts[opened.uri] = Text(opened.text, self._encoding)
        for changed in change.data or ():
            cells = [changed if cell.document == changed.document else cell for cell in cells]
        for content in change.text_content or ():
            uri = content.document.uri
            if uri in texts:
                texts[uri] = _edited(texts[uri], content.changes)
        self._take(Notebook(notebook.uri, notebook.path, params.notebook_document.version, cells, texts))

    def closed(self, uri: str) -> None:
        """A document or notebook was closed."""
        for project, buffer in [*self._buffers(uri)]:
            project.close(buffer.path)
            for part, _ in buffer.parts():
                self._hide(part)

    def _take(self, buffer: Buffer) -> None:
        project = self._home(buffer.path)
        for other in self.projects.values():
            if other is not project and buffer.path in other.buffers:
                other.close(buffer.path)
        project.open(buffer)
        pulled = self._pulls_cells if isinstance(buffer, Notebook) else self._pulls
        first = True
        for uri, _ in buffer.parts():
            shown = self.shown.get(uri)
            if shown is None:
                shown = self.shown[uri] = _Shown(project, buffer.path, pulled)
            else:
                first = False
                shown.project = project
        self._push(project, buffer.path, 0 if first else DEBOUNCE)

    def _hide(self, uri: str) -> None:
        shown = self.shown.pop(uri, None)
        if shown is not None and not shown.pulled:
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _buffers(self, uri: str) -> Iterator[tuple[Project, Buffer]]:
        """What is open under the URI of a document or notebook, and where."""
        for project in self.projects.values():
            yield from ((project, buffer) for buffer in project.buffers.values() if buffer.uri == uri)

    def _open(self, uri: str) -> tuple[Project, Buffer] | None:
        """What a document or cell is a part of, None where it is not known."""
        shown = self.shown.get(uri)
        buffer = shown.project.buffers.get(shown.path) if shown is not None else None
        return (shown.project, buffer) if shown is not None and buffer is not None else None

    def _home(self, path: str) -> Project:
        inside = [folder for folder in self.projects if folder and path.startswith(os.path.join(folder, ""))]
        folder = max(inside, key=len, default="")
        if folder not in self.projects:
            self.projects[folder] = self._project(folder)
        return self.projects[folder]

    def files_changed(self, changes: Iterable[types.FileEvent]) -> None:
        """Files were written, made or removed."""
        for change in changes:
            path = uris.to_fs_path(change.uri)
            if path is None:
                continue
            if os.path.basename(path) == "pyproject.toml":
                for project in self.projects.values():
                    project.reconfigure()
            else:
                self._home(path).changed_on_disk(path)

    # Findings

    @property
    def _encoding(self) -> types.PositionEncodingKind | str:
        return self.workspace.position_encoding or types.PositionEncodingKind.Utf16

    def _told(self, project: Project, path: str) -> dict[str, list[types.Diagnostic]]:
        return diagnostics.told(project, path, self._encoding, self.verdicts)

    def _changed(self, paths: frozenset[str]) -> None:
        for project in self.projects.values():
            for path in paths & project.buffers.keys():
                self._push(project, path, 0)
        self._refresh()

    def _push(self, project: Project, path: str, delay: float) -> None:
        """Publish what is told of `path` a while after the last call."""
        buffer = project.buffers[path]
        waiting = [shown for uri, _ in buffer.parts() if not (shown := self.shown[uri]).pulled]
        if not waiting:
            return
        for shown in waiting:
            if shown.task is not None:
                shown.task.cancel()
        task = asyncio.get_running_loop().create_task(self._publish(project, path, delay))
        for shown in waiting:
            shown.task = task

    async def _publish(self, project: Project, path: str, delay: float) -> None:
        await asyncio.sleep(delay)
        buffer = project.buffers.get(path)
        try:
            await project.known(path)
        except Died as death:
            if not self.dismissed:
                self.log(f"the analysis of {path} ended: {death}")
            return
        if buffer is None or project.buffers.get(path) is not buffer:
            return
        for uri, items in self._told(project, path).items():
            shown = self.shown.get(uri)
            if shown is None or shown.pulled:
                continue
            # A cell has a version of its own, which is not followed.
            version = buffer.version if isinstance(buffer, Document) else None
            if (published := (version, _digest(items))) != shown.published:
                shown.published = published
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, items, version))

    def _refresh(self) -> None:
        """Have a client that pulls ask again."""
        workspace = self.client_capabilities.workspace
        supported = workspace.diagnostics if workspace is not None else None
        if self._pulls and supported is not None and supported.refresh_support and self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._send_refresh())

    async def _send_refresh(self) -> None:
        await asyncio.sleep(_REFRESH)
        self._refreshing = None
        with contextlib.suppress(Exception):
            await self.workspace_diagnostic_refresh_async(None)

    async def pulled(self, params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
        """What is told of one document."""
        uri = params.text_document.uri
        items: list[types.Diagnostic] = []
        shown = self.shown.get(uri)
        if shown is not None and shown.pulled:
            await shown.project.known(shown.path)
            items = self._told(shown.project, shown.path).get(uri, [])
        digest = _digest(items)
        if digest == params.previous_result_id:
            return types.RelatedUnchangedDocumentDiagnosticReport(digest)
        return types.RelatedFullDocumentDiagnosticReport(items, result_id=digest)

    async def pulled_all(self, params: types.WorkspaceDiagnosticParams) -> types.WorkspaceDiagnosticReport:
        """What is told of all files, by what is known now."""
        before = {entry.uri: entry.value for entry in params.previous_result_ids}
        if not before:
            # The first time there may be nothing known yet.
            await asyncio.gather(*(project.surveyed.wait() for folder, project in self.projects.items() if folder))
        reports: list[types.WorkspaceDocumentDiagnosticReport] = []
        for project in self.projects.values():
            for path in project.paths():
                buffer = project.buffers.get(path)
                if isinstance(buffer, Notebook) or (buffer is None and path.endswith(".ipynb")):
                    # Cells that are not open have no address.
                    continue
                version = buffer.version if buffer is not None else None
                for uri, items, digest in self._report(project, path):
                    if before.pop(uri, None) == digest:
                        reports.append(types.WorkspaceUnchangedDocumentDiagnosticReport(uri, digest, version))
                    else:
                        reports.append(
                            types.WorkspaceFullDocumentDiagnosticReport(uri, items, version, result_id=digest)
                        )
        # What is told of no longer must not stay.
        gone = [uri for uri in before if uri not in self.shown]
        reports += [types.WorkspaceFullDocumentDiagnosticReport(uri, [], None, result_id="") for uri in gone]
        return types.WorkspaceDiagnosticReport(reports)

    def _report(self, project: Project, path: str) -> list[tuple[str, list[types.Diagnostic], str]]:
        """What is told of a file, which a client that watches all files asks for every few seconds."""
        edition = project.edition(path)
        known = self._reports.get(path)
        if known is None or known[0] != edition:
            told = self._told(project, path)
            known = self._reports[path] = edition, [(uri, items, _digest(items)) for uri, items in told.items()]
        return known[1]

    # What can be asked of a place

    async def hovered(self, uri: str, position: types.Position) -> types.Hover | None:
        """Why there is a finding, or what is known of a tensor."""
        opened = self._open(uri)
        if opened is None:
            return None
        project, buffer = opened
        line, column = buffer.place(uri, position)
        findings = await project.findings(buffer.path)
        here = [finding for finding in findings if _holds(finding, line, column)]
        if here:
            text = hover.findings(here, self.verdicts, project)
        elif self.settings.hover_tensors:
            text = hover.states(await project.look(buffer.path, line, column), buffer)
        else:
            text = ""
        if not text:
            return None
        range_ = buffer.location(here[0].span).range if here else None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), range_)

    async def actions_for(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done about the findings of a range."""
        uri = params.text_document.uri
        opened = self._open(uri)
        if opened is None:
            return []
        project, buffer = opened
        await project.known(buffer.path)
        told = diagnostics.with_findings(project, buffer.path, self._encoding, self.verdicts).get(uri, [])
        return actions.offered(project, buffer, uri, told, params)

    async def lenses(self, uri: str) -> list[types.CodeLens]:
        """What is written above training loops and modules."""
        opened = self._open(uri)
        if opened is None or not self.settings.code_lens:
            return []
        project, buffer = opened
        findings = await project.findings(buffer.path)
        lenses = []
        for landmark in await project.find(buffer.path):
            place = buffer.location(landmark.span)
            if place.uri == uri:
                inside = [f for f in findings if landmark.span.line <= f.span.line <= landmark.span.end_line]
                title = hover.count(landmark.title, inside, self.verdicts, project)
                start = place.range.start
                lenses.append(types.CodeLens(types.Range(start, start), types.Command(title, "")))
        return lenses

    # Commands

    async def explain(self, name: str) -> str:
        """Show a rule's page, by its name or code; its Markdown."""
        try:
            page = catalog().page(name)
        except Unknown as error:
            self.warn(str(error))
            return ""
        window = self.client_capabilities.window
        if window is not None and window.show_document is not None and window.show_document.support:
            with contextlib.suppress(Exception):
                await self.window_show_document_async(types.ShowDocumentParams(diagnostics.page_uri(page.name)))
        return page.text

    async def confirm(self, uri: str, data: dict[str, Any]) -> str:
        """Run the program and tell what came of one finding; '' where that was not possible."""
        shown = self.shown.get(uri)
        if shown is None:
            return ""
        project = shown.project
        findings = await project.findings(shown.path)
        finding = next((f for f in findings if diagnostics.data(f) == data), None)
        if finding is None:
            self.warn("The finding is no longer there: confirm it again where it is now")
            return ""
        settings = project.wanted(shown.path).settings
        command = self.settings.confirm_command or settings.confirm.command
        request = confirming.Request(finding, command, str(settings.root), project.source(finding.span.path))
        async with self._progress(f"Confirming {finding.name}") as report:
            try:
                told = await confirming.run(request, report, self.log)
            except confirming.NotConfirmed as error:
                self.warn(str(error))
                return ""
            except asyncio.CancelledError:
                # pygls would leave the command without an answer.
                return ""
        self.verdicts.keep(project, finding, told)
        self._reports.clear()
        self._changed(frozenset(project.buffers))
        self._show(types.MessageType.Info, f"{finding.name}: {told.verdict.value}: {told.reason}")
        return told.verdict.value

    async def fix_all(self, uri: str) -> bool:
        """Have the client make all safe fixes of a document; whether there were any."""
        opened = self._open(uri)
        if opened is None:
            return False
        project, buffer = opened
        await project.known(buffer.path)
        edit = actions.fix_all(project, buffer)
        if edit is not None:
            await self.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, "Fix all (gradlint)"))
        return edit is not None

    @contextlib.asynccontextmanager
    async def _progress(self, title: str) -> AsyncIterator[Callable[[str], None]]:
        """Show that something runs; gives what to call with news.  The client's cancel cancels the task."""
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            yield self.log
            return
        progress = self.work_done_progress
        token = str(uuid.uuid4())
        await progress.create_async(token)
        task = asyncio.current_task()
        progress.tokens[token].add_done_callback(lambda _: task.cancel() if task is not None else None)
        progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True))
        try:
            yield lambda text: progress.report(token, types.WorkDoneProgressReport(message=text))
        finally:
            progress.end(token, types.WorkDoneProgressEnd())
            del progress.tokens[token]

    # Words

    def log(self, message: str) -> None:
        """Write to the client's log."""
        self.window_log_message(types.LogMessageParams(types.MessageType.Info, message))

    def warn(self, message: str) -> None:
        """Show the user what is to be mended."""
        self._show(types.MessageType.Warning, f"gradlint: {message}")

    def _show(self, kind: types.MessageType, message: str) -> None:
        self.window_show_message(types.ShowMessageParams(kind, message))


def _path(uri: str) -> str:
    """Where a document is, or would be: what is not saved yet has a name alone."""
    path = uris.to_fs_path(uri)
    return os.path.normpath(path) if path else uri.partition(":")[2].lstrip("/") + ".py"


def _edited(text: Text, changes: Iterable[types.TextDocumentContentChangeEvent]) -> Text:
    for change in changes:
        range_ = change.range if isinstance(change, types.TextDocumentContentChangePartial) else None
        text = text.edited(range_, change.text)
    return text


def _digest(items: list[types.Diagnostic]) -> str:
    return blake2b(repr(items).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _holds(finding: Finding, line: int, column: int) -> bool:
    span = finding.span
    return (span.line, span.column) <= (line, column) <= (span.end_line, max(span.end_column, span.column + 1))


def serve() -> None:
    """Speak with one client over standard input and output until it leaves, by `sys.exit(1)` if without a word."""
    prepare()
    # What anything prints must not get between the messages.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = make()
    try:
        server.start_io(stdout=out)
    finally:
        server.end()
    if not server.dismissed:
        sys.exit(1)


def make() -> Server:
    """A server with all that it answers."""
    server = Server()

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params)

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:  # noqa: ARG001
        await server.begun()

    @server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:  # noqa: ARG001
        server.dismissed = True
        server.end()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configured(params: types.DidChangeConfigurationParams) -> None:
        await server.read_settings()
        server.settings_changed(params.settings)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: types.DidChangeWatchedFilesParams) -> None:
        server.files_changed(params.changes)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.files_changed([types.FileEvent(params.text_document.uri, types.FileChangeType.Changed)])

    @server.feature(
        types.TEXT_DOCUMENT_DIAGNOSTIC,
        types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=True, identifier="gradlint"),
    )
    async def diagnose(params: types.DocumentDiagnosticParams) -> types.DocumentDiagnosticReport:
        return await server.pulled(params)

    @server.feature(types.WORKSPACE_DIAGNOSTIC)
    async def diagnose_all(params: types.WorkspaceDiagnosticParams) -> types.WorkspaceDiagnosticReport:
        return await server.pulled_all(params)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(params: types.HoverParams) -> types.Hover | None:
        return await server.hovered(params.text_document.uri, params.position)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=actions.KINDS))
    async def act(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await server.actions_for(params)

    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    async def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        return await server.lenses(params.text_document.uri)

    @server.command(actions.EXPLAIN)
    async def explain(name: str) -> str:
        return await server.explain(name)

    @server.command(actions.CONFIRM)
    async def confirm(uri: str, data: dict[str, Any]) -> str:
        return await server.confirm(uri, data)

    @server.command(actions.FIX_ALL)
    async def fix_all(uri: str) -> bool:
        return await server.fix_all(uri)

    return server
