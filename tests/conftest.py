"""Prints the honest score: the missed and the false alarms that marks admit, and what shadow does not know yet."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sums what tests said by `record_property("missed" or "false" or "maybe", what)`; xdist carries them over."""
    score = {"missed": Counter[str](), "false": Counter[str](), "maybe": Counter[str]()}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for kind, rule in report.user_properties:
                    if kind in score:
                        score[kind][str(rule)] += 1
    terminalreporter.section("known misses and false alarms")
    terminalreporter.line("   ".join(f"{kind}: {counted.total()}" for kind, counted in score.items()))
    for kind, rules in score.items():
        for rule, count in rules.most_common():
            terminalreporter.line(f"  {kind:6} {rule} {count}")
