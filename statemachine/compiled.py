"""The compiled functions that lay out segments, where this installation has them.

`client/protocol/native` says how such a module and its twins in Python go together.
"""

from typing import Any, Final

from ..client.protocol.native import load

building: Final[Any] = load("._building", __package__)
"""The functions of `_building.c`; None without a compiler."""
