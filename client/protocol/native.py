"""The compiled functions, where this installation has them.

`_native.c` and `_packing.c`, `_memtable.c` and `_building.c` in `statemachine`, and `_codec.c` in
`node/kafka` are built when lognode is installed and a compiler is there. Each of their functions
has a twin in Python that does the same more slowly, and `LOGNODE_PURE=1` in the environment chooses
the twins. The twins decide what is wrong with damaged bytes: a compiled function returns None for
all but plain input, and then its twin runs. So members with and without a compiler always agree.
`_writer.c` in `node/runtime` is a thread that writes the WAL, and reads no bytes; its twin is a
thread of Python.
"""

import os
from array import array
from importlib import import_module
from typing import Any, Final


def load(name: str, package: str | None) -> Any:
    """Return a compiled module; None without a compiler, or where the twins are chosen."""
    if os.environ.get("LOGNODE_PURE"):
        return None
    try:
        return import_module(name, package)
    except ImportError:  # no compiler was there
        return None


def _that_hashes(found: Any) -> Any:
    """Return the module, or None if it hashes bytes in another way than this Python: then no
    look-up would find a key."""
    if found is None:
        return None
    key = b"a key"
    columns = found.scan_keys(b"\x91\xc4%c%b" % (len(key), key), 1)
    return found if array("q", columns[2]) == array("q", [hash(key)]) else None


native: Final[Any] = _that_hashes(load("._native", __package__))
"""The functions of nodes, which read batches; None without a compiler."""
packing: Final[Any] = load("._packing", __package__)
"""The functions of clients, which make batches; None without a compiler."""
