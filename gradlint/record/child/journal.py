"""The journal of one process: a line of JSON per record, written so that a crash loses only the last few."""

from __future__ import annotations

import json
import os
from typing import Any

_MANY = 4000


class Journal:
    """Records in the order in which things happened.  `path` is created; nothing else may write to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pending: list[Any] = []
        self.closed = False

    def add(self, *record: Any) -> None:
        self.pending.append(record)
        if len(self.pending) > _MANY:
            self.flush()

    def flush(self) -> None:
        if self.closed or not self.pending:
            return
        lines = "".join([_encode(record) + "\n" for record in self.pending])
        self.pending.clear()
        # Opened each time: the program may close every file descriptor that it does not know.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, lines.encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
