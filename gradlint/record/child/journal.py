"""The journal of one process: a line of JSON per record, written so that a crash loses only the last few."""

from __future__ import annotations

import json
import os
from typing import Any

_MANY = 4000
_MOST_HELD = 100_000


class Journal:
    """Records in the order in which things happened.  `path` is created; nothing else may write to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pending: list[Any] = []
        self.closed = False
        self.held = False
        """Nothing is written yet: perhaps this process has nothing to say."""
        self.written = 0
        self.before: tuple[str, int] | None = None
        """The journal that this one goes on with, and how much of it."""

    def add(self, *record: Any) -> None:
        self.pending.append(record)
        if len(self.pending) > _MANY:
            self.flush()

    def close(self) -> None:
        """Write nothing any more."""
        self.closed = True
        self.pending.clear()

    def fork(self, path: str) -> None:
        """This process is a fork of the one that wrote until now: go on in a file of its own."""
        if not self.held:
            self.before = self.path, self.written
        self.path, self.held, self.written = path, True, 0

    def release(self) -> None:
        """This process has something to say."""
        if self.held:
            self.held = False
            if self.before is not None and self.before[1]:
                path, size = self.before
                with open(path, "rb") as file:
                    self._write(file.read(size))

    def flush(self) -> None:
        if self.closed or self.held:
            if self.closed or len(self.pending) > _MOST_HELD:
                self.close()
            return
        if self.pending:
            lines = "".join([_encode(record) + "\n" for record in self.pending])
            self.pending.clear()
            self._write(lines.encode("utf-8", "backslashreplace"))

    def _write(self, data: bytes) -> None:
        # Opened each time: the program may close every file descriptor that it does not know.
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError:
            self.close()
            return
        try:
            self.written += os.write(descriptor, data)
        except OSError:
            self.close()
        finally:
            os.close(descriptor)


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
