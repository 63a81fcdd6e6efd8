"""Tens of thousands of waiting reads and idle follows: an entry that is not theirs is cheap, and an
entry that is theirs wakes a few of them in each turn of the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.protocol.errors import NotLeader, Sealed, Unavailable
from lognode.client.protocol.reads import FOLLOW, LATEST
from lognode.node.metrics import Metrics
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.serving.data_service import DataService
from lognode.node.serving.follow import Follow
from lognode.statemachine.range_state import Base

HERD = 2_000
Test = Callable[[StorageNode, RangeReplica], Awaitable[None]]


async def _no_wait() -> None:
    """There is room and credit."""


def run(root: Path, test: Test) -> None:
    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        async with asyncio.timeout(60):
            await test(node, replica)
        assert node.failure is None
        node.stop()

    asyncio.run(main())


def data_service(replica: RangeReplica) -> DataService:
    return DataService(
        node_id=1, replica=lambda _: replica, describe=lambda _: [], damaged=lambda _: None,
        for_good=lambda _: False, on_damaged=lambda *_: None, level=lambda: 1,
            metrics=Metrics(),
    )  # fmt: skip


def waiting_read(
    replica: RangeReplica, through: int, node: int | None = None
) -> "asyncio.Task[dict[str, Any]]":
    service = data_service(replica)
    body = LATEST.request.check({
        "range": 1, "generation": 1, "key": b"k", "through": through, "timeout_ms": 60_000,
        "node": node,
    })  # fmt: skip
    return asyncio.ensure_future(service.reads[LATEST](body, _no_wait))


class Reader:
    """A follow, and what was pushed to its reader."""

    def __init__(self, replica: RangeReplica, **body: Any) -> None:
        asked = FOLLOW.request.check({"range": 1, "generation": 1, "from_seq": 1})
        self.pushed: list[dict[str, Any]] = []
        self.request: Any = SimpleNamespace(
            body=asked | body, answered=False, wait_credit=_no_wait, room=_no_wait,
            leave_room=lambda: None, push=self.pushed.append,
        )  # fmt: skip
        self.task = asyncio.ensure_future(Follow(replica, self.request).run())

    @property
    def keys(self) -> list[bytes]:
        found: list[bytes] = []
        for page in (push["page"] for push in self.pushed):
            same = isinstance(page["keys"], bytes)
            found += [page["keys"]] * len(page["seqs"]) if same else page["keys"]
        return found


async def settled(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  each turn is looked at
        await asyncio.sleep(0)


async def cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Turns:
    """Counts, for each turn of the loop, the calls of `called`."""

    def __init__(self) -> None:
        self.counts = [0]
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def called(self) -> None:
        self.counts[-1] += 1

    def _turn(self) -> None:
        self.counts.append(0)
        self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.mark.slow
def test_an_entry_does_not_wake_reads_that_wait_for_a_later_seq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        reads = [waiting_read(replica, 1 << 60) for _ in range(HERD)]
        for _ in range(5):
            await asyncio.sleep(0)
        loop, calls = asyncio.get_running_loop(), 0
        call_soon = loop.call_soon

        def counted(*arguments: Any, **options: Any) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return call_soon(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(loop, "call_soon", counted)
            for number in range(1, 11):
                await replica.append(numbered_batch(number, [b"k"]))
            await asyncio.sleep(0.6)  # the leader is looked for meanwhile
        assert calls < HERD, "each entry, or each look, wakes each waiter"
        assert not any(read.done() for read in reads)
        await cancelled(*reads)

    run(tmp_path, test)


@pytest.mark.slow
def test_reads_of_one_seq_are_woken_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        reads = [waiting_read(replica, replica.state.next_seq) for _ in range(HERD)]
        later = waiting_read(replica, replica.state.next_seq + 1)
        for _ in range(5):
            await asyncio.sleep(0)
        turns = Turns()
        monkeypatch.setattr(replica, "count_read", turns.called)
        await replica.append(numbered_batch(1, [b"k"]))
        answers = await asyncio.gather(*reads)
        turns.stop()
        assert len(answers) == sum(turns.counts) == HERD
        assert max(turns.counts) <= 64, "a turn answers many reads"
        assert not later.done()
        await replica.append(numbered_batch(2, [b"k"]))
        await later

    run(tmp_path, test)


def test_reads_that_wait_for_a_seq_end_with_the_leader_and_with_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        anywhere, here = waiting_read(replica, 1 << 60), waiting_read(replica, 1 << 60, node=1)
        await asyncio.sleep(0.3)
        assert not anywhere.done()
        with monkeypatch.context() as patched:
            patched.setattr(type(replica), "leader", None)
            with pytest.raises(NotLeader):
                await anywhere
            with pytest.raises(NotLeader):
                await waiting_read(replica, 1 << 60)
        assert not here.done(), "no other member would do"
        again = waiting_read(replica, 1 << 60)
        behind = asyncio.ensure_future(replica.wait_applied(1 << 60))
        await asyncio.sleep(0)
        replica.stop()
        for read in (again, here):
            with pytest.raises((NotLeader, Unavailable)):
                await read
        for waiting in (behind, replica.wait_applied(1 << 60)):
            with pytest.raises(Unavailable):
                await waiting

    run(tmp_path, test)


def test_an_entry_does_not_wake_follows_of_other_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        readers = [Reader(replica, prefix=b"zz") for _ in range(HERD)]
        await settled(lambda: all(reader.pushed for reader in readers))
        begun: list[int] = []
        read_span = replica.state.read_span

        def counted(start: bytes, end: bytes | None, from_seq: int, **options: Any) -> Any:
            begun.append(from_seq)
            return read_span(start, end, from_seq, **options)

        monkeypatch.setattr(replica.state, "read_span", counted)
        for number in range(1, 10, 2):
            await replica.append(numbered_batch(number, [b"a", b"zy"]))
        await replica.append(numbered_batch(11, [b"zy", b"z", b"{", b"zz1"]))
        await settled(lambda: all(reader.keys for reader in readers))
        assert len(begun) == HERD, "an entry of other keys wakes a follow"
        assert min(begun) >= replica.state.next_seq - 4, "a follow reads what is not its own"
        assert all(reader.keys == [b"zz1"] for reader in readers)
        await cancelled(*(reader.task for reader in readers))

    run(tmp_path, test)


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True])
def test_follows_of_one_key_are_woken_in_slices_and_miss_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    async def test(node: StorageNode, replica: RangeReplica) -> None:
        def follow() -> Reader:
            if keyed:
                return Reader(replica, keys={b"k": 1, b"l": 1})
            return Reader(replica, start_key=b"k")

        readers = [follow() for _ in range(HERD)]
        await settled(lambda: all(reader.pushed for reader in readers))
        turns = Turns()
        monkeypatch.setattr(replica, "count_push", lambda _: turns.called())
        for number in range(1, 41, 2):
            await replica.append(numbered_batch(number, [b"k", b"l"]))
        async with asyncio.timeout(20):
            for reader in readers:
                await settled(lambda reader=reader: len(reader.keys) == 40)  # type: ignore[misc]
        turns.stop()
        assert max(turns.counts) <= 100, "a turn pushes to many follows"
        for reader in readers:
            assert sorted(reader.keys) == [b"k"] * 20 + [b"l"] * 20
        replica.stop()
        for reader in readers:
            with pytest.raises(Sealed):
                await reader.task

    run(tmp_path, test)


def test_a_follow_of_thousands_of_keys_reads_only_those_with_unread_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key's position is below the range's end, as when others append at the same time."""

    async def test(node: StorageNode, replica: RangeReplica) -> None:
        await replica.append(numbered_batch(1, [b"%05d" % at for at in range(10_000)]))
        positions = dict.fromkeys((b"%05d" % at for at in range(10_000)), replica.state.next_seq)
        await replica.append(numbered_batch(10_001, [b"new", b"00007", b"09999"]))
        scanned: list[bytes] = []
        scan = replica.state.scan

        def counted(key: bytes, *arguments: Any, **options: Any) -> Any:
            scanned.append(key)
            return scan(key, *arguments, **options)

        monkeypatch.setattr(replica.state, "scan", counted)
        reader = Reader(replica, keys={b"new": 1, **positions})
        await replica.append(numbered_batch(10_004, [b"00008"]))  # beside the first look
        await settled(lambda: len(reader.keys) == 4)
        assert sorted(scanned) == sorted(reader.keys) == [b"00007", b"00008", b"09999", b"new"]
        await cancelled(reader.task)

    run(tmp_path, test)
