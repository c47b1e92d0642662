"""Which ways of telling a run has, and what the user asked for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")
"""Each is the name of a module of this package with a function `render`."""


class OutputError(ValueError):
    """What was asked for cannot be told so."""


@dataclass(frozen=True, slots=True)
class Output:
    format: str
    file: Path | None
    """None for standard output."""


def wanted(given: Sequence[str], file: Path | None) -> list[Output]:
    """The outputs that `--output-format` asks for, as `FORMAT` or `FORMAT:FILE`, and `--output-file`; stdout first.

    Raises OutputError.
    """
    asked = [_output(word) for word in given or ["full"]]
    if file is not None:
        if len(asked) > 1:
            raise OutputError("`--output-file` is for one format; write `--output-format FORMAT:FILE` for each")
        if asked[0].file is not None:
            raise OutputError("`--output-file` and `--output-format FORMAT:FILE` both name a file; leave one out")
        asked = [Output(asked[0].format, file)]
    if sum(output.file is None for output in asked) > 1:
        raise OutputError(
            "only one format can go to standard output; write `--output-format FORMAT:FILE` for the others"
        )
    files = [os.path.abspath(output.file) for output in asked if output.file is not None]
    if twice := next((name for name in files if files.count(name) > 1), None):
        raise OutputError(f"two formats cannot go to one file: {os.path.relpath(twice)}")
    # A file that cannot be written ends the command: what goes to the terminal is told before.
    return sorted(asked, key=lambda output: output.file is not None)


def _output(word: str) -> Output:
    name, colon, file = word.partition(":")
    if name not in FORMATS:
        close = difflib.get_close_matches(name, FORMATS, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(FORMATS)}"
        raise OutputError(f"unknown output format `{name}`; {hint}")
    if colon and not file:
        raise OutputError(f"`{word}` names no file; write `{name}:FILE`, or `{name}` for standard output")
    return Output(name, Path(file) if file else None)
