"""Documentation cannot lie: every example of every page runs twice, under torch and on shadow tensors.

A Bad example shows its symptom to torch.  Its fence says the error (```python raises "part of the text"```),
or the bug is silent and the example ends with an `assert` that holds because of it.  A Good one runs clean.
The shadow teller must say exactly what the marks of an example say:

    # want rule      a finding of this rule starts on this line
    # missed rule    a missed alarm that we know of: still absent
    # false rule     a false alarm that we know of: still present

Several rules stand comma-separated; a line may carry several marks.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradlint.page import SECTIONS, read

RULES = Path(__file__).parent.parent / "rules"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.md"))}

# Families: cut from the graph, changed in place, gradients stale or stepped wrongly, no gradient, lifetimes.
CODE = re.compile(r"GL[1-5]\d\d")
FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
RAISES = re.compile(r'python raises "(?P<text>.+)"')
MARK = re.compile(r"# (?P<kind>want|missed|false) (?P<names>[a-z][a-z0-9-]*(?:, *[a-z][a-z0-9-]*)*) *(?=#|$)")


@dataclass(frozen=True)
class Example:
    page: str
    heading: str
    number: int
    info: str
    code: str

    @property
    def path(self) -> str:
        return f"{self.page}_{self.heading.lower()}_{self.number}.py"

    @property
    def raises(self) -> str | None:
        """The part of torch's error that the fence promises."""
        match = RAISES.fullmatch(self.info)
        return match["text"] if match else None

    def marks(self, *kinds: str) -> set[tuple[int, str]]:
        """(line, rule) of every mark of these kinds."""
        return {
            (number, name.strip())
            for number, line in enumerate(self.code.splitlines(), 1)
            for mark in MARK.finditer(line)
            if mark["kind"] in kinds
            for name in mark["names"].split(",")
        }


def examples() -> list[Example]:
    """The examples of all pages.  Tolerates any page, for `test_page` says what is wrong with it."""
    found = []
    for stem, text in PAGES.items():
        parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
        for heading, section in zip(parts[1::2], parts[2::2], strict=True):
            for number, fence in enumerate(FENCE.finditer(section), 1):
                if fence["info"].split()[0] == "python":
                    found.append(Example(stem, heading, number, fence["info"], fence["code"]))
    return found


EXAMPLES = examples()
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.path)


def execute(code: str, path: str) -> None:
    """Runs a program under torch, as its own `__main__`."""
    import torch

    random.seed(0)
    torch.manual_seed(0)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(0)
    program = compile(code, path, "exec", dont_inherit=True)
    try:
        exec(program, {"__name__": "__main__"})  # noqa: S102
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


@each_example
def test_torch_agrees(example: Example) -> None:
    """The symptom of a Bad example is real; a Good example is healthy."""
    expectation: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if example.raises:
        expectation = pytest.raises(Exception, match=re.escape(example.raises))
    with expectation, warnings.catch_warnings():
        if example.heading == "Bad":
            # Where torch warns, the warning belongs to the symptom.
            warnings.simplefilter("ignore")
        execute(example.code, example.path)


@each_example
def test_shadow_says_the_marks(example: Example, record_property: Callable[[str, object], None]) -> None:
    for kind in ("missed", "false"):
        for _, name in example.marks(kind):
            record_property(kind, name)

    from gradlint.lint import lint
    from gradlint.rules import rules
    from gradlint.sources import Source

    findings = lint([Source(example.path, example.code)], rules())
    said = {(finding.span.line, finding.name) for finding in findings}
    found = sorted(said & example.marks("missed"))
    assert not found, f"no longer missed; turn the mark into `want`: {found}"
    gone = sorted(example.marks("false") - said)
    assert not gone, f"no longer a false alarm; drop the mark: {gone}"
    assert sorted(said) == sorted(example.marks("want", "false"))


@pytest.mark.parametrize("stem", PAGES)
def test_page(stem: str) -> None:
    page = read(stem, PAGES[stem])
    prose = re.sub(r"^```.*?^```$", "", page.text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^## (.+)$", prose, re.MULTILINE)
    assert tuple(headings) == SECTIONS
    assert all(page.section(heading) for heading in SECTIONS), "an empty section"
    assert CODE.fullmatch(page.code), page.code
    assert page.fix in ("safe", "unsafe", "none")
    assert re.fullmatch(r"\d+\.\d+", page.since)
    lead = page.text.split("\n## ", 1)[0].removeprefix(f"# {page.title}").strip()
    assert lead, "a sentence must follow the title"
    assert re.search(r"\]\(https://", page.section("References")), "no reference is a link"


@pytest.mark.parametrize("stem", PAGES)
def test_page_shows_its_fault(stem: str) -> None:
    name = read(stem, PAGES[stem]).name
    bad = [e for e in EXAMPLES if (e.page, e.heading) == (stem, "Bad")]
    good = [e for e in EXAMPLES if (e.page, e.heading) == (stem, "Good")]
    assert bad, "no Bad example"
    assert good, "no Good example"
    for example in bad:
        assert example.raises or example.info == "python", f"{example.path}: {example.info}"
        marked = {rule for _, rule in example.marks("want", "missed")}
        assert name in marked, f"{example.path} marks no {name}"
        told = example.raises or isinstance(ast.parse(example.code).body[-1], ast.Assert)
        assert told, f"{example.path} neither raises nor ends with an assert"
    for example in good:
        assert example.info == "python", f"{example.path}: {example.info}"
        assert not example.marks("want", "missed"), f"{example.path} is good and wants a finding"


def test_codes_are_unique() -> None:
    codes = [read(stem, text).code for stem, text in PAGES.items()]
    assert sorted(set(codes)) == sorted(codes)


def test_marks_name_rules() -> None:
    names = {stem.replace("_", "-") for stem in PAGES}
    for example in EXAMPLES:
        for line in example.code.splitlines():
            meant = len(re.findall(r"# (?:want|missed|false)\b", line))
            assert meant == len(MARK.findall(line)), f"{example.path}: not a mark: {line}"
        marked = {rule for _, rule in example.marks("want", "missed", "false")}
        assert marked <= names, f"{example.path}: no such rule: {marked - names}"
