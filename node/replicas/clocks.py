"""Wall clocks of the cluster: which timestamp a leader gives when its own clock may be wrong.

Raft messages carry their sender's wall clock. A leader whose clock is far from the median of all
clocks uses the median for its timestamps. So a clock that jumped two days expires nothing (x11).
Order never depends on clocks: apply takes the larger of a timestamp and the last one.
"""

import time
from collections.abc import Callable, Collection
from typing import Final

from ...client.protocol import limits

tolerance_ms: Final = 60_000
_HEARD_S: Final = 10.0


def correction_ms(peer_offsets_ms: Collection[int]) -> int:
    """Return what to add to the own clock, from how far ahead each peer's clock is; 0 within 60 s.

    The median is over this node and its peers; the own clock is at 0. An even number of clocks has
    two middle values, and the one nearer to the own clock counts. Two nodes alone cannot tell which
    of them is wrong, and when half of the peers are wrong, no node follows them.
    """
    low, high = _medians(peer_offsets_ms)
    median = low if abs(low) <= abs(high) else high
    return median if abs(median) > tolerance_ms else 0


def _medians(peer_offsets_ms: Collection[int]) -> tuple[int, int]:
    """Return the two middle values; they are the same for an odd number of clocks."""
    offsets = sorted((0, *peer_offsets_ms))
    return offsets[(len(offsets) - 1) // 2], offsets[len(offsets) // 2]


class Clocks:
    """This node's wall clock beside those of its peers. All calls on one thread."""

    def __init__(
        self,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wall_ms = wall_ms
        self._monotonic = monotonic
        self._heard: dict[int, tuple[int, float]] = {}

    def heard(self, peer: int, clock_ms: int) -> None:
        """Note what the wall clock of a registered node showed when it sent a message.

        A time before 1970 or after the year 9999 is invalid: the node's earlier clock is forgotten
        then.
        """
        if not 0 <= clock_ms <= limits.timestamp_max_ms:
            self._heard.pop(peer, None)
            return
        # Offsets are kept against the monotonic clock: the own wall clock may jump afterwards.
        now = self._monotonic()
        self._heard[peer] = (clock_ms - int(now * 1000), now)

    def correction_ms(self) -> int:
        """Return the correction, as the function does, from the peers heard within 10 s."""
        return correction_ms(self._offsets_ms())

    def is_agreed(self) -> bool:
        """Whether the own clock is within 60 s of both middle values.

        Only then are entries removed by their age. With two clocks that differ, neither node
        removes entries (x11).
        """
        return all(abs(median) <= tolerance_ms for median in _medians(self._offsets_ms()))

    def _offsets_ms(self) -> list[int]:
        """Return how far ahead of the own clock each peer's clock is."""
        now = self._monotonic()
        own = self.wall_ms() - int(now * 1000)
        return [offset - own for offset, at in self._heard.values() if now - at <= _HEARD_S]

    def stamp_ms(self) -> int:
        """Return the timestamp that a leader gives to an entry now.

        Unix time in milliseconds, at most `timestamp_max_ms`.
        """
        return max(0, min(self.wall_ms() + self.correction_ms(), limits.timestamp_max_ms))
