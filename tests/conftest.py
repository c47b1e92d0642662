"""Prints the honest score: the missed and the false alarms that marks admit."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sums what tests said by `record_property("missed" or "false", rule)`; xdist carries properties over."""
    score = {"missed": Counter[str](), "false": Counter[str]()}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for kind, rule in report.user_properties:
                    if kind in score:
                        score[kind][str(rule)] += 1
    missed, false = score["missed"], score["false"]
    terminalreporter.section("known misses and false alarms")
    terminalreporter.line(f"missed: {missed.total()}   false: {false.total()}")
    for kind, rules in score.items():
        for rule, count in rules.most_common():
            terminalreporter.line(f"  {kind:6} {rule} {count}")
