"""Where strings and comments stand in Python text that may be broken.

`tokenize` gives up on the first thing that it does not understand, and notebooks and half-written files are
full of them.  This scan never fails: what it cannot read is plain text.
"""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""
    (?P<string> \"\"\" (?: \\. | [^\\] )*? \"\"\"
              | ''' (?: \\. | [^\\] )*? '''
              | " (?: \\. | [^"\\\n] )* "
              | ' (?: \\. | [^'\\\n] )* ' )
  | (?P<comment> \#[^\n]* )
  | (?P<open> [\[({] )
  | (?P<close> [])}] )
  | (?P<joined> \\\n )
  | (?P<newline> \n )
    """,
    re.VERBOSE | re.DOTALL,
)


def comments(text: str) -> list[tuple[int, int, str]]:
    """The comments of `text`: line and column (from 1) of the `#`, and the comment with it."""
    found = []
    line, last = 1, 0
    for token in TOKEN.finditer(text):
        if token.lastgroup == "comment":
            line += text.count("\n", last, token.start())
            last = token.start()
            found.append((line, last - text.rfind("\n", 0, last), token[0]))
    return found


def logical_line_end(text: str, start: int) -> int:
    """Where the logical line that begins at `start` ends, its newline included."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(0, depth - 1)
        elif token.lastgroup == "newline" and depth == 0:
            return token.end()
    return len(text)
