"""Records into batches: the lanes of a producer, one per range, and the order of each key.

A record's `prev` is the last number of the same key before its batch; within a batch, position
gives the order. A range that has not applied a `prev` refuses the batch, so several batches may
be in flight and still apply in order per key. For keys that are given as the ranges store them,
the order is that of the whole Kafka partition: a Kafka client counts on it whatever the keys are.
"""

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat

from .append_acks import AppendAcks
from .appends import AppendBatch, Columns
from .cluster import LogRoutes
from .lanes import Lane
from .last_numbers import LastNumbers
from .protocol import limits
from .protocol.key_partitions import PREFIX_BYTES
from .protocol.records import EXPECT_ANY
from .protocol.types import Headers
from .retry import Attempts
from .stored_keys import stored
from .window import Window

UNROUTED = 0
"""The lane of records whose range is unknown at the moment; range 0 is the controller's."""


class Batcher:
    """The open and the ready batches of one producer. All calls run on the loop's thread.

    `on_ready` is called with a lane that has something to send.
    """

    def __init__(
        self,
        log: LogRoutes,
        window: Window,
        *,
        linger_s: float,
        loop: asyncio.AbstractEventLoop,
        on_ready: Callable[[Lane], None],
        raw: bool = False,
    ) -> None:
        self._log = log
        self._window = window
        self._linger_s = linger_s
        self._loop = loop
        self._on_ready = on_ready
        self._raw = raw
        """Whether keys are given as the ranges store them."""
        self._lanes: dict[int, Lane] = {}
        self._last = LastNumbers()
        self._seen = log.table.ranges

    @property
    def ranges(self) -> list[int]:
        """The ids of the ranges that have had a lane; UNROUTED may be among them."""
        return list(self._lanes)

    def lanes(self) -> list[Lane]:
        """Return all lanes."""
        return list(self._lanes.values())

    # Taking records.

    def add(
        self,
        key: bytes,
        value: bytes | None,
        headers: Headers | None,
        size: int,
        deadline: float,
        number: int | None = None,
        *,
        expect: int = EXPECT_ANY,
        snapshot: bool = False,
    ) -> tuple[AppendBatch, int]:
        """Put one checked record into the open batch of its range; return the batch and the
        position of the record.

        `number`: a number above all before, for all records of this producer or for none. Without
        numbers, the records of a batch get consecutive numbers when the batch closes.
        """
        lane = self._lane_of(key := self._stored(key) if self._log.partitions is not None else key)
        batch = lane.open
        if (
            batch is None
            or batch.bytes + size > limits.batch_bytes_max
            or len(batch.keys) >= limits.batch_records_max
        ):
            batch = self._open_batch(lane, deadline)
        window = self._window
        if number is None:
            window.reserve(1)
        else:
            window.take_own(number)
        position = batch.add(number, key, value, headers, expect, snapshot=snapshot)
        batch.bytes += size
        if batch.attempts.deadline < deadline:
            batch.attempts.deadline = deadline
        if position == 0:
            window.begin(batch)
        window.hold(size)
        return batch, position

    def add_atomic(
        self, columns: Columns, deadline: float, *, expect: int = EXPECT_ANY,
        settles: AppendAcks | None = None,
    ) -> AppendBatch:  # fmt: skip
        """Add records of one range that are applied all or not at all; they travel as their own
        batch. `expect` is the condition of the first record; `settles` is applied with them."""
        self._store(columns)
        batch = self._new_batch(deadline)
        columns.fill(batch, range(len(columns)))
        self._window.reserve(len(columns))
        batch.atomic, batch.settles = True, settles
        if settles is not None:
            batch.done.add_done_callback(lambda _: settles.settled(batch))
        if expect != EXPECT_ANY:
            batch.expects = [expect, *repeat(EXPECT_ANY, len(columns) - 1)]
        self._window.begin(batch)
        self._window.hold(batch.bytes)
        lane = self._lane_of(batch.keys[0])
        if lane.open is not None:
            self.close_open(lane)  # keep the order: older records go first
        self._close(batch)
        lane.ready.append(batch)
        self._loop.call_soon(self._on_ready, lane)
        return batch

    def add_columns(
        self, columns: Columns, deadline: float
    ) -> list[tuple[AppendBatch, int, Sequence[int]]]:
        """Add many records; return each batch, the position where its records begin, and their
        indexes in `columns`.

        The records join the open batch of their range, so that calls with few records per range
        share batches while requests are in flight.
        """
        self._store(columns)
        batches: list[tuple[AppendBatch, int, Sequence[int]]] = []
        self._window.reserve(len(columns))
        for group in columns.by_start(self._log.table.starts):
            for positions in columns.cut(group):
                batches.append((*self._join(columns, positions, deadline), positions))
        return batches

    def _stored(self, key: bytes) -> bytes:
        return key if self._raw else stored(self._log, key)

    def _store(self, columns: Columns) -> None:
        """Put the partition in front of each key, in a log with Kafka partitions."""
        if self._log.partitions is not None and not self._raw:
            columns.keys = [stored(self._log, key) for key in columns.keys]

    def _join(
        self, columns: Columns, positions: Sequence[int], deadline: float
    ) -> tuple[AppendBatch, int]:
        """Put records of one range into its open batch or a new batch; return the batch and
        their first position."""
        lane = self._lane_of(columns.keys[positions[0]])
        size = columns.size(positions)
        batch = lane.open
        if (
            batch is None
            or batch.bytes + size > limits.batch_bytes_max
            or len(batch) + len(positions) > limits.batch_records_max
        ):
            batch = self._open_batch(lane, deadline)
        at = len(batch)
        columns.fill(batch, positions)
        batch.attempts.deadline = max(batch.attempts.deadline, deadline)
        if at == 0:
            self._window.begin(batch)
        self._window.hold(size)
        return batch, at

    # Batches.

    def put_back(self, batch: AppendBatch) -> Lane:
        """Queue a closed batch again, by its first number, in the lane of its range; return the
        lane."""
        lane = self._lane_of(batch.first_key)
        insort(lane.ready, batch, key=_first_number)
        return lane

    def parts(self, batch: AppendBatch) -> list[tuple[AppendBatch, list[int]]]:
        """Divide a batch by the ranges of its keys now; return each part with the positions of
        its records in the batch."""
        groups: dict[int, list[int]] = {}
        for position, key in enumerate(batch.keys):
            groups.setdefault(self._range_of(key), []).append(position)
        parts: list[tuple[AppendBatch, list[int]]] = []
        for positions in groups.values():
            attempts = Attempts(batch.attempts.what, batch.attempts.deadline, writes=True)
            attempts.outcome = batch.attempts.outcome
            parts.append((batch.part(positions, attempts), positions))
        return parts

    def close_open(self, lane: Lane) -> None:
        """Close the open batch of a lane, if there is an open batch: it is ready to be sent."""
        batch, lane.open, lane.due = lane.open, None, False
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if batch is not None:
            self._close(batch)
            lane.ready.append(batch)

    def take_ready(self) -> list[AppendBatch]:
        """Take all batches that were not sent, the open ones among them."""
        taken: list[AppendBatch] = []
        for lane in self._lanes.values():
            self.close_open(lane)
            taken += lane.ready
            lane.ready = []
        return taken

    def _new_batch(self, deadline: float) -> AppendBatch:
        attempts = Attempts(f"append to log {self._log.name!r}", deadline, writes=True)
        batch = AppendBatch(attempts, self._loop.create_future())
        if self._log.partitions is not None and not self._raw:
            batch.hidden = PREFIX_BYTES
        return batch

    def _open_batch(self, lane: Lane, deadline: float) -> AppendBatch:
        if lane.open is not None:
            self.close_open(lane)
            self._loop.call_soon(self._on_ready, lane)
        lane.open = self._new_batch(deadline)
        if self._linger_s > 0:
            lane.timer = self._loop.call_later(self._linger_s, self._linger_over, lane)
        else:
            lane.timer = self._loop.call_soon(self._linger_over, lane)
        return lane.open

    def _linger_over(self, lane: Lane) -> None:
        lane.due = True
        self._on_ready(lane)

    def _close(self, batch: AppendBatch) -> None:
        """Close the batch: give its records numbers, unless they have numbers, and fix its `prevs`.

        The batches of a key close in the order of their records, so the numbers of a key rise. The
        numbers of a batch are consecutive, which each member remembers as two integers.

        No record follows a record with a condition, since a refused record is never applied. For a
        named producer a refusal ends the session, so its records follow all others.
        """
        if not batch.numbers:
            batch.numbers = self._window.take(len(batch))
        batch.close()
        last, keys = self._last, batch.keys
        if self._raw and self._log.partitions is not None:
            keys = [key[:PREFIX_BYTES] for key in keys]
        prevs = last.before(keys, self._window.low)
        batch.prevs = None if prevs is None else self._window.not_given_up(prevs)
        numbers = batch.numbers
        if batch.expects is None and isinstance(numbers, range):
            last.note_all(keys, numbers)
            last.settle(self._window.low)
            return
        followed: Iterable[tuple[bytes, int]] = zip(keys, batch.numbers, strict=True)
        if batch.expects is not None and not self._window.named:
            # A condition of an atomic batch decides about all of its records.
            followed = (
                () if batch.atomic else compress(followed, map(EXPECT_ANY.__eq__, batch.expects))
            )
        last.note(followed, batch.numbers[-1])
        last.settle(self._window.low)

    # Lanes.

    def _lane_of(self, key: bytes) -> Lane:
        table = self._log.table
        if table.ranges is not self._seen:
            # A key may have moved to another lane: close the open batches of the old lanes first.
            self._seen = table.ranges
            for lane in self._lanes.values():
                self.close_open(lane)
                self._loop.call_soon(self._on_ready, lane)
        range_id = self._range_of(key)
        found = self._lanes.get(range_id)
        if found is None:
            found = self._lanes[range_id] = Lane()
        return found

    def _range_of(self, key: bytes) -> int:
        known = self._log.table.find(key)
        return UNROUTED if known is None else known.range_id


def _first_number(batch: AppendBatch) -> int:
    return batch.numbers[0]
