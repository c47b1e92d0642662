"""gradlint finds the bugs that make a PyTorch model train wrongly and say nothing.

    >>> import gradlint
    >>> for finding in gradlint.check("src/"):
    ...     print(finding.span.path, finding.span.line, finding.name)

Importing this package costs next to nothing: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlint.confirmation import Confirmation, confirm
    from gradlint.rule import Finding, Judgement, Verdict
    from gradlint.run import check

__version__ = "0.1.0"
__all__ = ["Confirmation", "Finding", "Judgement", "Verdict", "__version__", "check", "confirm"]

_HOMES = {
    "Confirmation": "gradlint.confirmation",
    "Finding": "gradlint.rule",
    "Judgement": "gradlint.rule",
    "Verdict": "gradlint.rule",
    "check": "gradlint.run",
    "confirm": "gradlint.confirmation",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gradlint' has no attribute {name!r}")
