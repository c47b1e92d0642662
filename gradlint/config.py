"""`[tool.gradlint]`: the settings of a project, from the nearest pyproject.toml that has that table."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradlint.selection import did_you_mean
from gradlint.sources import DEFAULT_EXCLUDE, Excludes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ConfigError(ValueError):
    """A configuration that means nothing; the message names the file, the line where known, and the key."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """What `[tool.gradlint.confirm]` says of runs; None leaves the default."""

    command: tuple[str, ...] = ()
    steps: int | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force; without a file, the defaults."""

    root: Path
    """The folder that patterns are read from."""
    file: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, Sequence[str]] = field(default_factory=dict)
    confirm: Confirm = field(default_factory=Confirm)

    def excludes(self, *, force: bool = False) -> Excludes:
        """What is left out; with `force`, of the named files too."""
        return Excludes(self.root, (*self.exclude, *self.extend_exclude), force)


def load(paths: Sequence[str]) -> Config:
    """The settings for a run over `paths`.  Raises ConfigError."""
    start = _common_folder(paths)
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return _config(file, table)
    return default()


def default() -> Config:
    """The settings where no file has any."""
    return Config(root=Path.cwd())


def _common_folder(paths: Sequence[str]) -> Path:
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in map(os.path.abspath, paths)]
    try:
        return Path(os.path.commonpath(folders))
    except ValueError:  # on Windows, paths on different drives
        return Path.cwd()


def _table(file: Path) -> dict[str, object] | None:
    try:
        text = file.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not valid UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        what = re.fullmatch(r"(?P<why>.*?) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", str(error))
        line = (what["line"] or str(text.count("\n") + 1)) if what else "1"
        raise ConfigError(f"{file}:{line}: not valid TOML: {what['why'] if what else error}") from None
    tool = document.get("tool")
    if not isinstance(tool, dict) or "gradlint" not in tool:
        return None
    table = tool["gradlint"]
    if not isinstance(table, dict):
        raise ConfigError(f"{where(file, 'gradlint')}: `tool.gradlint` must be a table")
    return table


def where(file: Path, word: str) -> str:
    """The file and, where it can be found, the line that has `word` in our table."""
    inside = False
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        if re.match(r"\s*\[", line) and not re.match(r"\s*\[+\s*tool\s*\.\s*gradlint\b", line):
            inside = False
        elif re.search(r"\btool\s*\.\s*gradlint\b|\bgradlint\s*=", line):
            inside = True
        if inside and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", line.split("#")[0]):
            return f"{file}:{number}"
    return str(file)


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError("must be a list of strings")
    return tuple(value)


def _table_of_strings(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise TypeError("must be a table of lists of strings")
    return {pattern: _strings(selectors) for pattern, selectors in value.items()}


def _words(value: object) -> tuple[str, ...]:
    return tuple(shlex.split(value)) if isinstance(value, str) else _strings(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError("must be a whole number from 1")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise TypeError("must be a number of seconds")
    return float(value)


_CONFIRM_KEYS: dict[str, Callable[[object], object]] = {"command": _words, "steps": _count, "timeout": _seconds}


_KEYS: dict[str, Callable[[object], object]] = {
    "select": _strings,
    "ignore": _strings,
    "extend-select": _strings,
    "exclude": _strings,
    "extend-exclude": _strings,
    "per-file-ignores": _table_of_strings,
}
_TABLES = {"confirm": (_CONFIRM_KEYS, Confirm)}


def _config(file: Path, table: dict[str, object]) -> Config:
    values = _checked(file, "tool.gradlint", table, {**_KEYS, **dict.fromkeys(_TABLES, _any_table)})
    for name, (keys, make) in _TABLES.items():
        inner = values.get(name)
        if isinstance(inner, dict):
            values[name] = make(**_checked(file, f"tool.gradlint.{name}", inner, keys))  # type: ignore[arg-type]
    return Config(root=file.parent, file=file, **values)  # type: ignore[arg-type]  # `_KEYS` has checked them


def _any_table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("must be a table")
    return value


def _checked(
    file: Path, section: str, table: dict[str, object], keys: Mapping[str, Callable[[object], object]]
) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in table.items():
        if key not in keys:
            near = did_you_mean(key, keys)
            raise ConfigError(f"{where(file, key)}: unknown key `{key}` in [{section}]{near}")
        try:
            values[key.replace("-", "_")] = keys[key](value)
        except TypeError as error:
            raise ConfigError(f"{where(file, key)}: `{key}` in [{section}] {error}") from None
    return values
