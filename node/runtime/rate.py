"""A token bucket that limits the rate of bytes for all its users (leaky bucket, GCRA)."""

from collections.abc import Callable

from ...client.protocol import limits

_PIECE_MIN = 64 * limits.KIB
_PIECE_S = 0.25


class TokenBucket:
    """Limits bytes per second; 0: no limit. `clock` is monotonic, in seconds. For one thread."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float]) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._free_at = clock()

    @property
    def piece_bytes(self) -> int:
        """Return how much to move at once, so that all users of the bucket make progress."""
        if not self._rate:
            return limits.base_chunk_bytes
        return max(_PIECE_MIN, min(limits.base_chunk_bytes, int(self._rate * _PIECE_S)))

    def reserve(self, count: int) -> float:
        """Reserve so many bytes; return the seconds to wait before they move."""
        if not self._rate:
            return 0.0
        now = self._clock()
        begins_at = max(now, self._free_at)
        self._free_at = begins_at + count / self._rate
        return begins_at - now

    def give_back(self, count: int) -> None:
        """Undo the newest `reserve`: the bytes will not move."""
        if self._rate:
            self._free_at -= count / self._rate
