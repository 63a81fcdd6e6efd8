# Generated from client/group_batch.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/group_batch.py`."""

from ..group_batch import AsyncGroupBatch
from ..loop_thread import LoopThread
from ..protocol.types import Entry


class GroupBatch:
    """The next entries of one key, in the order of seq; made by `Consumer`.

    The consumer has the key until it settles the batch: `ack`, `release` or `reject`. Until then no
    consumer of the group gets the key. The consumer keeps the lease alive meanwhile, at most for
    `hold_s` of `Log.consume`. When the lease ends, the key goes to a consumer again, and a
    call that settles this batch raises Fenced.
    """

    def __init__(self, loop: LoopThread, twin: AsyncGroupBatch) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncGroupBatch", "GroupBatch")

    def __len__(self) -> int:
        """Return how many entries are not acknowledged."""
        return len(self._twin)

    @property
    def key(self) -> bytes:
        """The key of all entries."""
        return self._twin.key

    @property
    def deliveries(self) -> int:
        """Which delivery of the first entry this is: 1, and one more after each failure."""
        return self._twin.deliveries

    @property
    def token(self) -> int:
        """A number that rises with each lease of the key. A store that consumers write to can
        remember the number, and refuse a consumer that comes with a smaller number."""
        return self._twin.token

    @property
    def entries(self) -> list[Entry]:
        """The entries that are not acknowledged, the oldest first. Each use makes the list."""
        return self._loop.run(lambda: self._twin.entries)

    @property
    def values(self) -> list[bytes | None]:
        """The values of the entries, None for a tombstone."""
        return self._loop.run(lambda: self._twin.values)

    @property
    def is_lost(self) -> bool:
        """Whether the consumer knows that the lease has ended before the batch was settled."""
        return self._twin.is_lost

    def ack(self, through: int | None = None, *, wait: bool = True) -> None:
        """Acknowledge the entries up to the seq `through`, inclusive; None: all entries.

        When the call returns, a majority has it on disk, and no consumer of the group gets the
        entries again. The consumer keeps the key until it has acknowledged all entries. With
        `wait=False` the call returns at once, and `Consumer.flush` waits; many batches then
        share a request, and the leader lets them gather for up to 50 ms unless the key has further
        entries.
        Raises Fenced when the consumer no longer has the key; InvalidArgument for a seq that the
        batch does not have; Overloaded when the range has no room for another position;
        Timeout with unknown outcome: acknowledge again; Unavailable, with unknown outcome when the
        consumer has lost the key before it heard whether an attempt has counted.
        """
        self._loop.call(self._twin.ack(through, wait=wait))

    def release(self, *, delay_ms: int = 0, error: str | None = None) -> None:
        """Give the key back: a consumer gets the same entries again, after `delay_ms`.

        `error`: why the consumer failed, which counts as a failed delivery of the first entry;
        after `max_deliveries` of these the key is parked, or the entry becomes a dead letter. None:
        the consumer did not fail. Raises Fenced, InvalidArgument, Unavailable, Timeout.
        """
        self._loop.call(self._twin.release(delay_ms=delay_ms, error=error))

    def reject(self, error: str = "rejected") -> None:
        """Refuse the first entry for good: the key is parked at once, or the entry becomes a dead
        letter, as after `max_deliveries` failures. Raises Fenced, Unavailable, Timeout."""
        self._loop.call(self._twin.reject(error))

    def extend(self) -> None:
        """Let the lease begin again now. The consumer does this by itself for `hold_s` seconds.

        Raises Fenced, Unavailable, Timeout."""
        self._loop.call(self._twin.extend())
