"""Where a file has training loops and modules, for what an editor writes above them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from gradlint.program import File
from gradlint.trace import Span


class Landmark(NamedTuple):
    """A place that readers of a training program look for."""

    title: str
    """'training loop', or the name of a module's class."""
    span: Span


def find(file: File) -> list[Landmark]:
    """The outermost loops that call backward and the classes that are modules, in order."""
    if file.problem is not None:
        return []
    return sorted(_landmarks(ast.parse(file.text), file.path), key=lambda landmark: landmark.span)


def _landmarks(node: ast.AST, path: str) -> Iterator[Landmark]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and any("Module" in ast.unparse(base) for base in child.bases):
            yield Landmark(child.name, _span(child, path))
        elif isinstance(child, (ast.For, ast.While)) and _trains(child):
            yield Landmark("training loop", _span(child, path))
            continue
        if isinstance(child, ast.stmt):
            yield from _landmarks(child, path)


def _trains(loop: ast.For | ast.While) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
        for node in ast.walk(loop)
    )


def _span(node: ast.stmt, path: str) -> Span:
    # What is asked is the lines: columns here are in bytes.
    return Span(path, node.lineno, 1, node.end_lineno or node.lineno, 1)
