"""Started by path: makes this folder a package of a name that no program has, and runs the program."""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_NAME = "_gradlint_child"


def load() -> None:
    """Import the folder as a package, whatever lies on `sys.path`."""
    spec = importlib.util.spec_from_file_location(
        _NAME, os.path.join(_FOLDER, "__init__.py"), submodule_search_locations=[_FOLDER]
    )
    if spec is None or spec.loader is None:
        raise ImportError(_FOLDER)
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)


load()
importlib.import_module(_NAME + ".start").main()
