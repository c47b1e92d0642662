"""Where in the program something happens: source positions, calls in progress, turns of loops."""

from __future__ import annotations

import bisect
import dis
import inspect
import os
import sys
from types import CodeType, FrameType
from typing import Any

from .journal import Journal

# What Python itself puts between a function and its caller.
_WITHOUT_NAME = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_ELSEWHERE = ("/site-packages/", "/dist-packages/", "\\site-packages\\", "<")
# Generators and coroutines go on under other callers than they began under.
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Code:
    """What is known of one code object of the program."""

    __slots__ = ("code", "file", "has_self", "named", "sites")

    def __init__(self, code: CodeType, file: int) -> None:
        self.code = code
        self.file = file
        self.sites: dict[int, Site] = {}
        self.has_self = code.co_argcount > 0 and code.co_varnames[0] == "self"
        self.named = code.co_name not in _WITHOUT_NAME


class Site:
    __slots__ = ("dropped", "number", "path", "position")

    def __init__(self, number: int, path: str, position: tuple[int | None, ...], *, dropped: bool) -> None:
        self.number = number
        self.path = path
        self.position = position
        """Line, column, end line, end column."""
        self.dropped = dropped
        """The next instruction throws the result away."""


class Call:
    """A call in progress.  The frame is held until the next look at the stack, so that its identity is its own."""

    __slots__ = ("code", "frame", "number", "told")

    def __init__(self, frame: FrameType, number: int, code: Code) -> None:
        self.frame = frame
        self.number = number
        self.code = code
        self.told = 0
        """How many turns its loops had begun when that was last written down."""


class Loops:
    """The loops of a call that are running, each with its turn, outermost first."""

    __slots__ = ("begun", "frame", "turns")

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.turns: list[list[int]] = []
        self.begun = 0


