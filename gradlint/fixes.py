"""From findings to edits of the text that they are in.

A rule's repair is computed when somebody asks for it, from the finding and the text alone.  Nothing here lints again:
`gradlint.repair` does, and takes back what does not do any good.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gradlint import rules
from gradlint.edits import Code, Refused
from gradlint.faults import why
from gradlint.rule import Edit, Finding, Fix
from gradlint.sources import Source


def fix(finding: Finding, source: Source) -> Fix | None:
    """The repair of a finding, in places of `source.text`; None where its rule knows none for it."""
    rule = next((rule for rule in rules.rules() if rule.name == finding.name), None)
    if rule is None or rule.fix is None or finding.span.path != source.path:
        return None
    try:
        found = rule.fix(finding, _code(source.path, source.text))
    except Refused:
        return None
    except Exception as error:  # noqa: BLE001  # without its repair the finding is still worth telling
        warnings.warn(f"the repair of {finding.name} failed: {why(error)}", RuntimeWarning, stacklevel=2)
        return None
    if found is None or not found.edits or conflict(found.edits):
        return None
    return found


def offered(findings: Iterable[Finding], sources: Mapping[str, Source]) -> list[Finding]:
    """The findings, each with its repair where there is one; `sources` by path."""
    return [
        replace(finding, fix=fix(finding, sources[finding.span.path])) if finding.span.path in sources else finding
        for finding in findings
    ]


def fix_all(findings: Iterable[Finding], source: Source, *, unsafe: bool = False) -> tuple[Edit, ...]:
    """The edits that repair as many of the findings in `source` as can be repaired at once, in their order.

    Of two repairs that touch each other the first wins.  `unsafe`: also those that may change what a correct program
    does.
    """
    mine = [found for finding in findings if (found := fix(finding, source)) is not None and (found.safe or unsafe)]
    return tuple(sorted({edit for found in together(mine) for edit in found.edits}))


def together(found: Sequence[Fix]) -> list[Fix]:
    """Those of the repairs that can be made at once, the first first."""
    chosen: list[Fix] = []
    edits: set[Edit] = set()
    for one in found:
        if not conflict([*edits, *(edit for edit in one.edits if edit not in edits)]):
            chosen.append(one)
            edits.update(one.edits)
    return chosen


def conflict(edits: Iterable[Edit]) -> bool:
    """Whether two of the edits touch the same text, or it is open which of two insertions comes first."""
    last = None
    for edit in sorted(edits):
        start, end = (edit.span.line, edit.span.column), (edit.span.end_line, edit.span.end_column)
        if last is not None and (start < last[1] or (start, end) == last):
            return True
        last = start, end
    return False


@functools.lru_cache(maxsize=2)
def _code(path: str, text: str) -> Code:
    """Findings come file by file, so the last text is the one that is asked for again."""
    return Code(path, text)
