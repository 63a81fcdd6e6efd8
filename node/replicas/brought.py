"""How many bytes each principal has appended lately, so that light principals are refused last.

When segments cannot be built as fast as entries come, appends are refused. Principals that have
appended at most `append_light_bytes` lately may append for a while longer, in memory that is
reserved for them, because they do not cause the shortage. A principal that appends a small part of
what a heavy principal appends has every second WAL round without the heavy principal (`rounds.py`).
No I/O.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ...client.protocol import limits

HALF_LIFE_S: Final = 1.0
BESIDE: Final = 8
"""A principal is light beside a heavy principal that has appended this many times its bytes."""
_FORGOTTEN_S: Final = 60.0
_LOOKED_AT: Final = 2
"""How many principals are checked for removal with each new one: more are removed than come."""


class Brought:
    """Byte counts per principal, which halve every second. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Bytes of each principal and the time of that count; the newest last."""
        self._most: tuple[float, float] = (0.0, 0.0)
        """The count of the principal with the most bytes. All counts halve alike, so that only an
        append can make another principal the one with the most."""
        self._light_at = float("-inf")
        """When a principal that is light beside a heavy principal last appended."""

    def __len__(self) -> int:
        return len(self._of)

    def add(self, principal: str, size: int) -> None:
        """Count so many bytes of the principal."""
        now = self._clock()
        known = self._of.get(principal)
        if known is None:
            self._forget(now)
            total = float(size)
        else:
            total = _left(known, now) + size
        self._of[principal] = (total, now)
        self._of.move_to_end(principal)
        most = _left(self._most, now)
        if total >= most:
            self._most = (total, now)
        elif most > limits.append_light_bytes and total * BESIDE <= most:
            self._light_at = now

    def is_light(self, principal: str) -> bool:
        """Whether the principal has appended little lately."""
        known = self._of.get(principal)
        return known is None or _left(known, self._clock()) <= limits.append_light_bytes

    @property
    def has_heavy(self) -> bool:
        """Whether a principal has appended more than `append_light_bytes` lately."""
        return self._has_heavy(self._clock())

    @property
    def is_shared(self) -> bool:
        """Whether a principal is heavy now and a light principal has appended beside it lately."""
        now = self._clock()
        return now - self._light_at < HALF_LIFE_S and self._has_heavy(now)

    def is_beside_a_heavy(self, principal: str) -> bool:
        """Whether another principal is heavy and has appended at least `BESIDE` times as much."""
        now = self._clock()
        most = _left(self._most, now)
        if most <= limits.append_light_bytes:
            return False
        known = self._of.get(principal)
        return known is None or _left(known, now) * BESIDE <= most

    def _has_heavy(self, now: float) -> bool:
        return _left(self._most, now) > limits.append_light_bytes

    def _forget(self, now: float) -> None:
        for _ in range(_LOOKED_AT):
            name, (_, at) = next(iter(self._of.items()), ("", (0.0, now)))
            if now - at > _FORGOTTEN_S or len(self._of) > limits.spenders_max:
                del self._of[name]


def _left(known: tuple[float, float], now: float) -> float:
    size, at = known
    return float(size * 0.5 ** ((now - at) / HALF_LIFE_S))
