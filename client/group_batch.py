"""A batch of a consumer group: the next entries of one key, which no other consumer has."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from .append_acks import AppendAcks
from .cluster import LogRoutes
from .group_held import Held, told
from .protocol import limits
from .protocol.errors import InvalidArgument
from .protocol.types import Entry


class Settler(Protocol):
    """What a batch asks of its consumer."""

    def ack(self, held: Held, position: int, *, wait: bool) -> Awaitable[None] | None: ...
    async def release(self, held: Held, delay_ms: int, error: str) -> None: ...
    async def reject(self, held: Held, error: str) -> None: ...
    async def extend(self, held: Held) -> None: ...
    def with_append(self, batches: Sequence[Held], log: LogRoutes) -> AppendAcks: ...


class AsyncGroupBatch:
    """The next entries of one key, in the order of seq; made by `AsyncConsumer`.

    The consumer has the key until it settles the batch: `ack`, `release` or `reject`. Until then no
    consumer of the group gets the key. The consumer keeps the lease alive meanwhile, at most for
    `hold_s` of `AsyncLog.consume`. When the lease ends, the key goes to a consumer again, and a
    call that settles this batch raises Fenced.
    """

    __slots__ = ("_held", "_settler")

    def __init__(self, settler: Settler, held: Held) -> None:
        self._settler = settler
        self._held = held

    def __repr__(self) -> str:
        return f"<AsyncGroupBatch of {len(self._held)} entries of {self._held.key!r}>"

    def __len__(self) -> int:
        """Return how many entries are not acknowledged."""
        return len(self._held)

    @property
    def key(self) -> bytes:
        """The key of all entries."""
        return self._held.key

    @property
    def deliveries(self) -> int:
        """Which delivery of the first entry this is: 1, and one more after each failure."""
        return self._held.deliveries

    @property
    def token(self) -> int:
        """A number that rises with each lease of the key. A store that consumers write to can
        remember the number, and refuse a consumer that comes with a smaller number."""
        return self._held.token

    @property
    def entries(self) -> list[Entry]:
        """The entries that are not acknowledged, the oldest first. Each use makes the list."""
        return self._held.entries

    @property
    def values(self) -> list[bytes | None]:
        """The values of the entries, None for a tombstone."""
        return self._held.columns.values[self._held.first : self._held.end]

    @property
    def is_lost(self) -> bool:
        """Whether the consumer knows that the lease has ended before the batch was settled."""
        return self._held.is_lost

    async def ack(self, through: int | None = None, *, wait: bool = True) -> None:
        """Acknowledge the entries up to the seq `through`, inclusive; None: all entries.

        When the call returns, a majority has it on disk, and no consumer of the group gets the
        entries again. The consumer keeps the key until it has acknowledged all entries. With
        `wait=False` the call returns at once, and `AsyncConsumer.flush` waits; many batches then
        share a request, and the leader lets them gather for up to 50 ms unless the key has further
        entries.
        Raises Fenced when the consumer no longer has the key; InvalidArgument for a seq that the
        batch does not have; Overloaded when the range has no room for another position;
        Timeout with unknown outcome: acknowledge again; Unavailable, with unknown outcome when the
        consumer has lost the key before it heard whether an attempt has counted.
        """
        last = self._held.last_seq
        if through is not None and (
            type(through) is not int or not self._held.first_seq <= through <= last
        ):
            raise InvalidArgument(
                f"through is {through!r}; the batch has entries with seqs "
                f"{self._held.first_seq} to {last}",
                what="through",
            )
        position = (last if through is None else through) + 1
        done = self._settler.ack(self._held, position, wait=wait)
        if done is not None:
            await done

    async def release(self, *, delay_ms: int = 0, error: str | None = None) -> None:
        """Give the key back: a consumer gets the same entries again, after `delay_ms`.

        `error`: why the consumer failed, which counts as a failed delivery of the first entry;
        after `max_deliveries` of these the key is parked, or the entry becomes a dead letter. None:
        the consumer did not fail. Raises Fenced, InvalidArgument, Unavailable, Timeout.
        """
        if type(delay_ms) is not int or not 0 <= delay_ms <= limits.group_delay_ms_max:
            raise InvalidArgument(
                f"delay_ms is {delay_ms!r}; give 0 to {limits.group_delay_ms_max:,} milliseconds",
                what="delay_ms",
            )
        text = "" if error is None else told(error) or "failed"
        await self._settler.release(self._held, delay_ms, text)

    async def reject(self, error: str = "rejected") -> None:
        """Refuse the first entry for good: the key is parked at once, or the entry becomes a dead
        letter, as after `max_deliveries` failures. Raises Fenced, Unavailable, Timeout."""
        await self._settler.reject(self._held, told(error))

    async def extend(self) -> None:
        """Let the lease begin again now. The consumer does this by itself for `hold_s` seconds.

        Raises Fenced, Unavailable, Timeout."""
        await self._settler.extend(self._held)


def acknowledged(batches: Sequence[AsyncGroupBatch], log: LogRoutes) -> AppendAcks:
    """Return what an append to the log acknowledges. Raises InvalidArgument, Fenced."""
    if not all(isinstance(batch, AsyncGroupBatch) for batch in batches):
        raise InvalidArgument(
            "acks has an element that is not a batch; give batches of a consumer", what="acks"
        )
    if len(batches) > limits.group_append_keys_max:
        raise InvalidArgument(
            f"acks has {len(batches)} batches; an append acknowledges at most "
            f"{limits.group_append_keys_max}. Acknowledge the others with another append",
            what="acks",
        )
    settlers = {id(batch._settler) for batch in batches}
    if len(settlers) > 1 or len({batch._held.unit for batch in batches}) < len(batches):
        raise InvalidArgument(
            "acks has batches of several consumers, or a batch twice; give different batches of "
            "one consumer",
            what="acks",
        )
    return batches[0]._settler.with_append([batch._held for batch in batches], log)
