"""Which file of a run an import means.  Knows paths only: nothing is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

Question = tuple[str, str, int]
"""An import: the path of the file that it stands in, the dotted name, and the number of dots before it."""


Place = tuple[str, ...]


class Imports:
    """Resolves imports among the files of one run alone, as Python would from a folder above."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._places = {path: _parts(path) for path in paths}
        self._paths = {place: path for path, place in self._places.items()}
        self._found: dict[Question, str] = {}
        self._roots: dict[Place, list[Place]] = {}

    def find(self, question: Question) -> str:
        """The path of the file that an import names, '' where it is none of the run's."""
        found = self._found.get(question)
        if found is None:
            found = self._found[question] = self._find(*question)
        return found

    def _find(self, importer: str, dotted: str, dots: int) -> str:
        if not dots and dotted.partition(".")[0] == "torch":
            return ""
        here = self._places.get(importer) or _parts(importer)
        folder = here[:-1]
        wanted = tuple(dotted.split(".")) if dotted else ()
        if dots:
            roots = [folder[: len(folder) - (dots - 1)]] if dots - 1 <= len(folder) else []
        else:
            roots = self._above(folder)
        for root in roots:
            if wanted:
                place = (*root, *wanted[:-1], wanted[-1] + ".py")
                if place in self._paths and place != here:
                    return self._paths[place]
            place = (*root, *wanted, "__init__.py")
            if place in self._paths:
                return self._paths[place]
        return ""

    def _above(self, folder: Place) -> list[Place]:
        """Where an absolute import of a file in `folder` may start."""
        found = self._roots.get(folder)
        if found is None:
            above = [folder[:n] for n in range(len(folder), -1, -1)]
            # A folder inside a package is never where an absolute import starts.
            above = [parent for parent in above if (*parent, "__init__.py") not in self._paths]
            found = self._roots[folder] = [root for parent in above for root in (parent, (*parent, "src"))]
        return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(path.replace("\\", "/")).parts if part != ".")
