"""The process between gradlint and the program: it starts the program, and sees to it that nothing of it stays behind.

Its standard input is held by gradlint, and closed when the run shall end.  It is closed as well when gradlint dies,
however that happens, so that there is one way in which a run ends: the program and whatever came of it get SIGTERM,
and what is left five seconds later gets SIGKILL.

The guard is given the scratch folder, which it removes at the end, and one line of JSON (`Task`) on standard input.  It
writes lines of JSON on standard output: what contains the program, or why it could not be started, and what it
returned.  The program writes to the guard's standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypedDict

from gradlint.record import sandbox

MARK = "GRADLINT_RUN"
GRACE = 5.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


class Task(TypedDict):
    """What to start, and in which bounds."""

    argv: list[str]
    token: str
    project: str
    writable: list[str]
    contain: bool


def main() -> None:
    """Runs one program from start to end."""
    scratch = Path(sys.argv[2])
    task = _task()
    if task is None:
        remove(scratch)
        return
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _nothing)
    if sys.platform == "linux":
        # Whoever loses his parent becomes a child of the guard, and is found in whatever session he is.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.mkfifo(scratch / "leash")
    # For both: an open for writing would wait for a reader.
    os.open(scratch / "leash", os.O_RDWR)
    try:
        program = _start(task, scratch)
        if program is not None:
            _watch(program, task["token"], woken)
    finally:
        remove(scratch)


def members(root: int, token: str | None) -> list[int]:
    """The processes that stem from `root`, and, with a token, all those that bear it; without `root` itself."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    mark = f"{MARK}={token}\0".encode()
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        # Processes end while one looks at them, and others may not be looked at.
        with contextlib.suppress(OSError):
            state, parent = (_PROC / entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state in "ZX":
                continue
            parents[int(entry)] = int(parent)
            if token is not None and mark in (_PROC / entry / "environ").read_bytes():
                marked.add(int(entry))
    children: dict[int, list[int]] = {}
    for child, parent_of_child in parents.items():
        children.setdefault(parent_of_child, []).append(child)
    found, open_ = set(marked), [root, *marked]
    while open_:
        for child in children.get(open_.pop(), ()):
            if child not in found:
                found.add(child)
                open_.append(child)
    return sorted(found - {root})


def has_proc() -> bool:
    """Whether this system tells about its processes in files."""
    return (_PROC / "self" / "stat").exists()


def send(number: int, processes: Iterable[int]) -> None:
    """Sends a signal to those of the processes that are still there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def remove(folder: Path) -> None:
    """Removes a folder, with those inside that a layer has made for itself and locked."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            # A link may lead out of the folder.
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)  # It is about to go.
    shutil.rmtree(folder, ignore_errors=True)


def _task() -> Task | None:
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 65536)
        if not read:
            return None
        line += read
    task: Task = json.loads(line)
    return task


def _nothing(number: int, frame: FrameType | None) -> None:
    """A signal without a handler wakes nobody."""


def _say(**what: object) -> None:
    # Nobody listens where gradlint has died.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(what).encode() + b"\n")


def _start(task: Task, scratch: Path) -> int | None:
    """Starts the program, contained as well as this system allows."""
    choices: list[tuple[Path, ...] | None] = [None]
    kept = [Path(path) for path in task["writable"]]
    project = Path(task["project"])
    caches = sandbox.caches(project, os.environ)
    if task["contain"] and sys.platform == "linux":
        _wake_the_driver()
        choices = [*sandbox.choices(project, scratch, os.environ), None]
    for folders in choices:
        reader, writer = os.pipe()
        program = os.fork()
        if program == 0:
            _become(task["argv"], folders, scratch, [*kept, *caches], writer)
        os.close(writer)
        said = _all_of(reader)
        if said.get("failed") is None and "entered" in said:
            layered = [str(folder) for folder in folders or ()]
            refused = bool(said.get("refused"))
            contained = bool(layered or refused)
            _say(
                layered=layered, refused=refused, kept=[str(path) for path in (*caches, *kept[1:])] if contained else []
            )
            return program
        os.waitpid(program, 0)
        if "entered" in said:
            _say(failed=said["failed"])
            return None
    raise AssertionError("the last choice enters nothing")


def _become(
    argv: list[str], folders: tuple[Path, ...] | None, scratch: Path, writable: list[Path], writer: int
) -> NoReturn:
    """Turns this process, which has just been forked, into the program."""
    said: dict[str, object] = {}
    try:
        guard = os.getppid()
        os.setsid()
        signal.set_wakeup_fd(-1)
        # Python ignores the last two, and what is ignored stays so in the program.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        refused = folders is not None and sandbox.enter(folders, scratch, writable)
        said = {"entered": True, "refused": refused}
        if sys.platform == "linux":
            # After the sandbox, since the kernel forgets this when rights change.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != guard:
                os._exit(1)
        os.write(writer, json.dumps(said).encode())
        os.execvp(argv[0], argv)  # noqa: S606  # There is no shell in it.
    except BaseException as error:  # noqa: BLE001  # Nothing of this process may come back as a second guard.
        reason = getattr(error, "strerror", None) or str(error)
        os.write(writer, b"\n" + json.dumps({"failed": f"{argv[0]}: {reason}"}).encode())
    finally:
        os._exit(127)


def _all_of(reader: int) -> dict[str, object]:
    """What the new process said until it became the program, or gave up."""
    with os.fdopen(reader, "rb") as stream:
        said: dict[str, object] = {}
        for line in stream.read().split(b"\n"):
            if line:
                said.update(json.loads(line))
    return said


def _wake_the_driver() -> None:
    """CUDA makes a device file with the rights of the superuser when there is none, which no sandbox lets it do."""
    command = shutil.which("nvidia-modprobe")
    if command is not None and not os.path.exists("/dev/nvidia-uvm"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            quiet = subprocess.DEVNULL
            subprocess.run([command, "-u", "-c=0"], stdout=quiet, stderr=quiet, timeout=10, check=False)  # noqa: S603


def _watch(program: int, token: str, woken: int) -> None:
    """Waits until the program or the run is over, and ends what is left."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    returned: int | None = None
    cut = False
    while returned is None and not cut:
        returned = _reap(program)
        if returned is None:
            ready = [descriptor for descriptor, _ in poll.poll()]
            cut = 0 in ready and not os.read(0, 1)
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
    if returned is not None:
        _say(returned=returned)
    started = time.monotonic()
    number = signal.SIGTERM
    while left := _left(program, token, alive=returned is None):
        if number is signal.SIGTERM or time.monotonic() - started > GRACE:
            send(number, left)
            number = signal.SIGKILL
        time.sleep(0.02)
        again = _reap(program)
        if returned is None and again is not None:
            returned = again
            _say(returned=returned)
    if returned is None:
        _say(returned=os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))


def _left(program: int, token: str, *, alive: bool) -> list[int]:
    if has_proc():
        return [process for process in members(os.getpid(), token) if process != os.getpid()]
    # Elsewhere a group is all that can be asked for.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program, 0)
        return [-program]
    return [program] if alive else []


def _reap(program: int) -> int | None:
    """Takes leave of every child that has ended, and says what the program returned, if it was among them."""
    returned = None
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            if process == program:
                returned = os.waitstatus_to_exitcode(status)
    return returned
