"""Reads a rule's page: Markdown with a front matter of four lines.

---
code: GL201
severity: error
fix: none
since: 0.1
---
# Saved tensor mutated
...
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SEVERITIES = ("error", "warning", "info")
SECTIONS = ("Why", "Bad", "Good", "How it is confirmed", "What it does not see", "References")

_FRONT = re.compile(r"\A---\n(?P<front>.*?)\n---\n(?P<body>.*)\Z", re.DOTALL)
_EXAMPLE = re.compile(r"^```python[^\n]*\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    """The file's name with hyphens: people read and write this."""
    code: str
    severity: str
    fix: str
    """'safe', 'unsafe' or 'none'."""
    since: str
    title: str
    text: str
    """The Markdown after the front matter."""

    def section(self, heading: str) -> str:
        """The text under `## heading`, '' where there is none."""
        parts = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "").strip()

    def examples(self, heading: str) -> list[str]:
        """The Python blocks under `## heading`."""
        return [m["code"] for m in _EXAMPLE.finditer(self.section(heading))]


def read(name: str, text: str) -> Page:
    """The page of the rule `name`.  Raises ValueError that says what is missing."""
    match = _FRONT.match(text)
    if match is None:
        raise ValueError(f"{name}.md has no front matter")
    front = dict(line.split(": ", 1) for line in match["front"].splitlines())
    if set(front) != {"code", "severity", "fix", "since"}:
        raise ValueError(f"{name}.md: the front matter must give code, severity, fix and since, not {sorted(front)}")
    if front["severity"] not in SEVERITIES:
        raise ValueError(f"{name}.md: severity must be one of {', '.join(SEVERITIES)}")
    body = match["body"].strip() + "\n"
    title = re.search(r"^# (.+)$", body, re.MULTILINE)
    if title is None:
        raise ValueError(f"{name}.md has no title")
    return Page(name=name.replace("_", "-"), title=title[1], text=body, **front)
