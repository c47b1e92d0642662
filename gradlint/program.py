"""The sources of one run as Python files that import each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from gradlint.imports import Imports, Question
from gradlint.shadow.chunks import Before, Chunk, chunks

_MOST_CUT = 30_000_000
"""So many characters of files are kept as statements.  They take two to three times their text."""


class File:
    """One file, cut into its statements when something first asks for them."""

    def __init__(self, path: str, text: str, before: File | None = None) -> None:
        self.path = path
        self.text = text
        self._before = before.parsed if before is not None else None
        """An earlier text: what stays the same is not parsed again."""
        self.module = path.rpartition("/")[2].removesuffix(".py")
        """Its name as the last part of an import."""

    def forget(self) -> None:
        """Let go of what was parsed; it is parsed again where it is needed again."""
        self._before = None
        for chunk in vars(self).get("chunks", ()):
            chunk.forget()

    def uncut(self) -> None:
        """Let go of what stands where, too."""
        for name in ("chunks", "bindings"):
            vars(self).pop(name, None)

    def end(self) -> None:
        """Be no part of the program any more."""
        for chunk in self.parsed.chunks if self.parsed is not None else ():
            chunk.end()

    @cached_property
    def problem(self) -> Exception | None:
        """Why the file cannot be read as Python, None where it can."""
        try:
            self.chunks  # noqa: B018 - only whether it works is asked
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # Its traceback holds the text in a circle, and an editor brings a broken text with each keystroke.
            return error.with_traceback(None)
        return None

    @cached_property
    def chunks(self) -> Sequence[Chunk]:
        found = chunks(self.path, self.text, self._before)
        self._before = None
        return found

    @property
    def parsed(self) -> Before | None:
        """The last text that could be read, with its statements."""
        return Before(self.text, self.chunks) if "chunks" in vars(self) else self._before

    @cached_property
    def bindings(self) -> Mapping[str, Sequence[Chunk]]:
        """The names that the file's own statements bind, each with the statements to run for it."""
        found: dict[str, list[Chunk]] = {}
        for chunk in self.chunks:
            # Statements that share a name belong together, with all that they bind.
            groups = {id(group): group for name in chunk.binds if (group := found.get(name)) is not None}
            group = max(groups.values(), key=len, default=[])
            joined = [chunk, *(one for other in groups.values() if other is not group for one in other)]
            group += joined
            for one in joined:
                found.update(dict.fromkeys(one.binds, group))
        found.pop("*", None)
        for group in {id(group): group for group in found.values()}.values():
            group.sort(key=lambda chunk: chunk.line)
            if all(chunk.defines for chunk in group):
                # Of definitions that follow each other under one name the last one counts.
                del group[:-1]
        return found

    @cached_property
    def _acted_on(self) -> frozenset[str]:
        names = re.compile(r"[^\W\d]\w*")
        found: set[str] = set()
        for chunk in self.chunks:
            if chunk.kind == "statement":
                found |= {*names.findall(chunk.text)}.difference(chunk.binds)
        if "global " in self.text:
            for line in re.findall(r"^[ \t]+global[ \t]+(.+)", self.text, re.MULTILINE):
                found.update(names.findall(line))
        return frozenset(found)

    def touches(self, name: str) -> bool:
        """Whether the file does something with `name` other than bind it once."""
        return name in self._acted_on


Query = tuple[Any, ...]
"""A question about the program: what is asked, the path of the file that it is asked of, and more."""


class Footprint:
    """What has been read of a program.  While all of it is as it was, what was told from it would be told again."""

    def __init__(self) -> None:
        self.chunks: set[Chunk] = set()
        self.answers: dict[Query, object] = {}

    def holds(self, program: Program) -> bool:
        """Whether the program still has each chunk, and the same answer to each question."""
        # Answers first: they make a file that has changed find out which of its chunks are no more.
        return all(program.answer(query) == answer for query, answer in self.answers.items()) and all(
            chunk.alive for chunk in self.chunks
        )

    def asked(self) -> dict[Question, str]:
        """The imports that were resolved, each with the path that was found."""
        imports = {query: cast("tuple[str, bool]", answer) for query, answer in self.answers.items()}
        return {(query[1], query[2], query[3]): answer[0] for query, answer in imports.items() if query[0] == "import"}


class Program:
    """The files of one run.  Imports are resolved among them alone: nothing is read from disk."""

    def __init__(self, files: Iterable[File]) -> None:
        self.files = {file.path: file for file in files}
        self.imports = Imports(self.files)
        self.empty = Chunk("", 1, "", "names")
        self.read = Footprint()
        """What has been read since this was last made anew."""
        self._answers: dict[Query, object] = {}
        """What has been asked since the last change."""

    def find(self, dotted: str, importer: File | None, dots: int = 0) -> File | None:
        """The file that `dotted` names when `importer` imports it."""
        if importer is None:
            return None
        path, sound = cast("tuple[str, bool]", self.ask("import", importer.path, dotted, dots))
        return self.files[path] if sound else None

    def ask(self, *query: object) -> object:
        """The answer to a question that a walk has about files; it is kept in `read`."""
        known = self.read.answers.get(query)
        if known is None:
            known = self.read.answers[query] = self.answer(query)
        return known

    def answer(self, query: Query) -> object:
        """What is so now; None where the file cannot be read."""
        known = self._answers.get(query)
        if known is None:
            known = self._answers[query] = self._answer(query)
        return known

    def _answer(self, query: Query) -> object:
        kind, path = query[:2]
        if kind == "import":
            found = self.imports.find((path, query[2], query[3]))
            return found, bool(found) and self.files[found].problem is None
        file = self.files.get(path)
        if file is None or file.problem is not None:
            return None
        if kind == "name":
            return tuple(file.bindings.get(query[2], ()))
        if kind == "names":
            return tuple(file.bindings)
        if kind == "stars":
            return tuple(chunk for chunk in file.chunks if "*" in chunk.binds)
        if kind == "touches":
            return file.touches(query[2])
        # What the body does as it runs: the bodies of its functions and classes are read when they are called.
        return tuple(
            (chunk.defines, len(file.bindings[chunk.defines])) if chunk.defines else chunk for chunk in file.chunks
        )

    def update(self, path: str, text: str) -> None:
        """Take `text` in place of what is at `path`; a path that is new is added."""
        known = self.files.get(path)
        if known is not None and known.text == text:
            return
        self.files[path] = File(path, text, known)
        self._answers.clear()
        if known is None:
            self.imports = Imports(self.files)

    def remove(self, path: str) -> None:
        """Take the file at `path` out of the program."""
        self.files.pop(path).end()
        self._answers.clear()
        self.imports = Imports(self.files)

    def forget(self) -> None:
        """Let go of all that was parsed.

        Trees are what takes room, and to cut a file into its statements is what takes time: hundreds of files import
        the same ones.  So the cuts stay, until they are many.
        """
        cut = [file for file in self.files.values() if "chunks" in vars(file)]
        for file in cut:
            file.forget()
        if sum(len(file.text) for file in cut) > _MOST_CUT:
            for file in cut:
                file.uncut()
            self._answers.clear()
