"""What a rule is, what it says, and what a finding carries.

A rule is two neighbours under `rules/`: the page `<name>.md` and the module `<name>.py` with

    def check(trace: Trace) -> Iterator[Claim]: ...

which speaks about one trace.  By default one path on which the claim holds is enough for a finding; a module
that sets `on_every_path = True` (typical for "never ...") asks that it holds on every path that reaches the site.

A rule that knows a mechanical repair has it in the module too:

    def fix(finding: Finding, code: Code) -> Fix | None: ...

It sees the finding and the text of its file, and says what to change with the vocabulary of `gradlint.edits`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradlint.page import Page
from gradlint.trace import Site, Span, Trace

if TYPE_CHECKING:
    from gradlint.edits import Code


@dataclass(frozen=True, slots=True)
class Reason:
    """One link of the chain that explains a claim: what happened at a site."""

    site: Site
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a rule says about a trace: at `site`, `message`, `because` of these reasons; write `instead`."""

    site: Site
    message: str
    because: tuple[Reason, ...] = ()
    instead: str = ""
    about: Site | None = None
    """The claim must hold on every path that comes by here (with `on_every_path`, by default the claim's site)."""


@dataclass(frozen=True, slots=True)
class Rule:
    page: Page
    check: Callable[[Trace], Iterable[Claim]]
    on_every_path: bool = False
    confirm: Callable[[Trace], Iterable[Claim]] | None = None
    """What else a recorded trace shows where there already is a finding; by default only what `check` says."""
    alone: bool = True
    """Whether a run alone may say it; a short run may not get to what a rule misses."""
    steps: int = 0
    """How many steps of one optimizer it takes to say that it does not happen."""
    raises: str = ""
    """A pattern of the error with which torch itself refuses the fault at its place; '' where it has none."""

    neutralise: str = ""
    """How a run leaves the fault out, to be compared with one that has it; '' where there is no way."""
    fix: Callable[[Finding, Code], Fix | None] | None = None
    """The repair of one of its findings, from the text of the file."""
    dead_code: bool = False
    """Whether what stands at the place does nothing, so that an editor may fade it."""

    @property
    def name(self) -> str:
        return self.page.name


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters from `span.line:column` to its end by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair.  `safe`: it cannot change what a correct program does."""

    message: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True, slots=True)
class Because:
    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim with its rule and its places in the source."""

    name: str
    """The rule's name, or 'syntax-error', 'too-deep', 'internal-error' for a file that could not be told."""
    code: str
    severity: str
    """'error', 'warning' or 'info'."""
    span: Span
    message: str
    because: tuple[Because, ...] = ()
    instead: str = ""
    fix: Fix | None = field(default=None, compare=False)


class Verdict(enum.Enum):
    """What a real run says of a finding."""

    CONFIRMED = "confirmed"
    """It happened, as described."""
    REFUTED = "refuted"
    """The place ran, and it did not happen in the steps that were looked at."""
    NOT_REACHED = "not reached"
    """The place did not run."""
    UNDECIDED = "undecided"
    """The place ran, but the run could not tell."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A finding and the verdict of a real run on it."""

    finding: Finding
    verdict: Verdict
    reason: str
    """One sentence, with numbers."""
    because: tuple[Because, ...] = ()
    """The places in the order in which they ran, as the real run met them."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """What was measured; its keys are stable and its values are plain JSON."""
    proof: str = ""
    """What changed in a run that left the fault out."""
    ranks: tuple[int, ...] = ()
    """The ranks of a distributed run that say so; empty for a single process."""
