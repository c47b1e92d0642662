"""The sources of one run as Python files that import each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import libcst as cst

from gradlint.shadow.chunks import Chunk


@dataclass(eq=False, slots=True)
class File:
    path: str
    module: str
    """Its name as the last part of an import."""
    chunks: list[Chunk] = field(default_factory=list)


class Program:
    """The files of one run.  Imports are resolved among them alone: nothing is read from disk."""

    def __init__(self, files: Iterable[File]) -> None:
        self.files = {_parts(file.path): file for file in files}
        self.constants: dict[int, Any] = {}
        self.generators: dict[int, bool] = {}
        self.empty = Chunk("", 1, "", "plain", "")

    def find(self, dotted: str, importer: File | None, dots: int = 0) -> File | None:
        """The file that `dotted` names when `importer` imports it, as Python would find it from a folder above."""
        if importer is None or (not dots and dotted.partition(".")[0] == "torch"):
            return None
        folder = _parts(importer.path)[:-1]
        wanted = tuple(dotted.split(".")) if dotted else ()
        if dots:
            roots = [folder[: len(folder) - (dots - 1)]] if dots - 1 <= len(folder) else []
        else:
            # A folder inside a package is never where an absolute import starts.
            above = [folder[:n] for n in range(len(folder), -1, -1)]
            above = [parent for parent in above if (*parent, "__init__.py") not in self.files]
            roots = [root for parent in above for root in (parent, (*parent, "src"))]
        for root in roots:
            if wanted:
                found = self.files.get((*root, *wanted[:-1], wanted[-1] + ".py"))
                if found is not None and found is not importer:
                    return found
            found = self.files.get((*root, *wanted, "__init__.py"))
            if found is not None:
                return found
        return None

    def yields(self, function: cst.FunctionDef) -> bool:
        """Whether a function is a generator."""
        known = self.generators.get(id(function))
        if known is None:
            known = self.generators[id(function)] = _yields(function)
        return known


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(path.replace("\\", "/")).parts if part != ".")


def _yields(function: cst.FunctionDef) -> bool:
    todo: list[cst.CSTNode] = [function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, cst.Yield):
            return True
        if not isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            todo.extend(node.children)
    return False
