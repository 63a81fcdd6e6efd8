"""The compiled functions of memtables and segments, where this installation has them.

`client/protocol/native` says how such a module and its twins in Python go together.
"""

from typing import Any, Final

from ..client.protocol.native import load

memtables: Final[Any] = load("._memtable", __package__)
"""The functions of `_memtable.c`; None without a compiler."""
building: Final[Any] = load("._building", __package__)
"""The functions of `_building.c`; None without a compiler."""
