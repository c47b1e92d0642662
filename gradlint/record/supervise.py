"""Runs the user's program within bounds of time, memory and place, and leaves nothing of it behind.

The program is a child of a guard (`gradlint.record.guard`), which ends it when this process asks for it, and when this
process dies.  What the program writes is passed on as it comes, and its end is kept for the report.

What the program and its children find in their environment:

* `GRADLINT_RUN`: a token of this run, by which its processes are found wherever they went.
* `GRADLINT_LEASH`: a FIFO that `gradlint/record/child/leash.py` holds on to; whoever does so dies with the guard.
* `TMPDIR`: a folder of this run, removed with everything in it.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from gradlint.record import guard
from gradlint.record.launch import Launch
from gradlint.record.sandbox import Containment, Sandbox

TAIL = 64 * 1024
# What ranks have to end by themselves once one of them is done.
LINGER = 30.0

_POLL = 0.1
# A guard that has been asked to end its program needs its grace, and some time to look at all processes.
_PATIENCE = guard.GRACE + 10
_GUARD = "import sys; sys.path.append(sys.argv[1]); from gradlint.record.guard import main; main()"

_QUIET = {
    # Trackers would log a run that nobody meant.
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "TRAINS_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "disabled",
    "POLYAXON_NO_OP": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
    # What was rewritten for a recording must not be found by the next, plain run.
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    # Two runs with one seed shall give one result, and compiled code shows none of its operations.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "TORCHDYNAMO_DISABLE": "1",
}
# These name a place in the user's own MLflow, which the scratch folder does not have.
_UNSET = ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_REGISTRY_URI")

_RANK = re.compile(r"^\[[^\]\n]*rank\d+\]: ?", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)
# What goes wrong while the interpreter shuts down is not why the program ended.
_IGNORED = re.compile(r"^Exception ignored .*\n(?:" + _TRACEBACK.pattern + r"\n?)?", re.MULTILINE)
_SIGNALLED = re.compile(r"Signal \d+ \((SIG[A-Z]+)\) received by PID")
# Launchers say that a program failed by failing themselves.
_ECHOES = ("torch.distributed.elastic.", "subprocess.CalledProcessError")

Why = Literal["exit", "signal", "timeout", "memory", "finished"]


class NotStarted(OSError):
    """The command could not be started at all."""


@dataclass(frozen=True)
class Ended:
    """How a run went."""

    # As `subprocess` has it: the number of a signal is negative.
    returncode: int
    why: Why
    seconds: float
    # In bytes, of all its processes together; none where the system does not tell.
    peak_memory: int | None
    tail: str
    containment: Containment
    timeout: float
    max_memory: int | None

    @property
    def sentence(self) -> str:
        """What happened, to follow "the program"."""
        if self.why == "timeout":
            return f"took more than {self.timeout:g} s and was ended"
        if self.why == "memory":
            return f"used more than {(self.max_memory or 0) / 1e9:.1f} GB and was ended"
        if self.why == "finished":
            return "was ended after a rank of it was done"
        if self.why == "signal":
            name = _signal(-self.returncode)
            return f"was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
        if self.returncode == 0:
            return "exited with 0"
        error = self.error
        return f"exited with {self.returncode}" + (f": {error}" if error else "") + self._hint

    @property
    def error(self) -> str | None:
        """The program's own last word: the last line of its last traceback, or else the last line that it wrote."""
        text = _RANK.sub("", _COLOUR.sub("", self.tail).replace("\r\n", "\n"))
        text = _IGNORED.sub("", text)
        raised = [line for line in _TRACEBACK.findall(text) if not line.startswith(_ECHOES)]
        if raised:
            return str(raised[-1]).strip()
        # The first one to fail is named last; the launcher itself then ended the others.
        if signals := _SIGNALLED.findall(text):
            return f"a rank was killed by {signals[-1]}"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report has to add about the bounds of the run."""
        unwatched = self.max_memory is not None and self.peak_memory is None
        return (
            self.containment.sentence,
            *(("the limit of memory is not enforced on this system",) if unwatched else ()),
        )

    @property
    def _hint(self) -> str:
        contained = self.containment.kind != "none"
        refused = re.search(r"Permission denied|Read-only file system|Invalid cross-device link", self.tail)
        return " (the sandbox refuses writes there; --sandbox off lets them be)" if contained and refused else ""


def run(
    launch: Launch,
    *,
    cwd: Path,
    timeout: float,
    max_memory: int | None = None,
    sandbox: Sandbox = Sandbox.AUTO,
    project: Path | None = None,
    writable: Sequence[Path] = (),
    finished: Callable[[], bool] = lambda: False,
    linger: float = LINGER,
    on_output: Callable[[str], object] | None = None,
) -> Ended:
    """Runs the program to its end, or to one of its bounds.

    `project` is the folder whose files must stay as they are; `cwd` where it is not given.  What is written to the
    folders in `writable` stays; the first of them is the caller's own, for the results.  `finished` says that a rank
    is done: the others then have `linger` seconds.  `on_output` gets what the program writes on its standard output
    and error.

    Raises `NotStarted`; a `KeyboardInterrupt`, like any other error, ends the program before it is seen by the caller.
    """
    if os.name != "posix":
        raise NotStarted("programs are run under Linux and macOS; under Windows, use WSL")
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix="gradlint-")))
    try:
        (scratch / "tmp").mkdir()
        token = secrets.token_hex(16)
        with subprocess.Popen(  # noqa: S603  # To run what the user asks for is the purpose.
            # Nothing that is installed or set for the program has a say in its guard.
            [sys.executable, "-I", "-S", "-c", _GUARD, str(Path(__file__).parents[2]), str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=environment(launch.environment, scratch, token),
            start_new_session=True,
        ) as process:
            running = _Run(process, token, on_output)
            try:
                task = guard.Task(
                    argv=list(launch.argv),
                    token=token,
                    project=os.path.realpath(project or cwd),
                    writable=[os.path.realpath(folder) for folder in writable],
                    contain=sandbox is Sandbox.AUTO,
                )
                running.start(task)
                running.watch(timeout, max_memory, finished, linger)
            except BaseException:
                # What the caller sees is this, and not how he fails to hear the rest.
                running.on_output = None
                raise
            finally:
                running.end()
        return running.ended(timeout, max_memory)
    finally:
        guard.remove(scratch)


def environment(given: Mapping[str, str], scratch: Path, token: str) -> dict[str, str]:
    """What the program finds: what was given, with trackers switched off and places of its own."""
    own = {name: value for name, value in given.items() if name not in _UNSET}
    # With gloo this setting is a segmentation fault.
    if own.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        del own["TORCH_DISTRIBUTED_DEBUG"]
    own.setdefault("PYTHONHASHSEED", "0")
    own.update(_QUIET)
    own["MLFLOW_TRACKING_URI"] = (scratch / "tmp" / "mlruns").as_uri()
    own["TMPDIR"] = str(scratch / "tmp")
    own["GRADLINT_LEASH"] = str(scratch / "leash")
    own[guard.MARK] = token
    return own


@dataclass
class _Run:
    process: subprocess.Popen[bytes]
    token: str
    on_output: Callable[[str], object] | None
    started: float = field(default_factory=time.monotonic)
    why: Why | None = None
    containment: Containment = field(default_factory=Containment)
    returned: int | None = None
    seconds: float = 0.0
    tail: bytearray = field(default_factory=bytearray)
    peak: int | None = None
    # The sum over all processes that `peak` was measured at.  It counts pages that they share more than once.
    resident: int = 0
    failed: str | None = None
    _said: bytes = b""

    def __post_init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.open = selectors.DefaultSelector()
        for stream in (self.process.stdout, self.process.stderr):
            self.open.register(_there(stream), selectors.EVENT_READ)

    def start(self, task: guard.Task) -> None:
        try:
            _there(self.process.stdin).write(json.dumps(task).encode() + b"\n")
        except BrokenPipeError:
            raise NotStarted("the process that guards the program died") from None

    def watch(self, timeout: float, max_memory: int | None, finished: Callable[[], bool], linger: float) -> None:
        """Passes on what comes, until the program is over or has to be ended."""
        done: float | None = None
        watches_memory = guard.has_proc()
        next_look = 0.0
        while self.open.get_map() and self.returned is None:
            self._read(_POLL)
            now = time.monotonic()
            if self.returned is not None:
                break
            if now - self.started > timeout:
                self.why = "timeout"
                break
            if done is None and finished():
                done = now
            if done is not None and now - done > linger:
                self.why = "finished"
                break
            if watches_memory and now >= next_look:
                self._weigh(max_memory)
                if max_memory is not None and self.peak is not None and self.peak > max_memory:
                    self.why = "memory"
                    break
                # Looking at thousands of processes takes its time, of which this shall be a small part.
                next_look = time.monotonic() + max(_POLL, 20 * (time.monotonic() - now))

    def end(self) -> None:
        """Has the program ended, and waits for it."""
        try:
            _there(self.process.stdin).close()
            deadline = time.monotonic() + _PATIENCE
            while self.open.get_map() and time.monotonic() < deadline and self.process.poll() is None:
                self._read(_POLL)
            while self.open.get_map() and self._read(0):
                pass
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.open.close()
            self._end_by_force()
            self.seconds = time.monotonic() - self.started

    def ended(self, timeout: float, max_memory: int | None) -> Ended:
        if self.failed is not None:
            raise NotStarted(self.failed)
        if self.returned is None and self.why is None:
            # The guard was killed, and its program with it.
            self.returned, self.why = -signal.SIGKILL, "signal"
        returned = -signal.SIGKILL if self.returned is None else self.returned
        return Ended(
            returned,
            self.why or ("signal" if returned < 0 else "exit"),
            self.seconds,
            self.peak,
            self.tail.decode("utf-8", "replace"),
            self.containment,
            timeout,
            max_memory,
        )

    def _read(self, patience: float) -> bool:
        """Takes what has come; false when nothing has."""
        ready = self.open.select(patience)
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            if not data:
                self.open.unregister(key.fileobj)
            elif key.fileobj is self.process.stdout:
                self._hear(data)
            else:
                self.tail += data
                del self.tail[:-TAIL]
                if self.on_output is not None and (text := self.decoder.decode(data)):
                    self.on_output(text)
        return bool(ready)

    def _hear(self, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.failed = said.get("failed", self.failed)
            self.returned = said.get("returned", self.returned)
            if "layered" in said:
                self.containment = Containment(tuple(said["layered"]), said["refused"], tuple(said["kept"]))

    def _weigh(self, max_memory: int | None) -> None:
        """Measures the memory of the program and its children.

        What a process has in memory is read quickly, but workers that were forked share most of it.  Each one's share
        takes the kernel long to find, so it is asked for only where it can make a difference.
        """
        processes = guard.members(self.process.pid, None)
        resident = sum(map(_resident, processes))
        if resident > self.resident * 1.05 or (max_memory is not None and resident > max_memory):
            self.resident = max(self.resident, resident)
            share = resident if len(processes) == 1 else sum(map(_share, processes))
            self.peak = max(self.peak or 0, share)

    def _end_by_force(self) -> None:
        """Ends what is left where the guard has died, or is stuck."""
        if self.process.poll() is None:
            self.process.kill()
        if guard.has_proc():
            while left := guard.members(-1, self.token):
                guard.send(signal.SIGKILL, left)
                time.sleep(0.02)


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AssertionError("every stream of the guard is a pipe")
    return stream


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _share(process: int) -> int:
    """The memory of a process, with what it shares divided by the number of those that share it."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    except OSError:
        return _resident(process)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
