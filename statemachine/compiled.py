"""The compiled functions of memtables (`_memtable.c`), where this installation has them."""

from typing import Any, Final

from ..client.protocol.native import load

compiled: Final[Any] = load("._memtable", __package__)
"""None without a compiler: then the modules that ask for a function do its work in Python."""
