"""Starts gradlint, or says why it cannot: the distribution `gradlint` owns the same import package.

pip installs both without a word, the last one wins, and uninstalling that one deletes our files.  This module
has a name that only `gradlint-torch` owns, so it is still ours when `gradlint/` no longer is.
"""

from __future__ import annotations

import sys
from importlib import metadata

MEND = (
    "Give gradlint-torch an environment of its own (`pipx install gradlint-torch`), or mend this one:\n"
    "    python -m pip uninstall --yes gradlint\n"
    "    python -m pip install --force-reinstall --no-deps gradlint-torch"
)


def clash() -> str:
    """What to tell a user who has the other distribution installed too, '' where it is not."""
    for other in metadata.distributions(name="gradlint"):
        return (
            f"the distribution `gradlint` {other.version} in {other.locate_file('')} is another project with "
            "the same import package and command as gradlint-torch; side by side they overwrite each other's "
            f"files.\n{MEND}"
        )
    return ""


def main() -> None:
    """The command `gradlint-torch`: `gradlint`, where that is ours and whole; else it says how to mend it."""
    problem = clash()
    if not problem:
        try:
            from gradlint.cli import main as start
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "gradlint":
                raise
            problem = (
                "files of gradlint-torch are missing: uninstalling distribution `gradlint` deletes them.\n"
                "    python -m pip install --force-reinstall --no-deps gradlint-torch"
            )
        else:
            start()
            return
    sys.stderr.write(f"gradlint: error: {problem}\n")
    sys.exit(2)
