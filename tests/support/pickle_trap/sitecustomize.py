"""Ends any Python process that unpickles something; Python imports this module by its name.

A process whose PYTHONPATH has this folder runs the module before anything else, and so do the
Python processes that it starts. Each writes `armed-<pid>` into the folder of the environment
variable below. A process that tries to load a pickle writes `unpickled-<pid>` with the stack and
ends with `CODE`. Every entrance is closed: the functions and classes of `pickle` and of `_pickle`,
in which C does the work, the functions in Python and, for code that kept one of them, the audit
event of a pickle that names a class or a function.
"""

import _pickle
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

FOLDER = "LOGNODE_PICKLE_TRAP"
CODE = 86


def _end(*_: object, **__: object) -> NoReturn:
    folder = Path(os.environ[FOLDER])
    (folder / f"unpickled-{os.getpid()}").write_text("".join(traceback.format_stack()))
    os._exit(CODE)


class _Trap:
    """In the place of `Unpickler`: to make one is to use one."""

    def __init__(self, *_: object, **__: object) -> None:
        _end()


def _heard(event: str, _: Any) -> None:
    if event == "pickle.find_class":
        _end()


def _arm() -> None:
    for module in (pickle, _pickle):
        for name in ("load", "loads", "_load", "_loads"):
            if hasattr(module, name):
                setattr(module, name, _end)
        setattr(module, "Unpickler", _Trap)  # noqa: B010
    for name in ("__init__", "load"):  # the class itself stays: libraries change its table
        setattr(pickle._Unpickler, name, _end)  # type: ignore[attr-defined]
    sys.addaudithook(_heard)
    (Path(os.environ[FOLDER]) / f"armed-{os.getpid()}").write_text(" ".join(sys.orig_argv))


if FOLDER in os.environ:
    _arm()
