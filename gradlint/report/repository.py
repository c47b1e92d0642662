"""Paths as a code host knows them: from the root of the repository."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> str:
    """The repository that the run is in, whose root is where code hosts look from; else the working folder."""
    here = Path.cwd()
    return str(next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here))


def inside(path: str, root: str) -> str | None:
    """The path from `root`, with slashes; `.` for `root` itself, None for what lies outside of it."""
    full = os.path.abspath(path)
    for candidate in (full, os.path.realpath(full) if os.path.exists(full) else full):
        if candidate == root:
            return "."
        if candidate.startswith(os.path.join(root, "")):
            return candidate[len(os.path.join(root, "")) :].replace(os.sep, "/")
    return None


def told(path: str, root: str) -> str:
    """The path to print in a report for a code host: from `root`, absolute outside of it; `-` is standard input."""
    found = path if path == "-" else inside(path, root) or os.path.abspath(path)
    # A file's name may hold bytes that are no text.
    return found.encode("utf-8", "backslashreplace").decode("utf-8")
