"""Finds the rules: every page beside a module of the same name is one.

In a checkout the files live in the top-level `rules/`; a wheel holds them in this folder.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

from gradlint import page
from gradlint.rule import Rule

_here = Path(__file__).parent
if not any(_here.glob("*.md")):
    __path__.append(str(_here.parent.parent / "rules"))


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, by code."""
    found = []
    for path in sorted(Path(__path__[-1]).glob("*.md")):
        module = importlib.import_module(f"gradlint.rules.{path.stem}")
        found.append(
            Rule(
                page=page.read(path.stem, path.read_text(encoding="utf-8")),
                check=module.check,
                on_every_path=getattr(module, "on_every_path", False),
                confirm=getattr(module, "confirm", None),
                alone=getattr(module, "alone", True),
                steps=getattr(module, "steps", 0),
                raises=getattr(module, "raises", ""),
                neutralise=getattr(module, "neutralise", ""),
                fix=getattr(module, "fix", None),
                dead_code=getattr(module, "dead_code", False),
            )
        )
    return tuple(sorted(found, key=lambda rule: rule.page.code))
