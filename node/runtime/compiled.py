"""Which modules in C this process uses, for `lognode --version` and the metrics."""

import os
import platform
from typing import Final

from ...client.protocol.native import load, native, packing
from ...statemachine.compiled import building, memtables
from .wal_writer import compiled as writer

MODULES: Final = {
    "_native": native, "_packing": packing, "_memtable": memtables, "_building": building,
    "_codec": load("..kafka._codec", __package__), "_writer": writer,
}  # fmt: skip


def missing() -> list[str]:
    """Return the names of the modules whose work Python does."""
    return [name for name, module in MODULES.items() if module is None]


def words() -> str:
    """Return a sentence about the Python of this process and the modules in C."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    left = missing()
    if not left:
        return f"{python}, with all modules in C"
    if os.environ.get("LOGNODE_PURE"):
        return f"{python}, without modules in C, as LOGNODE_PURE says: slower"
    return (
        f"{python}, without the modules in C {', '.join(left)}: slower. Install a C compiler, and "
        "then lognode again"
    )
