"""The sources of one run as Python files that import each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import libcst as cst

from gradlint.imports import Imports, Question
from gradlint.shadow.chunks import Chunk, chunks


class File:
    """One file, cut into its statements when something first asks for them."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.module = path.rpartition("/")[2].removesuffix(".py")
        """Its name as the last part of an import."""

    def forget(self) -> None:
        """Let go of what was parsed; it is parsed again where it is needed again."""
        for name in ("chunks", "bindings"):
            vars(self).pop(name, None)

    @cached_property
    def problem(self) -> Exception | None:
        """Why the file cannot be read as Python, None where it can."""
        try:
            self.chunks  # noqa: B018 - only whether it works is asked
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return error
        return None

    @cached_property
    def chunks(self) -> Sequence[Chunk]:
        return chunks(self.path, self.text)

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


class Program:
    """The files of one run.  Imports are resolved among them alone: nothing is read from disk."""

    def __init__(self, files: Iterable[File]) -> None:
        self.files = {file.path: file for file in files}
        self.imports = Imports(self.files)
        self.constants: dict[int, Any] = {}
        self.generators: dict[int, bool] = {}
        self.empty = Chunk("", 1, "", "names")
        self.asked: dict[Question, str] = {}
        """The imports resolved since this was last emptied, each with the path that was found."""

    def find(self, dotted: str, importer: File | None, dots: int = 0) -> File | None:
        """The file that `dotted` names when `importer` imports it."""
        if importer is None:
            return None
        question = importer.path, dotted, dots
        path = self.asked[question] = self.imports.find(question)
        found = self.files[path] if path else None
        return found if found is not None and found.problem is None else None

    def update(self, file: File) -> None:
        """Take `file` in place of what is at its path; a path that is new is added."""
        known = file.path in self.files
        self.files[file.path] = file
        # By `id` of nodes, some of which are no more.
        self.constants.clear()
        self.generators.clear()
        if not known:
            self.imports = Imports(self.files)

    def remove(self, path: str) -> None:
        """Take the file at `path` out of the program."""
        del self.files[path]
        self.imports = Imports(self.files)

    def forget(self) -> None:
        """Let go of all that was parsed."""
        for file in self.files.values():
            file.forget()
        self.constants.clear()
        self.generators.clear()

    def yields(self, function: cst.FunctionDef) -> bool:
        """Whether a function is a generator."""
        known = self.generators.get(id(function))
        if known is None:
            known = self.generators[id(function)] = _yields(function)
        return known


def _yields(function: cst.FunctionDef) -> bool:
    todo: list[cst.CSTNode] = [function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, cst.Yield):
            return True
        if not isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            todo.extend(node.children)
    return False
