"""Commits of coordinators against a log whose answers are lost, late, or tell of a refusal."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from lognode.client.protocol.errors import (
    Fenced,
    LognodeError,
    SequenceMismatch,
    Timeout,
    Unavailable,
)
from lognode.node.kafka import group_store
from lognode.node.kafka.group_store import Head, Ledger, Row, Stored, head_of, packed, unpacked

LONG = 1e9


class OneGroup:
    """The entries of one group: appends on a condition, each of which has one of four fates."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.faults = 0.0
        self.seq = 0
        self.last: Head | None = None
        self.values: dict[bytes, bytes | None] = {}
        self.applied: list[tuple[bytes, Sequence[Row]]] = []
        self.late: list[tuple[Head, Sequence[Row]]] = []

    async def head(self, _: str, __: float) -> Head | None:
        await asyncio.sleep(0)
        self._land_some()
        return self.last

    async def append(self, _: str, head: Head, rows: Sequence[Row], __: float) -> int:
        await asyncio.sleep(0)
        self._land_some()
        fate = self.chance.random() / self.faults if self.faults else 1.0
        if fate < 0.3:
            raise Unavailable("no leader", outcome="not_applied")
        if fate < 0.6:
            self.late.append((head, rows))
            raise Timeout("the request is on its way", outcome="unknown")
        if not self._apply(head, rows):
            actual = self.last.seq if self.last else 0
            raise SequenceMismatch("no", expected=head.seq, actual=actual, outcome="not_applied")
        if fate < 0.9:
            raise Timeout("the answer is lost", outcome="unknown")
        return self.seq

    def _apply(self, head: Head, rows: Sequence[Row]) -> bool:
        if head.seq != (self.last.seq if self.last else 0):
            return False
        self.seq += 1
        self.last = head._replace(seq=self.seq)
        self.values |= dict(rows)
        self.applied.append((head.claim, rows))
        return True

    def _land_some(self) -> None:
        while self.late and self.chance.random() < 0.5:
            self._apply(*self.late.pop(0))

    def land_all(self) -> None:
        while self.late:
            self._apply(*self.late.pop(0))


def ledger(group: OneGroup) -> Ledger:
    return Ledger(group, "g")  # type: ignore[arg-type]


async def opened(group: OneGroup) -> Ledger:
    for _ in range(200):
        found = ledger(group)
        try:
            await found.open(LONG)
        except LognodeError:
            continue
        return found
    raise AssertionError("no claim in 200 attempts")


def row(partition: int, offset: int) -> Row:
    return b"p%d" % partition, b"%06d" % offset


@pytest.mark.parametrize("seed", range(60))
def test_S9_commits_do_not_go_back_whatever_happens_to_the_answers(seed: int) -> None:
    """Coordinators follow each other, and the earlier ones go on for a while. What was
    acknowledged stays or is replaced by a later offset, and after a claim nothing of an earlier
    coordinator is appended."""
    group = OneGroup(seed)

    async def run() -> None:
        offset, acked, old = 0, {0: 0, 1: 0}, None
        for _ in range(6):
            group.faults = 0.6
            now = await opened(group)
            begun = len(group.applied)
            for _ in range(20):
                offset += 1
                partition = offset % 2
                try:
                    await now.commit([row(partition, offset)], LONG)
                    acked[partition] = offset
                except Fenced:
                    raise AssertionError("nobody else has claimed the group") from None
                except LognodeError:
                    group.faults *= 0.95
                if old is not None and group.chance.random() < 0.3:
                    with pytest.raises(LognodeError):
                        await old.commit([row(partition, 1)], LONG)
            group.faults = 0.0
            await now.settled(LONG)
            before = dict(group.values)
            group.land_all()
            assert group.values == before, "a commit landed after the ledger was settled"
            for partition, least in acked.items():
                assert int(group.values.get(b"p%d" % partition) or 0) >= least
            assert len({claim for claim, _ in group.applied[begun:]}) == 1
            old = now

    asyncio.run(run())


def test_commits_that_wait_share_an_append() -> None:
    group = OneGroup(0)

    async def run() -> None:
        own = await opened(group)
        await asyncio.gather(*(own.commit([row(n % 3, n)], LONG) for n in range(100)))

    asyncio.run(run())
    assert group.values == {b"p0": b"000099", b"p1": b"000097", b"p2": b"000098"}
    assert len(group.applied) <= 3


