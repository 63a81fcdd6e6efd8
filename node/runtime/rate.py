"""A token bucket: bytes may move at a rate, whoever moves them (leaky bucket as a meter, GCRA)."""

from collections.abc import Callable

from ...client.protocol import limits

_PIECE_MIN = 64 * limits.KIB
_PIECE_S = 0.25


class TokenBucket:
    """`bytes_per_s` 0: without limit. `clock` is monotonic, in seconds. For one thread."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float]) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._free_at = clock()

    @property
    def piece_bytes(self) -> int:
        """How much to move at once, so that those who share the bucket all get on."""
        if not self._rate:
            return limits.base_chunk_bytes
        return max(_PIECE_MIN, min(limits.base_chunk_bytes, int(self._rate * _PIECE_S)))

    def reserve(self, count: int) -> float:
        """Take room for so many bytes; the seconds to wait before they move."""
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
