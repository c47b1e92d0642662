"""The report as SARIF 2.1.0, for code scanning and for viewers.

A finding is a result, its reasons are the related locations and, where there are several, a code flow in their order.
The message links to each of them: GitHub shows a related location only where the message links to it.

What a real run says of a finding, in the words of SARIF:

* confirmed: `kind` is "fail", with the severity of the rule;
* undecided, not reached: `kind` is "open" and `level` "none", which is SARIF's word for what is not known;
* refuted: `kind` is "pass".  These stand whole under `properties.gradlint.refuted` of the run and not among its
  results: GitHub does not read `kind`, and would raise an alert for each.

The full verdict is in `properties.gradlint` of the result.  `check` and `confirm` are two tools by name, so that
uploading the one does not close the alerts of the other.

A cell of a notebook has no line that the reader of the `.ipynb` could count.  So such a location names the file without
a region; the cell and the place in it are in its `properties.gradlint`, and the message says them.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import gradlint
from gradlint.faults import FAULTS, INTERNAL
from gradlint.page import Page
from gradlint.report import Report, repository
from gradlint.report.fingerprint import fingerprints
from gradlint.rule import Because, Finding, Fix, Judgement, Verdict
from gradlint.trace import Span

if TYPE_CHECKING:
    from gradlint.confirmation import Confirmation

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
"""The name of the folder that relative paths are told from."""

Json = dict[str, Any]

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "info": "recommendation"}
_KINDS = {
    Verdict.CONFIRMED: "fail",
    Verdict.REFUTED: "pass",
    Verdict.NOT_REACHED: "open",
    Verdict.UNDECIDED: "open",
}
_FAMILIES = {
    "GL0": "not-linted",
    "GL1": "cut-from-graph",
    "GL2": "changed-in-place",
    "GL3": "stale-gradients",
    "GL4": "no-gradient",
    "GL5": "modes-and-memory",
}
# Controls, changes of direction, and halves of surrogate pairs, which are no text at all.
_UNSHOWN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def render(report: Report) -> str:
    """The findings of `check`."""
    run = _Run("gradlint", report, report.findings)
    results = [run.result(number, finding) for number, finding in enumerate(report.findings)]
    successful = all(finding.name != INTERNAL.name for finding in report.findings)
    return run.log(results, {"executionSuccessful": successful}, _notes("warning", report.warnings), {})


def render_confirmation(confirmation: Confirmation) -> str:
    """The verdicts of `confirm`; the command line is that of the program that was run."""
    report = confirmation.report
    judgements = [*confirmation.judgements, *confirmation.seen]
    run = _Run("gradlint confirm", report, [judgement.finding for judgement in judgements])
    results: list[Json] = []
    refuted: list[Json] = []
    for number, judgement in enumerate(judgements):
        found_by = "check" if number < len(confirmation.judgements) else "run"
        into = refuted if judgement.verdict is Verdict.REFUTED else results
        into.append(run.verdict(number, judgement, found_by))
    ended = f"the program {confirmation.ended}"
    notes = [*_notes("warning", report.warnings), *_notes("note", confirmation.notes)]
    if not confirmation.judged:
        notes += _notes("error", [f"nothing could be judged: no backward ran; {ended}"])
    invocation = {
        "commandLine": _shown(confirmation.command),
        "exitCodeDescription": _shown(ended),
        "executionSuccessful": confirmation.judged,
    }
    return run.log(results, invocation, notes, {"steps": confirmation.steps, "refuted": refuted})


class _Run:
    """One run as SARIF has it: the rules, the places and the fingerprints of its findings."""

    def __init__(self, tool: str, report: Report, findings: Sequence[Finding]) -> None:
        self.tool = tool
        self.report = report
        self.root = repository.root()
        self.rules = [_rule(code, name) for code, name in sorted({(f.code, f.name) for f in findings})]
        self.indices = {(rule["id"], rule["name"]): index for index, rule in enumerate(self.rules)}
        self.fingerprints = _fingerprints(report, findings)

    def log(self, results: list[Json], invocation: Json, notes: list[Json], properties: Json) -> str:
        run: Json = {
            "tool": {
                "driver": {
                    "name": self.tool,
                    "fullName": f"{self.tool} {gradlint.__version__}",
                    "version": gradlint.__version__,
                    "semanticVersion": gradlint.__version__,
                    "rules": self.rules,
                }
            },
            "invocations": [
                invocation | {"toolExecutionNotifications": notes, "workingDirectory": {"uri": _folder(os.getcwd())}}
            ],
            "originalUriBaseIds": {ROOT: {"uri": _folder(self.root)}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }
        if properties:
            run["properties"] = {"gradlint": properties}
        return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"

    def result(self, number: int, finding: Finding) -> Json:
        """What `check` says."""
        properties = {"instead": _shown(finding.instead)} if finding.instead else {}
        return self._result(number, finding, "fail", [], [finding.because], properties)

    def verdict(self, number: int, judgement: Judgement, found_by: str) -> Json:
        """What `confirm` says."""
        finding, verdict = judgement.finding, judgement.verdict
        said = [_sentence(f"{verdict.value.capitalize()}: {judgement.reason}")]
        if judgement.proof:
            said.append(_sentence(f"Proof: {judgement.proof}"))
        properties = {
            "verdict": verdict.value,
            "reason": judgement.reason,
            "foundBy": found_by,
            "evidence": judgement.evidence,
            "proof": judgement.proof or None,
            "ranks": judgement.ranks,
            "instead": finding.instead or None,
        }
        # As the run met them first.
        chains = [judgement.because, finding.because]
        return self._result(number, finding, _KINDS[verdict], said, chains, _plain(properties))

    def _result(
        self,
        number: int,
        finding: Finding,
        kind: str,
        said: list[str],
        chains: Sequence[tuple[Because, ...]],
        properties: Json,
    ) -> Json:
        told = [chain for chain in dict.fromkeys(chains) if chain]
        result: Json = {
            "ruleId": _shown(finding.code),
            "ruleIndex": self.indices[_shown(finding.code), _shown(finding.name)],
            "kind": kind,
            "level": _LEVELS.get(finding.severity, "warning") if kind == "fail" else "none",
            "message": {"text": self._message(finding, said, told[0] if told else ())},
            "locations": [self._location(finding.span)],
        }
        if told:
            result["relatedLocations"] = [
                {"id": id_, **self._location(link.span, link.text)} for id_, link in enumerate(told[0], 1)
            ]
        # A single place is no flow.
        if flows := [self._flow(finding, chain) for chain in told if len(chain) > 1]:
            result["codeFlows"] = flows
        result["partialFingerprints"] = self.fingerprints[number]
        # A change in a cell has no place that the reader of the `.ipynb` could find.
        if finding.fix is not None and self.report.cell(finding.span)[0] is None:
            result["fixes"] = [self._fix(finding.span.path, finding.fix)]
        if properties:
            result["properties"] = {"gradlint": properties}
        return result

    def _fix(self, path: str, fix: Fix) -> Json:
        replacements = [
            {
                "deletedRegion": {
                    "startLine": edit.span.line,
                    "startColumn": edit.span.column,
                    "endLine": edit.span.end_line,
                    "endColumn": edit.span.end_column,
                },
                "insertedContent": {"text": edit.text},
            }
            for edit in fix.edits
        ]
        return {
            "description": {"text": _sentence(fix.message)},
            "artifactChanges": [{"artifactLocation": self._artifact(path), "replacements": replacements}],
            "properties": {"gradlint": {"applicability": "safe" if fix.safe else "unsafe"}},
        }

    def _message(self, finding: Finding, said: list[str], chain: Sequence[Because]) -> str:
        lines = [_sentence(finding.message or finding.name)]
        if self.report.cell(finding.span)[0] is not None:
            lines.append(_sentence(f"This is in {self._cell(finding.span)}"))
        lines += said
        if chain:
            links = [f"[{_link(link.text or 'here')}]({id_})" for id_, link in enumerate(chain, 1)]
            cells = [self._cell(link.span) for link in chain]
            told = [f"{link} ({cell})" if cell else link for link, cell in zip(links, cells, strict=True)]
            lines.append(f"Because: {', '.join(told)}.")
        if finding.instead.strip():
            lines.append(f"Instead: {_literal(finding.instead.strip())}")
        return "\n".join(lines)

    def _cell(self, span: Span) -> str:
        cell, inside = self.report.cell(span)
        return "" if cell is None else f"cell {cell}, line {inside.line}"

    def _flow(self, finding: Finding, chain: Sequence[Because]) -> Json:
        locations = [
            {
                "location": self._location(link.span, link.text),
                "importance": "essential" if link.span == finding.span else "important",
            }
            for link in chain
        ]
        return {"threadFlows": [{"locations": locations}]}

    def _location(self, span: Span, text: str = "") -> Json:
        cell, inside = self.report.cell(span)
        start = (max(inside.line, 1), max(inside.column, 1))
        end = max((inside.end_line, inside.end_column), start)
        region = {"startLine": start[0], "startColumn": start[1], "endLine": end[0], "endColumn": end[1]}
        physical: Json = {"artifactLocation": self._artifact(span.path)}
        location: Json = {"physicalLocation": physical}
        if cell is None:
            physical["region"] = region
        else:
            location["properties"] = {"gradlint": {"cell": cell, **region}}
        if text:
            location["message"] = {"text": _literal(text)}
        return location

    def _artifact(self, path: str) -> Json:
        if path == "-":
            return {"uri": "-", "description": {"text": "standard input"}}
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            path = path.encode("utf-8", "replace").decode()
        inside = repository.inside(path, self.root)
        if inside is None:
            return {"uri": Path(os.path.abspath(path)).as_uri()}
        return {"uri": quote(os.fsencode(inside)), "uriBaseId": ROOT}


def _folder(path: str) -> str:
    return Path(path).as_uri().rstrip("/") + "/"


def _rule(code: str, name: str) -> Json:
    from gradlint.rules import rules

    rule: Json = {"id": _shown(code), "name": _shown(name)}
    page = next((page for page in (*FAULTS, *(known.page for known in rules())) if page.code == code), None)
    if page is not None:
        rule |= {
            "shortDescription": {"text": page.title},
            "fullDescription": {"text": _introduction(page)},
            "help": {"text": page.text, "markdown": page.text},
            "defaultConfiguration": {"level": _LEVELS[page.severity]},
            "properties": {
                "tags": ["pytorch", "correctness", *filter(None, [_FAMILIES.get(code[:3])])],
                "problem.severity": _PROBLEMS[page.severity],
            },
        }
    return rule


def _introduction(page: Page) -> str:
    """The first paragraph under the title, on one line."""
    after = re.sub(r"\A\s*# .+\n", "", page.text)
    return " ".join(re.split(r"\n\s*\n|^#", after.strip(), maxsplit=1, flags=re.MULTILINE)[0].split()) or page.title


def _notes(level: str, messages: Iterable[str]) -> list[Json]:
    return [{"level": level, "message": {"text": _literal(message)}} for message in messages if message]


def _shown(text: str) -> str:
    return _UNSHOWN.sub("\ufffd", text)


def _literal(text: str) -> str:
    """The text where SARIF would read links and placeholders in it."""
    return _shown(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _link(text: str) -> str:
    return re.sub(r"([\\\[\]])", r"\\\1", " ".join(_shown(text).replace("{", "{{").replace("}", "}}").split()))


def _sentence(text: str) -> str:
    text = _literal(" ".join(text.split()))
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _plain(value: Any) -> Any:  # noqa: ANN401  # what was measured may be anything
    """The value as JSON can hold it, which knows no number that is not finite."""
    if isinstance(value, str):
        return _shown(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_shown(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return _shown(str(value))


def _fingerprints(report: Report, findings: Sequence[Finding]) -> list[dict[str, str]]:
    """What tells each finding from the others for as long as its line is the same, wherever the line stands.

    `gradlint/v1` is our own.  GitHub reads `primaryLocationLineHash` alone.  Its upload action computes that too, and
    complains of any other value.  Only where a location has no line, as in notebooks, it has none to compare.
    """
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        wanted.setdefault(finding.span.path, set()).add(finding.span.line)
    hashes = {
        path: _line_hashes(source.text, wanted[path])
        for path, source in report.sources.items()
        if path in wanted and not source.cells
    }
    found = []
    for finding, own in zip(findings, fingerprints(report, findings), strict=True):
        path, number = finding.span.path, finding.span.line
        prints = {"gradlint/v1": own}
        if path in report.sources and report.sources[path].cells:
            prints["primaryLocationLineHash"] = own
        elif number in hashes.get(path, {}):
            prints["primaryLocationLineHash"] = hashes[path][number]
        found.append(prints)
    return found


_BLOCK = 100
_MOD = 37


def _line_hashes(text: str, wanted: set[int]) -> dict[int, str]:
    """The hash that GitHub's upload action gives to each wanted line: of 100 characters from its start on.

    Spaces and tabs do not count, the end of the file does, and lines with the same hash are numbered.
    """
    unit = 2  # It counts in UTF-16, as JavaScript does.
    rows = [row.encode("utf-16-le", "surrogatepass") for row in re.sub("[ \t]", "", text).split("\n")]
    whole = "\n".encode("utf-16-le").join(rows) + b"\xff\xff" + bytes(_BLOCK * unit)
    seen: Counter[bytes] = Counter()
    found = {}
    at = 0
    for number, row in enumerate(rows, 1):
        block = whole[at : at + _BLOCK * unit]
        seen[block] += 1
        if number in wanted:
            value = 0
            for index in range(0, len(block), unit):
                value = (value * _MOD + int.from_bytes(block[index : index + unit], "little")) % 2**64
            found[number] = f"{value:x}:{seen[block]}"
        at += len(row) + unit
    return found
