"""Runs every test of an editor that is installed, the slow ones too, and says of the others what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if __name__ == "__main__":
    # One browser, one editor at a time: what they wait for must not wait for another.
    options = ["-rs", "-v", "--numprocesses=0", "--rootdir", str(HERE.parent.parent)]
    sys.exit(pytest.main([*options, str(HERE.parent / "test_editors.py"), str(HERE / "browser.py"), *sys.argv[1:]]))
