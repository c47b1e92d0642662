"""Ends this process when the run that started it is gone.

`GRADLINT_LEASH` names a FIFO whose only writer is the guard of the run (`gradlint/record/guard.py`); nothing is ever
written to it.  When the guard dies, however it dies, whoever has the FIFO open for reading is told by the kernel.  The
FIFO is found by its name, so ranks that a launcher starts with no file but their standard ones hold on to it too.

    import leash
    leash.hold()

`hold` is called once, before the program is run, in every process that the runner gets into.  Children that the
process forks are held as well.  Where there is no `GRADLINT_LEASH`, it does nothing.
"""

import os
import signal
import sys

# Programs count on the lowest free numbers, and close those up to some small one.
LOWEST = 200


def hold() -> None:
    """Ties this process, and every child that it forks, to the run."""
    path = os.environ.get("GRADLINT_LEASH")
    if path and os.name == "posix":
        _hold(path)
        os.register_at_fork(after_in_child=lambda: _hold(path))


def _hold(path: str) -> None:
    import fcntl

    try:
        # Without waiting: an open for reading would wait for a writer, who may have died.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        _end()
    except OSError:
        # No files are left to open, or the program has locked itself in: the guard still watches over it.
        return
    try:
        leash = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, LOWEST)
    except OSError:
        leash = opened
    else:
        os.close(opened)
    if sys.platform == "linux":
        # The kernel sends the signal itself: no thread of ours is in the program, which would make it one that forks
        # with threads, and a program that holds the interpreter's lock for ever is ended too.
        fcntl.fcntl(leash, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)
        # The guard may have died just before.
        if _is_cut(leash):
            _end()
    else:
        import threading

        threading.Thread(target=_wait, args=(leash,), name="gradlint-leash", daemon=True).start()


def _wait(leash: int) -> None:
    os.set_blocking(leash, True)
    try:
        os.read(leash, 1)
    except OSError:
        # The program has closed it.
        return
    _end()


def _is_cut(leash: int) -> bool:
    try:
        return not os.read(leash, 1)
    except BlockingIOError:
        return False


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
