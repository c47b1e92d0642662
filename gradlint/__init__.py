"""gradlint finds the bugs that make a PyTorch model train wrongly and say nothing.

    >>> import gradlint
    >>> for finding in gradlint.check("src/"):
    ...     print(finding.span.path, finding.span.line, finding.name)

Importing this package costs next to nothing: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlint.rule import Finding
    from gradlint.run import check

__version__ = "0.1.0"
__all__ = ["Finding", "__version__", "check"]


def __getattr__(name: str) -> object:
    if name == "check":
        from gradlint.run import check

        return check
    if name == "Finding":
        from gradlint.rule import Finding

        return Finding
    raise AttributeError(f"module 'gradlint' has no attribute {name!r}")
