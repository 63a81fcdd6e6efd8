"""Beside a principal that appends much, every second WAL round is for principals that append
little: they do not wait for the many bytes, and the many bytes are not held back for ever."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from storage_node import StorageNode, descriptor

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.node.quota.quotas import Payer, Spender
from lognode.node.replicas.range_replica import RangeReplica
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

LARGE = 512 << 10
HEAVY, LIGHT, OTHER = (
    Payer(Spender("principal", name, ""), None, time.monotonic) for name in ("bulk", "one", "two")
)


@dataclass
class Writer:
    """A replica as a WAL round sees it: writes an entry each time, and tells of it."""

    name: str
    log: GroupLog
    told: list[str]
    has_light: bool = True
    writes: bool = True
    wanted: list[str] = field(default_factory=list)

    def propose_gathered(self) -> None:
        self._write("all")

    def propose_light(self) -> bool:
        if self.has_light:
            self._write("light")
        return self.has_light

    def _write(self, kind: str) -> None:
        self.told.append(f"{kind} {self.name}")
        if self.writes or kind == "all":
            self.log.append(self.log.last_index + 1, 1, b"\x00entry")

    def __hash__(self) -> int:
        return id(self)


def on_node(root: Path, test: Callable[[StorageNode], Awaitable[None]]) -> None:
    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        try:
            async with asyncio.timeout(30):
                await test(node)
        finally:
            node.stop()
        assert node.failure is None

    asyncio.run(main())


async def leading(node: StorageNode, range_id: int) -> RangeReplica:
    replica = await node.host.create_range(descriptor(range_id), Base(), campaign=True)
    assert replica is not None
    await node.leading(replica)
    await node.rounds.durable()
    return replica


def small(key: bytes) -> bytes:
    return encode_batch([key], [b"x"], producer=0, epoch=0, low=1, numbers=1)


def large(key: bytes = b"bulk") -> bytes:
    return encode_batch([key], [bytes(LARGE)], producer=0, epoch=0, low=1, numbers=1,
                        compress=False)  # fmt: skip


def first_seq(reply: dict[str, Any]) -> int:
    return int(reply["first_seq"])


def test_every_second_round_takes_all(tmp_path: Path) -> None:
    async def test(node: StorageNode) -> None:
        told: list[str] = []
        writers = [
            Writer("a", node.wal.create_group(GroupId(8, 1)), told),
            Writer("b", node.wal.create_group(GroupId(9, 1)), told, has_light=False),
        ]
        await node.rounds.durable()
        for _ in range(3):
            for writer in writers:
                node.rounds.gather(writer)
            await until(lambda: told[-1:] == ["all b"])
            await node.rounds.durable()
            told.append("")
        assert told == ["light a", "all a", "all b", ""] * 3

    on_node(tmp_path, test)


def test_a_light_round_without_anything_to_write_is_a_round_of_all(tmp_path: Path) -> None:
    """Nothing would begin the next round."""

    async def test(node: StorageNode) -> None:
        told: list[str] = []
        log = node.wal.create_group(GroupId(8, 1))
        await node.rounds.durable()
        node.rounds.gather(Writer("a", log, told, writes=False))
        for _ in range(10):  # turns of the loop: in half a second another round begins anyway
            await asyncio.sleep(0)
        assert told == ["light a", "all a"]

    on_node(tmp_path, test)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_a_small_append_goes_ahead_of_what_waits_of_a_heavy_principal(tmp_path: Path) -> None:
    async def test(node: StorageNode) -> None:
        replica = await leading(node, 1)
        heavy = [replica.append(large(), payer=HEAVY) for _ in range(8)]
        light = [replica.append(small(b"%d" % at), payer=LIGHT) for at in range(3)]
        other = replica.append(small(b"k"), payer=OTHER)
        await asyncio.gather(*light, other)
        assert not any(each.done() for each in heavy), "the light round had heavy batches too"
        last = max(first_seq(reply.result()) for reply in (*light, other))
        seqs = [first_seq(reply) for reply in await asyncio.gather(*heavy)]
        assert [first_seq(reply.result()) for reply in light] == sorted(
            first_seq(reply.result()) for reply in light
        )
        assert last < seqs[0]
        assert seqs == sorted(seqs)

    on_node(tmp_path, test)


def test_a_small_append_does_not_wait_for_a_heavy_principal_in_another_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode) -> None:
        busy, calm = await leading(node, 1), await leading(node, 2)
        propose, durable = busy.propose, []

        def seen(*arguments: Any, **options: Any) -> int:
            durable.append(calm.raft_log.durable_index - index)
            return propose(*arguments, **options)

        monkeypatch.setattr(busy, "propose", seen)
        index = calm.raft_log.last_index
        heavy = [busy.append(large(), payer=HEAVY) for _ in range(8)]
        await calm.append(small(b"k"), payer=LIGHT)
        await asyncio.gather(*heavy)
        assert durable[0] == 1, "the small append was in one round with the large appends"

    on_node(tmp_path, test)


def test_entries_are_smaller_while_a_small_append_comes_to_another_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(node: StorageNode) -> None:
        busy, calm = await leading(node, 1), await leading(node, 2)
        propose, sizes = busy.propose, []

        def seen(command: bytes, *arguments: Any, **options: Any) -> int:
            sizes.append(len(command))
            return propose(command, *arguments, **options)

        monkeypatch.setattr(busy, "propose", seen)
        await asyncio.gather(*[busy.append(large(), payer=HEAVY) for _ in range(8)])
        assert max(sizes) > limits.proposed_shared_entry_bytes_max + limits.MIB // 8
        sizes.clear()
        heavy = [busy.append(large(), payer=HEAVY) for _ in range(8)]
        await asyncio.gather(calm.append(small(b"k"), payer=LIGHT), *heavy)
        assert max(sizes) < limits.proposed_shared_entry_bytes_max + limits.MIB // 8

    on_node(tmp_path, test)


def test_running_requests_of_a_heavy_principal_delay_no_small_append(tmp_path: Path) -> None:
    async def test(node: StorageNode) -> None:
        replica = await leading(node, 1)
        await replica.append(large(), payer=HEAVY)
        await asyncio.gather(*[replica.append(large(), payer=HEAVY) for _ in range(3)])
        under_way = limits.proposed_scarce_bytes_max
        replica.proposed_bytes += under_way  # as if members had not written it yet
        heavy = replica.append(large(), payer=HEAVY)
        await replica.append(small(b"k"), payer=LIGHT)
        light = replica.append(small(b"k"), payer=LIGHT)
        replica.propose_gathered()  # as a round of all does
        assert [each.waiting for each in replica.proposals.values()] == [[light]]
        await light
        assert not heavy.done()
        replica.proposed_bytes -= under_way
        replica.wake()
        await heavy

    on_node(tmp_path, test)


def test_a_principal_that_appends_small_batches_all_the_time_lets_the_heavy_through(
    tmp_path: Path,
) -> None:
    async def test(node: StorageNode) -> None:
        replica = await leading(node, 1)
        heavy = [replica.append(large(), payer=HEAVY) for _ in range(40)]
        appended = 0
        while not all(each.done() for each in heavy):
            await replica.append(small(b"k"), payer=LIGHT)
            appended += 1
        # An entry takes a heavy batch or two; each goes with two rounds, and a few turns of apply.
        assert appended < 6 * len(heavy)

    on_node(tmp_path, test)


@pytest.mark.parametrize("heavy", [False, True])
def test_rounds_are_light_only_beside_a_heavy_principal(tmp_path: Path, heavy: bool) -> None:
    async def test(node: StorageNode) -> None:
        replica = await leading(node, 1)
        before = replica.append(large() if heavy else small(b"a"), payer=HEAVY)
        if heavy:
            await asyncio.gather(*[replica.append(large(), payer=HEAVY) for _ in range(3)])
        await before
        index = replica.raft_log.last_index
        both = [replica.append(small(b"b"), payer=who) for who in (HEAVY, LIGHT)]
        await asyncio.gather(*both)
        assert replica.raft_log.last_index - index == (2 if heavy else 1)

    on_node(tmp_path, test)
