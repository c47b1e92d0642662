"""What `gradlint doctor` says: the versions that matter, the configuration in force, and what is wrong."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import gradlint
from gradlint import config
from gradlint_torch import clash


def examine() -> tuple[list[str], list[str]]:
    """The lines to print, and the problems found.  Imports neither torch nor libcst."""
    problems = [problem for problem in (clash(),) if problem]
    try:
        file = config.load(["."]).file
        settings = str(file) if file else "none found, the defaults are in force"
    except config.ConfigError as error:
        problems.append(str(error))
        settings = "broken, see below"
    facts = [
        ("gradlint", f"{gradlint.__version__} ({Path(gradlint.__file__).parent})"),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("platform", platform.platform()),
        *_versions(),
        ("config", settings),
    ]
    return [f"{name:<10}{value}" for name, value in facts], problems


def _versions() -> Iterator[tuple[str, str]]:
    for name, without in (
        ("libcst", "not found: reinstall gradlint-torch"),
        ("typer", "not found"),
        ("torch", "not found; linting does not need it"),
    ):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            # Torch built from source can be on the path without a distribution.
            version = "found, of unknown version" if util.find_spec(name) else without
        yield name, version
