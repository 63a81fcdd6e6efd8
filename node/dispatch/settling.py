"""Requests to settle keys, which wait until commands about these keys are applied."""

from collections.abc import Callable
from typing import NamedTuple


class Refused(NamedTuple):
    """A key that was not settled as the consumer asked."""

    key: bytes
    reason: str
    position: int


class Settling:
    """A request to settle keys. `on_done` is called when every key is settled or refused."""

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.refused: list[Refused] = []
        self._on_done = on_done
        self._left = 1

    def awaits(self, count: int = 1) -> None:
        """Wait for more keys."""
        self._left += count

    def settled(self, count: int = 1) -> None:
        """Note that keys no longer have to be waited for, or that all keys were looked at."""
        self._left -= count
        if not self._left:
            self._on_done()

    def refuses(self, key: bytes, reason: str, position: int) -> None:
        """Note that a key is not settled. `settled` counts such a key too."""
        self.refused.append(Refused(key, reason, position))
