"""Bound the requests of the door that are under way, in all and for each asker."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...client.protocol import limits
from ...client.protocol.errors import Overloaded

REQUESTS_MAX: Final = 64
_REQUESTS_SHARE: Final = 0.5
"""The share of the requests that one asker may have under way."""


class Admission:
    """Counts requests, or streams: `what` names them. At most `most` are under way, and
    of one asker the share of them."""

    def __init__(self, what: str, most: int, share: float) -> None:
        self._what = what
        self._most = most
        self._own_most = max(1, int(most * share))
        self._under_way: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._under_way.total()

    @contextmanager
    def admitted(self, asker: str) -> Iterator[None]:
        """Count one more while the context lasts. Raises Overloaded."""
        if self._under_way.total() >= self._most:
            raise self._full(f"the node serves {self._most} {self._what}")
        if self._under_way[asker] >= self._own_most:
            raise self._full(f"{asker} has {self._own_most} {self._what}")
        self._under_way[asker] += 1
        try:
            yield
        finally:
            self._under_way[asker] -= 1
            if not self._under_way[asker]:
                del self._under_way[asker]

    def _full(self, told: str) -> Overloaded:
        return Overloaded(
            f"{told} over HTTP at a time, and no more are allowed; come back later, or ask "
            "another node",
            retry_after=1,
        )  # fmt: skip


def of_requests(most: int) -> Admission:
    """Return the bound on requests that end."""
    return Admission("requests", most, _REQUESTS_SHARE)


def of_streams(most: int) -> Admission:
    """Return the bound on streams of events, and on requests that wait."""
    return Admission("event streams and pulls", most, limits.connections_per_host_share)
