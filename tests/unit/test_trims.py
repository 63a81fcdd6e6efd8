"""Trims that hide nothing keep no floor: the leader finds them behind a read barrier."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loose_operations import asked
from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.client.protocol.appends import APPEND, DELETE_KEYS, TRIM
from lognode.client.protocol.errors import NotLeader
from lognode.node.metrics import Metrics
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.serving.data_service import DataService
from lognode.statemachine.range_state import Base

Test = Callable[["Range"], Awaitable[None]]
FAR = 1 << 40


class Range:
    """A replica that leads, and the service over it."""

    def __init__(self, node: StorageNode, replica: RangeReplica) -> None:
        self.node = node
        self.replica = replica
        self.service = DataService(
            node_id=1, replica=lambda _: replica, describe=lambda _: [], damaged=lambda _: None,
            for_good=lambda _: False, on_damaged=lambda *_: None, level=lambda: 1,
            metrics=Metrics(),
        )  # fmt: skip
        self.number = 1

    @property
    def floors(self) -> dict[bytes, int]:
        return self.replica.state.removal.floors

    @property
    def last_index(self) -> int:
        return self.replica.raft_log.last_index

    async def append(self, *keys: bytes) -> int:
        """The first seq."""
        batch = numbered_batch(self.number, keys)
        self.number += len(keys)
        (result,) = (await self.service.append(asked(APPEND, batches=[batch])))["results"]
        return int(result["first_seq"])

    async def trim(self, *trims: tuple[bytes, int], delete: bool = False) -> None:
        operation = DELETE_KEYS if delete else TRIM
        async with asyncio.timeout(10):
            await self.service.handlers[operation](asked(operation, keys=list(map(list, trims))))

    def seqs(self, key: bytes) -> list[int]:
        return list(self.replica.state.scan(key, limit=100, bytes_max=1 << 20).seqs)


def served(root: Path, test: Test) -> None:
    async def life(node: StorageNode) -> None:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await test(Range(node, replica))

    one_life(root, life)


@pytest.mark.parametrize("delete", [False, True])
def test_X1_keys_that_never_had_entries_keep_no_floors(tmp_path: Path, delete: bool) -> None:
    """100,000 trims of made-up keys kept everybody else from trimming, for ever."""

    async def test(range_: Range) -> None:
        await range_.append(b"k")
        before = range_.last_index
        for at in range(0, 320, 32):
            keys = [b"none-%d" % n for n in range(at, at + 32)]
            await range_.trim(*((key, FAR) for key in keys), delete=delete)
        assert range_.floors == {}
        assert range_.last_index == before, "nothing is proposed that changes nothing"

    served(tmp_path, test)


def test_S6_a_trim_that_hides_entries_keeps_a_floor_and_its_repetition_proposes_nothing(
    tmp_path: Path,
) -> None:
    async def test(range_: Range) -> None:
        await range_.append(b"a", b"b", b"a", b"a")
        await range_.trim((b"a", 3), (b"b", 1), (b"c", 9))
        assert range_.floors == {b"a": 3}
        assert (range_.seqs(b"a"), range_.seqs(b"b")) == ([3, 4], [2])
        before = range_.last_index
        await range_.trim((b"a", 3))
        await range_.trim((b"a", 2))
        assert range_.last_index == before
        await range_.trim((b"a", FAR), delete=True)
        assert range_.floors == {b"a": 5}
        await range_.trim((b"a", FAR), delete=True)
        assert range_.floors == {b"a": 5}
        assert await range_.append(b"a") == 5
        assert range_.seqs(b"a") == [5]
        await range_.trim((b"a", 5), delete=True)  # a call of before the append, made again
        assert range_.seqs(b"a") == [5]

    served(tmp_path, test)


def test_S6_an_append_between_the_look_and_the_command_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trim of a key that showed nothing has happened at the look."""

    async def test(range_: Range) -> None:
        await range_.append(b"present")
        propose = range_.replica.propose_and_wait

        async def later(kind: int, payload: Any) -> Any:
            assert payload == [(b"present", FAR)]
            assert await range_.append(b"absent") == 2
            return await propose(kind, payload)

        monkeypatch.setattr(range_.replica, "propose_and_wait", later)
        await range_.trim((b"absent", FAR), (b"present", FAR))
        assert (range_.seqs(b"absent"), range_.seqs(b"present")) == ([2], [])

    served(tmp_path, test)


def test_S7_the_look_sees_appends_acknowledged_before_the_trim(tmp_path: Path) -> None:
    """The entry is committed, and this leader has not applied it when the trim comes."""

    async def test(range_: Range) -> None:
        appended = asyncio.ensure_future(range_.append(b"k"))
        while range_.replica.applied_index == range_.last_index:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert range_.seqs(b"k") == []
        looked: list[int] = []
        barrier = range_.replica.read_barrier

        async def read_barrier() -> None:
            await barrier()
            await appended
            looked.append(range_.replica.applied_index)

        range_.replica.read_barrier = read_barrier  # type: ignore[method-assign]
        await range_.trim((b"k", FAR))
        assert looked
        assert range_.seqs(b"k") == []
        assert range_.floors == {b"k": 2}

    served(tmp_path, test)


def test_a_member_that_does_not_lead_answers_no_trim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(range_: Range) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(RangeReplica, "leads", False)
            with pytest.raises(NotLeader):
                await range_.trim((b"none", FAR))

    served(tmp_path, test)