class Places:
    """Numbers sites and calls, and writes each into the journal when it is first met."""

    def __init__(
        self, journal: Journal, roots: tuple[str, ...], elsewhere: tuple[str, ...], files: frozenset[str]
    ) -> None:
        self.journal = journal
        self.elsewhere = (_OURS, *elsewhere, os.path.join(os.path.dirname(os.__file__), ""))
        """Folders whose files never are the program's own: the interpreter's library among them."""
        self.roots = roots
        """Folders whose files are the program's own."""
        self.named_files = files
        """Files that are the program's own wherever they lie."""
        self.codes: dict[int, Code | CodeType] = {}
        self.files: dict[str, int] = {}
        self.number = 0
        self.calls: list[Call] = []
        self.loops: list[Loops] = []
        """Those of the calls in progress, as far as it is known; written down when something happens in them."""
        self.calls_made = 0
        self.owner_of: Any = None
        """Gives the number of the module that a frame's `self` is, 0 where it is none."""
        self.via = ""
        """The function outside the program that the program called at the last place."""

    def own_file(self, path: str) -> bool:
        if path in self.named_files:
            return True
        if path.startswith(self.elsewhere):
            return False
        return path.startswith(self.roots) and not any(part in path for part in _ELSEWHERE)

    def may_own(self, path: str) -> bool:
        """Quickly, for the thousands of files of other packages."""
        return path in self.named_files or not any(part in path for part in _ELSEWHERE)

    def code_of(self, code: CodeType) -> Code | None:
        known = self.codes.get(id(code))
        if known is None:
            path = code.co_filename
            # Held either way, so that no other code object gets its address.
            known = Code(code, self.file(path)) if self.own_file(path) else code
            self.codes[id(code)] = known
        return known if type(known) is Code else None

    def file(self, path: str) -> int:
        number = self.files.get(path)
        if number is None:
            number = self.files[path] = len(self.files) + 1
            self.journal.add("file", number, path)
        return number

    def here(self, frame: FrameType | None, skip: object = None) -> Site | None:
        """The place of the innermost frame of the program, None outside of it.

        `skip`: an object whose own `__init__` methods do not count as places; its constructor's caller does.
        """
        found: list[tuple[FrameType, Code]] = []
        first: FrameType | None = None
        first_code: Code | None = None
        via = ""
        depth = 0
        codes = self.codes
        while frame is not None:
            code = frame.f_code
            known = codes.get(id(code)) or self.code_of(code) or code
            if type(known) is not Code:
                if first is None and not code.co_filename.startswith(_OURS):
                    via = code.co_name
            elif first is not None or skip is None or not _is_constructing(frame, known, skip):
                if first is None:
                    first, first_code = frame, known
                if known.named:
                    if not code.co_flags & _RESUMED and (depth := self._depth(frame)):
                        # What called it is what called it at the last look.
                        break
                    found.append((frame, known))
            frame = frame.f_back
        self.via = via
        if first is None or first_code is None:
            return None
        self._enter(self._new(found, depth if frame is not None else 0))
        return self.site(first_code, first.f_lasti)

    def _depth(self, frame: FrameType) -> int:
        """How many calls are in progress up to that of a frame, 0 where its call was not at the last look."""
        calls = self.calls
        for at in range(len(calls), 0, -1):
            if calls[at - 1].frame is frame:
                return at
        return 0

    def _new(self, found: list[tuple[FrameType, Code]], depth: int) -> list[tuple[FrameType, Code]]:
        """Those of the frames, innermost first, whose calls were not in progress at the last look; others are over.

        The outermost of the frames was called by the call at `depth`.
        """
        calls = self.calls
        known = 0
        for frame, _ in reversed(found):
            if depth + known < len(calls) and calls[depth + known].frame is frame:
                known += 1
            else:
                break
        del calls[depth + known :]
        return found[: len(found) - known]

    def _enter(self, found: list[tuple[FrameType, Code]]) -> None:
        calls = self.calls
        for frame, code in reversed(found):
            self.calls_made += 1
            caller = calls[-1] if calls else None
            owner = 0
            if code.has_self and self.owner_of is not None:
                owner = self.owner_of(frame.f_locals.get("self"))
            place = self.site(caller.code, caller.frame.f_lasti).number if caller is not None else 0
            call = Call(frame, self.calls_made, code)
            calls.append(call)
            self.journal.add(
                "call", call.number, code.code.co_name, place, caller.number if caller is not None else 0, owner
            )
        if self.loops:
            self._tell_turns()

    def _tell_turns(self) -> None:
        loops = self.loops
        calls = self.calls
        while loops and not any(call.frame is loops[-1].frame for call in calls):
            loops.pop()
        for inside in loops:
            for call in calls:
                if call.frame is inside.frame and call.told != inside.begun:
                    call.told = inside.begun
                    self.journal.add("turn", call.number, [tuple(pair) for pair in inside.turns])

    def site(self, code: Code, at: int) -> Site:
        site = code.sites.get(at)
        if site is None:
            self.number += 1
            offset, position, dropped = _instruction(code.code, at)
            site = next((s for k, s in code.sites.items() if k == offset), None) or Site(
                self.number, code.code.co_filename, position, dropped=dropped
            )
            code.sites[at] = site
            if site.number == self.number:
                self.journal.add("site", site.number, code.file, *position)
        return site

    def turn(self, frame: FrameType, loop: int, around: tuple[int, ...]) -> None:
        """A loop of the program begins a turn; `around` are the loops that it stands in, outermost first."""
        loops = self.loops
        at = len(loops) - 1
        while at >= 0 and loops[at].frame is not frame:
            at -= 1
        if at < 0:
            if loops:
                # What belongs to calls that are over is let go, with their variables.
                running = set()
                caller = frame.f_back
                while caller is not None:
                    running.add(id(caller))
                    caller = caller.f_back
                loops[:] = [inside for inside in loops if id(inside.frame) in running]
            inside = Loops(frame)
            loops.append(inside)
        else:
            del loops[at + 1 :]
            inside = loops[at]
        inside.begun += 1
        turns = inside.turns
        if turns and turns[-1][0] == loop:
            turns[-1][1] += 1
            return
        known = next((pair for pair in turns if pair[0] == loop), None)
        inside.turns = [pair for pair in turns if pair[0] in around]
        inside.turns.append([loop, known[1] + 1] if known is not None else [loop, 1])

    def call_number(self) -> int:
        return self.calls[-1].number if self.calls else 0


def _is_constructing(frame: FrameType, code: Code, made: object) -> bool:
    names = code.code.co_varnames
    return code.code.co_name == "__init__" and bool(names) and frame.f_locals.get(names[0]) is made


_INSTRUCTIONS: dict[int, tuple[CodeType, list[int], list[str], list[tuple[int | None, ...]]]] = {}


def _instruction(code: CodeType, at: int) -> tuple[int, tuple[int | None, ...], bool]:
    """The offset, the position and whether the result is dropped, of the instruction at `at`.

    Columns are byte offsets into the line, as Python keeps them; before Python 3.11 there are lines only.
    """
    known = _INSTRUCTIONS.get(id(code))
    if known is None:
        offsets: list[int] = []
        names: list[str] = []
        lines: list[tuple[int | None, ...]] = []
        line: int | None = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            if instruction.opname == "CACHE":
                continue
            if sys.version_info >= (3, 11):
                where = instruction.positions
                position: tuple[int | None, ...] = tuple(where) if where is not None else (None,) * 4
                position = (position[0], position[2], position[1], position[3])
            else:
                line = instruction.starts_line or line
                position = (line, None, line, None)
            offsets.append(instruction.offset)
            names.append(instruction.opname)
            lines.append(position)
        known = _INSTRUCTIONS[id(code)] = code, offsets, names, lines
    _, offsets, names, lines = known
    found = max(0, bisect.bisect_right(offsets, at) - 1)
    following = names[found + 1] if found + 1 < len(names) else ""
    return offsets[found], lines[found], following == "POP_TOP" and "CALL" in names[found]