def test_an_idle_coordinator_learns_with_its_next_commit_that_it_was_replaced() -> None:
    group = OneGroup(1)

    async def run() -> None:
        first = await opened(group)
        first.note(7)
        await first.commit([row(0, 5)], LONG)
        second = await opened(group)
        assert second.generation == 7
        with pytest.raises(Fenced):
            await first.commit([row(0, 4)], LONG)
        assert first.is_fenced
        with pytest.raises(Fenced):
            await first.commit([], LONG)

    asyncio.run(run())
    assert group.values == {b"p0": b"000005"}


def test_too_many_waiting_commits_are_refused() -> None:
    group = OneGroup(2)

    async def run() -> None:
        own = await opened(group)
        rows = [row(n, n) for n in range(group_store._ROWS_TOGETHER)]
        found = await asyncio.gather(
            *(own.commit(rows, LONG) for _ in range(40)), return_exceptions=True
        )
        assert {type(each) for each in found} == {type(None), Timeout}

    asyncio.run(run())


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xc1", b"\x91\x01", b"\x94\x01\xff\x00\xa0", b"\x94\xa1a\x01\x00\xa0",
     b"\x81\x90\x01", b"\x94\x01\x01\x00\x01"],
)  # fmt: skip
def test_values_of_other_writers_are_ignored(value: bytes | None) -> None:
    assert unpacked(value) is None
    assert head_of(9, value) == Head(9, b"", 0)


@pytest.mark.parametrize(
    "stored", [Stored(3, 0, -1, None), Stored(1 << 40, (1 << 63) - 1, 7, "h\u00e9llo")]
)
def test_offsets_are_read_as_they_were_written(stored: Stored) -> None:
    assert unpacked(packed(stored)) == stored


def test_an_answer_about_offsets_waits_for_a_commit_of_the_same_step() -> None:
    group = OneGroup(3)

    async def run() -> None:
        own = await opened(group)
        done = own.submit([row(0, 5)], LONG)
        await own.settled(LONG)
        assert group.values == {b"p0": b"000005"}
        await done

    asyncio.run(run())


def test_commits_of_clients_that_leave_before_their_turn_are_dropped() -> None:
    """Otherwise a client that sends commits and leaves, again and again, fills the memory."""
    may_go_on = asyncio.Event()

    class Slow(OneGroup):
        async def append(self, *of: Any) -> int:
            if self.seq:
                await may_go_on.wait()
            return await super().append(*of)

    group = Slow(4)

    async def run() -> None:
        own = await opened(group)
        under_way = own.submit([row(0, 5)], LONG)
        await asyncio.sleep(0)
        left = [own.submit([row(1, n)] * 4_000, LONG) for n in range(10)]
        stays = own.submit([row(2, 6)], LONG)
        for each in left:
            each.cancel()
        await asyncio.sleep(0)
        assert own._rows == 1
        may_go_on.set()
        await under_way
        await stays

    asyncio.run(run())
    assert group.values == {b"p0": b"000005", b"p2": b"000006"}


def removed(group: OneGroup, of: Ledger, *partitions: int) -> int:
    """The seq of the tombstone of the head, after tombstones of these offsets."""

    async def append_last(_: str, head: Head, rows: Sequence[Row], deadline: float) -> int:
        return await group.append(_, head._replace(claim=b""), rows, deadline)

    group.append_last = append_last  # type: ignore[attr-defined]
    return asyncio.run(of.end([(row(partition, 0)[0], None) for partition in partitions], LONG))


def test_S2_a_removed_group_has_no_head_and_no_offsets() -> None:
    group = OneGroup(1)

    async def run() -> Ledger:
        found = await opened(group)
        await found.commit([row(0, 5), row(1, 6)], LONG)
        return found

    assert removed(group, asyncio.run(run()), 0, 1) == group.seq
    assert group.last is not None
    assert not group.last.claim
    assert group.values == {b"p0": None, b"p1": None}


def test_S9_a_group_that_was_claimed_anew_is_not_removed() -> None:
    """Nor does a late commit of the coordinator that removed the group bring an offset back."""
    group = OneGroup(1)

    async def run() -> tuple[Ledger, Ledger]:
        first = await opened(group)
        await first.commit([row(0, 5)], LONG)
        return first, await opened(group)

    first, second = asyncio.run(run())
    with pytest.raises(Fenced):
        removed(group, first, 0)
    assert group.values == {b"p0": b"000005"}
    removed(group, second, 0)

    async def late() -> None:
        with pytest.raises(Fenced):
            await first.commit([row(0, 5)], LONG)

    asyncio.run(late())
    assert group.values == {b"p0": None}
