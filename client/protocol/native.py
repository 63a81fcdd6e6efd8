"""The compiled functions, where this installation has them.

`_native.c` and `_packing.c` are built when lognode is installed and a compiler is there. Each of
their functions has a twin in Python that does the same more slowly, and `LOGNODE_PURE=1` in the
environment chooses the twins. The twins decide what is wrong with damaged bytes: a compiled
function returns None for all but plain input, and then its twin runs. So members with and without a
compiler always agree.
"""

import os
from importlib import import_module
from typing import Any, Final


def _load(name: str) -> Any:
    if os.environ.get("LOGNODE_PURE"):
        return None
    try:
        return import_module(name, __package__)
    except ImportError:  # no compiler was there
        return None


native: Final[Any] = _load("._native")
"""The functions of nodes, which read batches; None without a compiler."""
packing: Final[Any] = _load("._packing")
"""The functions of clients, which make batches; None without a compiler."""
