"""How many keys wait in a consumer of a group: as many as its caller takes in a second.

A fast caller gets many keys with each request, which is cheap. A slow caller leaves keys that would
wait for long to other consumers.
"""

import math
from collections.abc import Callable
from typing import Final

keys_least: Final = 32
"""The keys that may wait, however slow the caller is."""
_WINDOW_S: Final = 0.02
"""The time after which the pace of the caller is measured again."""
_SHORTEST_S: Final = 0.001
_LOOK_EVERY: Final = 8
"""The keys after which the caller looks at the clock."""
_AHEAD_S: Final = 1.0
"""The keys that wait last for this time."""


class Pace:
    """The pace of one caller, by a clock in seconds. `most`: the most keys."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.keys = min(most, keys_least)
        """How many keys may wait for the caller."""
        self._most = most
        self._clock = clock
        self._count = 0
        self._since = -math.inf

    def took(self) -> None:
        """Note that the caller has taken a key."""
        self._count += 1
        if self._count % _LOOK_EVERY:
            return
        now = self._clock()
        seconds = now - self._since
        if seconds >= _WINDOW_S or self._count >= 2 * self.keys:
            wanted = int(self._count * _AHEAD_S / max(seconds, _SHORTEST_S))
            self.keys = min(self._most, max(keys_least, wanted))
            self._since, self._count = now, 0

    def rested(self, since: float) -> None:
        """Note that there was no key to take since then: such time says nothing of the caller."""
        now = self._clock()
        self._since = min(now, self._since + now - since)
