"""Records get their numbers when their batch closes: consecutive, and rising for each key."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lognode.client.appends import AppendBatch, Columns
from lognode.client.batcher import Batcher
from lognode.client.cluster import LogRoutes
from lognode.client.lanes import Lane
from lognode.client.protocol import limits
from lognode.client.protocol.errors import Timeout
from lognode.client.protocol.records import EXPECT_ABSENT, decode_batch
from lognode.client.routing import Range
from lognode.client.window import Window

_KEYS = 40
_FAR = 1e12


class Batching:
    """A batcher whose batches are not sent, and the batches in the order in which they closed."""

    def __init__(self, *splits: bytes, partitions: int | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.log = LogRoutes("log")
        self.log.partitions = partitions
        self.window = Window(named=False, unacked_bytes_max=1 << 30, loop=loop)
        self.generation = 0
        self.divide(*splits)
        self.batcher = Batcher(
            self.log, self.window, linger_s=0, loop=loop, on_ready=_nothing,
            raw=partitions is not None,
        )  # fmt: skip
        self.closed: list[AppendBatch] = []
        self.lows: list[int] = []
        """The smallest unsettled number when each of these batches closed."""

    def divide(self, *splits: bytes) -> None:
        """Give the log ranges with these bounds."""
        self.generation += 1
        for number, (start, end) in enumerate(
            zip((b"", *splits), (*splits, None), strict=True), 10 * self.generation
        ):
            self.log.table.insert(Range(number, self.generation, 1, start, end, (1,), 1))

    def take(self) -> list[AppendBatch]:
        """Take the batches that have closed."""
        taken: list[AppendBatch] = []
        for lane in self.batcher.lanes():
            taken += lane.ready
            lane.ready = []
        self.closed += taken
        self.lows += [self.window.low] * len(taken)
        return taken

    def close(self, lane: Lane | None = None) -> list[AppendBatch]:
        """Close the open batches of a lane or of all lanes; take the batches that have closed."""
        for each in self.batcher.lanes() if lane is None else [lane]:
            self.batcher.close_open(each)
        return self.take()

    def settle(self, batch: AppendBatch) -> None:
        """Take an acknowledgement of a batch."""
        self.window.settle(batch, {"first_seq": 1, "timestamp_ms": 1})


def _nothing(_: Lane) -> None:
    """Send nothing."""


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_S8_calls_that_share_batches_have_numbers_of_their_own() -> None:
    async def test() -> None:
        batching = Batching(b"2", b"4", b"6")
        for call in range(5):
            records = [(b"%d" % (n % 8), b"%d" % call) for n in range(100)]
            batching.batcher.add_columns(Columns(records), _FAR)
        batches = batching.close()
        assert list(map(len, batches)) == [130, 130, 120, 120]
        for batch in batches:
            numbers = decode_batch(batch.pack(7, 1, batching.window.low)).numbers
            assert isinstance(numbers, range)  # an integer on the wire
            assert list(numbers) == list(batch.numbers)
        given = sorted(number for batch in batches for number in batch.numbers)
        assert given == list(range(1, 501))

    run(test)


@pytest.mark.parametrize("seed", range(30))
def test_S4_the_numbers_of_a_key_rise_and_each_batch_follows_the_one_before(seed: int) -> None:
    """All ways of adding records, batches that settle in any order, splits and merges."""

    async def test() -> None:
        rng = random.Random(seed)
        batching = Batching(b"2")
        batcher = batching.batcher
        added = 0
        order: defaultdict[bytes, list[bytes]] = defaultdict(list)
        conditional: set[bytes] = set()

        def records(count: int, first_of: bytes | None = None) -> list[tuple[bytes, bytes]]:
            nonlocal added
            made = []
            for _ in range(count):
                key = first_of or b"%02d" % rng.randrange(_KEYS)
                made.append((key, b"%d" % added))
                order[key].append(b"%d" % added)
                added += 1
            return made

        unsettled: list[AppendBatch] = []
        for _ in range(120):
            what = rng.randrange(10)
            if what < 4:
                batcher.add_columns(Columns(records(rng.randrange(1, 30))), _FAR)
            elif what < 6:
                ((key, value),) = records(1)
                expect = EXPECT_ABSENT if rng.randrange(3) == 0 else -1
                if expect == EXPECT_ABSENT:
                    conditional.add(value)
                batcher.add(key, value, None, 10, _FAR, expect=expect)
            elif what == 6:
                key = b"%02d" % rng.randrange(_KEYS)
                batcher.add_atomic(Columns(records(3, key)), _FAR)
            elif what == 7:
                lanes = batcher.lanes()
                unsettled += batching.close(rng.choice(lanes) if lanes else None)
            elif what == 8 and unsettled:
                batching.settle(unsettled.pop(rng.randrange(len(unsettled))))
            elif what == 9:
                batching.divide(*sorted({b"%d" % rng.randrange(1, 4) for _ in range(2)}))
            unsettled += batching.take()
            numbered = [batch.numbers[0] for batch in unsettled]
            assert batching.window.low == min(numbered, default=batching.window.next_number)
        batching.close()

        at: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        last: dict[bytes, int] = {}
        closed = zip(batching.closed, batching.lows, strict=True)
        for batch, low in sorted(closed, key=lambda each: each[0].numbers[0]):
            assert list(batch.numbers) == sorted(set(batch.numbers))
            prevs = batch.prevs or [0] * len(batch)
            rows = list(zip(batch.keys, batch.values, batch.numbers, prevs, strict=True))
            for key, value, number, prev in rows:
                assert value is not None
                at[key].append((number, value))
                before = last.get(key, 0)
                assert prev == before or (prev == 0 and before < low)
            for key, value, number, _ in rows:
                if value not in conditional:
                    last[key] = number
        assert {key: [value for _, value in sorted(rows)] for key, rows in at.items()} == order
        given = [number for rows in at.values() for number, _ in rows]
        assert sorted(given) == list(range(1, added + 1))

    run(test)


def test_S4_a_batch_follows_unsettled_batches_of_its_keys() -> None:
    async def test() -> None:
        batching = Batching(b"5")
        keys = [b"1", b"2", b"8", b"1"]
        followed = {0: [None, None], 1: [[3, 2, 3], [4]]}
        for call in range(2):
            batching.batcher.add_columns(Columns([(key, b"v") for key in keys]), _FAR)
            assert [batch.prevs for batch in batching.close()] == followed[call]

    run(test)


def test_records_of_open_batches_count_in_the_window_of_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "producer_window_max", 10)

    async def test() -> None:
        batching = Batching(b"5")
        batching.batcher.add_columns(Columns([(b"1", b"v"), (b"7", b"v")] * 4), _FAR)
        batching.batcher.add(b"1", b"v", None, 2, _FAR)
        assert batching.window.has_room()
        assert not batching.window.has_room(count=2)
        first, second = batching.close()
        assert not batching.window.has_room(count=2)
        batching.settle(second)
        assert not batching.window.has_room(count=2)  # the smallest number is not settled
        batching.settle(first)
        batching.batcher.add(b"1", b"v", None, 2, _FAR)
        assert batching.window.has_room(count=9)
        assert not batching.window.has_room(count=10)

    run(test)


def test_S8_low_does_not_pass_records_that_have_no_numbers_yet() -> None:
    async def test() -> None:
        batching = Batching()
        batching.batcher.add(b"1", b"v", None, 2, _FAR)
        (first,) = batching.close()
        batching.batcher.add(b"1", b"w", None, 2, _FAR)
        assert batching.window.low == 1
        batching.settle(first)
        assert batching.window.low == 2
        (second,) = batching.close()
        assert list(second.numbers) == [2]
        assert second.prevs is None  # the record before is settled
        assert batching.window.low == 2
        assert decode_batch(second.pack(7, 1, batching.window.low)).prevs is None

    run(test)


def test_S4_batches_of_a_kafka_partition_follow_each_other_whatever_their_keys() -> None:
    async def test() -> None:
        batching = Batching(partitions=2)
        add = batching.batcher.add_atomic
        first = add(Columns([(b"\0\0a", b"1"), (b"\0\0b", b"2")]), _FAR)
        other = add(Columns([(b"\0\1a", b"3")]), _FAR)
        second = add(Columns([(b"\0\0c", b"4"), (b"\0\0d", b"5")]), _FAR)
        assert batching.take() == [first, other, second]
        assert not any(first.prevs or ())
        assert not any(other.prevs or ())
        assert second.prevs == [first.numbers[-1]] * 2

    run(test)


def test_S4_batches_of_a_partition_keep_their_order_past_a_batch_that_was_given_up() -> None:
    async def test() -> None:
        batching = Batching(partitions=1)
        add = batching.batcher.add_atomic
        first = add(Columns([(b"\0\0a", b"")]), _FAR)
        lost = add(Columns([(b"\0\0b", b"")]), _FAR)
        batching.window.fail(lost, Timeout("no answer", outcome="unknown"))
        third = add(Columns([(b"\0\0c", b"")]), _FAR)
        assert third.prevs == [first.numbers[-1]]

    run(test)
