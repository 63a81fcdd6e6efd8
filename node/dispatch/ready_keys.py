"""Keys that wait for a consumer, each for the consumer that had the key last while that one lives.

A consumer gets the key that waits longest of its own keys and of the keys without a consumer. After
`AFFINITY_MS` the key of another consumer goes to whoever asks (G5: a slow consumer delays no key).
"""

from typing import Final

from ...client.protocol import limits

AFFINITY_MS: Final = 50
_LAST_MAX: Final = limits.group_rows_max


class ReadyKeys:
    """The queues of one group in a range. Times are in ms, of the leader's clock."""

    def __init__(self) -> None:
        self._queues: dict[int, dict[bytes, int]] = {0: {}}
        """By consumer, 0 for none: since when each key waits, the oldest first."""
        self._last: dict[bytes, int] = {}
        """The last consumer of the keys that were leased most recently."""
        self._queue_of: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._queue_of)

    def joined(self, consumer: int) -> None:
        """Keep keys for this consumer from now on."""
        self._queues.setdefault(consumer, {})

    def left(self, consumer: int) -> None:
        """Give the keys of a consumer to the others."""
        for key, since in self._queues.pop(consumer, {}).items():
            self._queues[0][key] = since
            self._queue_of[key] = 0

    def leased(self, key: bytes, consumer: int) -> None:
        """Remember the consumer of a key."""
        self._last.pop(key, None)
        self._last[key] = consumer
        if len(self._last) > _LAST_MAX:
            del self._last[next(iter(self._last))]

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
        found = self._oldest((0, consumer), now_ms)
        if found is None:
            found = self._oldest(self._queues, now_ms - AFFINITY_MS)
        if found is not None:
            self.remove(found)
        return found

    def has_for(self, consumer: int) -> bool:
        """Whether a key waits that the consumer gets at once."""
        return bool(self._queues[0] or self._queues.get(consumer))

    def _oldest(self, queues: "tuple[int, ...] | dict[int, dict[bytes, int]]", until_ms: int
                ) -> bytes | None:  # fmt: skip
        heads = [next(iter(queue.items())) for at in queues if (queue := self._queues.get(at))]
        key, since = min(heads, key=lambda head: head[1], default=(None, 0))
        return key if since <= until_ms else None
