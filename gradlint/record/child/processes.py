"""The processes that the program starts by multiprocessing are observed like its first one.

One that `spawn` or `forkserver` starts is a fresh interpreter, in which `site/sitecustomize.py` calls `start.enter`.
One that is forked goes on with what was told so far.  Either holds its journal back until it trains, which a worker of
a DataLoader never does.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .start import Run

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
_PATH = "PYTHONPATH"


def invite() -> None:
    """Let `site/sitecustomize.py` be found by every Python that this process starts."""
    paths = os.environ.get(_PATH, "")
    if SITE not in paths.split(os.pathsep):
        os.environ[_PATH] = SITE + (os.pathsep + paths if paths else "")


def reach(run: Run) -> None:
    """Follow this process's children, and say how this one ends where it is a child itself."""
    from multiprocessing import process, spawn

    def fixup(main_path: str) -> None:
        """`spawn` runs the main file by its path, past every import hook."""
        current = sys.modules["__main__"]
        if getattr(current, "__file__", None) == main_path:
            return
        spawn.old_main_modules.append(current)
        module = types.ModuleType("__mp_main__")
        module.__file__ = main_path
        with open(main_path, "rb") as file:
            source = file.read()
        code = run.compiled(source, main_path) or compile(source, main_path, "exec", dont_inherit=True)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
        exec(code, module.__dict__)  # noqa: S102 - this is the user's program, which the user asked to run

    spawn._fixup_main_from_path = fixup  # type: ignore[attr-defined]
    base: Any = process.BaseProcess
    bootstrap = base._bootstrap

    @functools.wraps(bootstrap)
    def to_the_end(self: Any, *arguments: Any, **keywords: Any) -> Any:
        status = bootstrap(self, *arguments, **keywords)
        run.finish("raised" if status else "end")
        return status

    base._bootstrap = to_the_end
    base.run = _telling(run, base.run)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=run.forked)


def _telling(run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the error that ends it told."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            run.tell_error(error)
            raise

    return call


def reach_torch(run: Run) -> None:
    """The same in torch's own ways to start processes, once it is there."""
    import torch.distributed
    import torch.utils.data._utils.worker as worker

    loop: Any = worker._worker_loop

    @functools.wraps(loop)
    def silent(*arguments: Any, **keywords: Any) -> Any:
        run.silence()
        return loop(*arguments, **keywords)

    # Pickled by its name: in a spawned worker this one is found.
    worker._worker_loop = silent
    # `torch.multiprocessing.spawn` is the function in it.
    spawn: Any = importlib.import_module("torch.multiprocessing.spawn")
    wrap = spawn._wrap

    @functools.wraps(wrap)
    def telling(fn: Any, *arguments: Any, **keywords: Any) -> Any:
        return wrap(_telling(run, fn), *arguments, **keywords)

    spawn._wrap = telling
    initialise: Any = getattr(torch.distributed, "init_process_group", None)
    if initialise is None:
        return

    @functools.wraps(initialise)
    def init_process_group(*arguments: Any, **keywords: Any) -> Any:
        result = initialise(*arguments, **keywords)
        run.journal.add("rank", str(torch.distributed.get_rank()), str(torch.distributed.get_world_size()))
        return result

    torch.distributed.init_process_group = init_process_group
