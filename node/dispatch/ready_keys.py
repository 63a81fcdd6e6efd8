"""Keys that wait for a consumer, each for the consumer that had the key last while that one lives.

A consumer gets the key that waits longest of its own keys and of the keys without a consumer. After
`AFFINITY_MS` the key of another consumer goes to any consumer (G5: a slow consumer delays no key).
"""

from collections import OrderedDict
from typing import Final

from ...client.protocol import limits

AFFINITY_MS: Final = 50
_LAST_MAX: Final = limits.group_rows_max


class ReadyKeys:
    """The queues of one group in a range. Times are in ms, of the leader's clock."""

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[bytes, int]] = {0: OrderedDict()}
        """By consumer, 0 for none: since when each key waits, the oldest first."""
        self._last: OrderedDict[bytes, int] = OrderedDict()
        """The last consumer of the keys that were leased most recently."""
        self._queue_of: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._queue_of)

    def joined(self, consumer: int) -> None:
        """Keep keys for this consumer from now on."""
        if consumer not in self._queues:
            self._queues[consumer] = OrderedDict()

    def left(self, consumer: int) -> None:
        """Give the keys of a consumer to the others."""
        for key, since in self._queues.pop(consumer, OrderedDict()).items():
            self._queues[0][key] = since
            self._queue_of[key] = 0

    def leased(self, key: bytes, consumer: int) -> None:
        """Remember the consumer of a key."""
        self._last[key] = consumer
        self._last.move_to_end(key)
        if len(self._last) > _LAST_MAX:
            self._last.popitem(last=False)

    def put(self, key: bytes, now_ms: int) -> None:
        """Let a key wait."""
        consumer = self._last.get(key, 0)
        if consumer not in self._queues:
            consumer = 0
        self._queues[consumer][key] = now_ms
        self._queue_of[key] = consumer

    def remove(self, key: bytes) -> None:
        """Take a key out, if it waits."""
        consumer = self._queue_of.pop(key, None)
        if consumer is not None:
            del self._queues[consumer][key]

    def take(self, consumer: int, now_ms: int) -> bytes | None:
        """Return the key that the consumer gets next, and take it out; None: there is none."""
        found, own = self._queues[0], self._queues.get(consumer)
        if own and not (found and _since(found) <= _since(own)):
            found = own
        if not found:
            waiting = filter(None, self._queues.values())
            found = min(waiting, key=_since, default=found)
            if not found or _since(found) > now_ms - AFFINITY_MS:
                return None
        key, _ = found.popitem(last=False)
        del self._queue_of[key]
        return key

    def has_for(self, consumer: int) -> bool:
        """Whether a key waits that the consumer gets at once."""
        return bool(self._queues[0] or self._queues.get(consumer))


def _since(queue: OrderedDict[bytes, int]) -> int:
    """Return since when the first key waits."""
    return queue[next(iter(queue))]
