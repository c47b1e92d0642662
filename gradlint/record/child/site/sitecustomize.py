"""Gets the recorder into the processes that multiprocessing spawns.

The runner puts this folder on PYTHONPATH, so that every Python which the program starts reads this file: one that
multiprocessing did not start gets nothing but a stand-in for the probes, in case it is handed instrumented code.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class _Nobody:
    """Takes what the probes of instrumented code say, where nobody listens."""

    def __getattr__(self, name: str) -> object:
        return lambda _, value=None: value


def _enter() -> None:
    plan = os.environ.get("GRADLINT_PLAN")
    if not plan or not os.path.exists(plan):
        return
    import builtins

    setattr(builtins, "@gradlint", _Nobody())
    words = getattr(sys, "orig_argv", [])
    if "--multiprocessing-fork" not in words and not any("multiprocessing.forkserver" in word for word in words):
        return
    folder = os.path.dirname(HERE)
    spec = importlib.util.spec_from_file_location(
        "_gradlint_child", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(folder)
    package = importlib.util.module_from_spec(spec)
    sys.modules["_gradlint_child"] = package
    spec.loader.exec_module(package)
    importlib.import_module("_gradlint_child.start").enter(plan)


def _shadowed() -> None:
    """Run the module of this name that would have been found without this folder."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _enter()
except Exception as error:  # noqa: BLE001 - a process of the program must not fail because of us
    sys.stderr.write(f"gradlint: nothing is recorded of process {os.getpid()}: {type(error).__name__}: {error}\n")
_shadowed()
