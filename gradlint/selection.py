"""Which rules a run asks, from names, codes, prefixes of codes and ALL."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gradlint import rules
from gradlint.faults import FAULTS
from gradlint.page import Page


class Unknown(ValueError):
    """A selector that means no rule; the message names the nearest that does."""

    def __init__(self, selector: str, why: str) -> None:
        super().__init__(why)
        self.selector = selector


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A clause to append to a message, '' where nothing is near."""
    words = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("_", "-"), words, n=1, cutoff=0.6)
    return f"; did you mean `{words[near[0]]}`?" if near else ""


@dataclass(frozen=True)
class Catalog:
    """Every page that can be named."""

    pages: tuple[Page, ...]

    def meant(self, selector: str) -> frozenset[str]:
        """The names of the rules that `selector` means.  Raises Unknown."""
        every = self.pages + FAULTS
        if selector == "ALL":
            return frozenset(page.name for page in every)
        if re.fullmatch(r"GL\d*", selector):
            names = frozenset(page.name for page in every if page.code.startswith(selector))
        else:
            names = frozenset(page.name for page in every if page.name == selector.replace("_", "-"))
        if not names:
            near = did_you_mean(selector, [word for page in every for word in (page.name, page.code)])
            raise Unknown(selector, f"unknown rule `{selector}`{near}")
        return names

    def page(self, selector: str) -> Page:
        """The one page of a name or full code.  Raises Unknown."""
        names = self.meant(selector.upper() if re.fullmatch(r"gl\d+", selector) else selector)
        if len(names) != 1:
            raise Unknown(selector, f"`{selector}` means {len(names)} rules; name one (`gradlint rules` lists them)")
        return next(page for page in self.pages + FAULTS if page.name in names)

    def selected(self, select: Sequence[str], extend: Sequence[str], ignore: Sequence[str]) -> frozenset[str]:
        """The names to ask.  The longest selector that means a rule decides; of two as long, `ignore` does.

        Without `select` it is every rule but those of severity info.  What is said of files that cannot be
        linted is always selected, until it is ignored.  Raises Unknown.
        """
        default = {page.name for page in self.pages if page.severity != "info"}
        strength = dict.fromkeys(page.name for page in FAULTS)
        chosen: dict[str, int] = dict.fromkeys([*strength, *(() if select else default)], 0)
        refused: dict[str, int] = {}
        for selectors, into in ((select, chosen), (extend, chosen), (ignore, refused)):
            for selector in selectors:
                for name in self.meant(selector):
                    into[name] = max(into.get(name, 0), _strength(selector))
        return frozenset(name for name, strong in chosen.items() if strong > refused.get(name, -1))


def catalog() -> Catalog:
    """The pages of all rules."""
    return Catalog(tuple(rule.page for rule in rules.rules()))


def _strength(selector: str) -> int:
    if selector == "ALL":
        return 0
    return len(selector) if re.fullmatch(r"GL\d?\d?", selector) else len("GL201")


def per_file(catalog: Catalog, ignores: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """The names that each pattern of `per-file-ignores` refuses.  Raises Unknown."""
    return {pattern: frozenset[str]().union(*map(catalog.meant, selectors)) for pattern, selectors in ignores.items()}
