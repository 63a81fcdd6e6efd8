"""A base on its way: broken off, gone on with, damaged, and fetched by two duties at once."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from base_wires import G1, PIECE, Nodes, Wire, batch, run
from storage_node import descriptor

from lognode.client.protocol import Operation, limits
from lognode.client.protocol.errors import (
    CorruptData,
    RangeNotFound,
    RemoteProtocolError,
    Unavailable,
)
from lognode.client.protocol.peers import FILE_CHECK
from lognode.node.lifecycle import base_transfer
from lognode.partitions.duties import TAIL_BYTES
from lognode.raft.types import GroupId
from lognode.statemachine.producer_row import Row
from lognode.statemachine.producers import Producers
from lognode.statemachine.range_state import Base
from lognode.statemachine.removal import Removal


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_transfer, "_RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(base_transfer, "_AHEAD_S", 0.02)


def test_two_fetches_of_one_file_at_once_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    """Copying ahead was still under way when the seal came: both moved the same file into place,
    the second found nothing, took that for a failed disk, and the node stopped."""

    async def test(nodes: Nodes) -> None:
        wire = Wire(nodes.server)
        taking = nodes.fetcher(wire, wire)
        bases = await asyncio.gather(
            taking.fetch(1, G1, pin="copy ahead"), taking.fetch(1, G1, pin="prepare")
        )
        assert bases[0] == bases[1]
        assert nodes.holds_all(bases[0])
        assert len(wire.offsets()) == len(bases[0].manifest) == 1

    run(tmp_path, test)


def test_a_segment_flushed_during_the_copy_is_copied_too(tmp_path: Path) -> None:
    """It came with the seal, while appends waited: at a mebibyte a second for longer than a new
    member is waited for, so that the move was given up."""

    async def test(nodes: Nodes) -> None:
        replica = nodes.giver.host.replica(G1)
        assert replica is not None
        before = list(replica.state.manifest)
        for number in range(TAIL_BYTES // PIECE + 1):
            await replica.append(batch(number))
        wire = Wire(nodes.server)
        copying = asyncio.ensure_future(nodes.fetcher(wire, wire).fetch_ahead(1, G1, pin="copy"))
        while not all(nodes.taker.store.has(info.content_id) for info in before):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await nodes.giver.flusher.flush(replica)
        base = await copying
        assert base.manifest == replica.state.manifest
        assert len(base.manifest) == len(before) + 1
        assert nodes.holds_all(base)
        # Under load there is always more: which is not a reason never to begin.
        for number in range(TAIL_BYTES // PIECE + 1):
            await replica.append(batch(100 + number))
        again = Wire(nodes.server)
        assert await nodes.fetcher(again).fetch_ahead(1, G1, pin="copy") == base
        assert len(again.asked) == 10

    run(tmp_path, test)


def test_a_lost_connection_is_dialled_again_and_the_file_goes_on(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        first, second = Wire(nodes.server, breaks_after=4), Wire(nodes.server)
        base = await nodes.fetcher(first, second).fetch(1, G1, pin="copy")
        assert nodes.holds_all(base)
        assert first.offsets()[0] == 0
        assert second.offsets()[0] == first.offsets()[-1] > 0
        offsets = [*first.offsets()[:-1], *second.offsets()]
        assert offsets == sorted(set(offsets)), "a piece came twice"

    run(tmp_path, test, pieces=8)


def test_a_fetch_that_broke_off_goes_on_after_a_restart_and_from_another_peer(
    tmp_path: Path,
) -> None:
    async def test(nodes: Nodes) -> None:
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        took = 0
        begun_at = []
        while True:
            assert took < 100, f"no progress; seed {seed}"
            took += 1
            wire = Wire(nodes.server, breaks_after=rng.randrange(1, 5))
            try:
                base = await nodes.fetcher(wire).fetch(1, G1, pin="copy")
                break
            except Unavailable:
                begun_at += wire.offsets()[:1]
            # As after a restart, and the next peer holds the same file.
            nodes.taker.directory.close()
            nodes.taker.directory.open()
        assert nodes.holds_all(base), f"seed {seed}"
        assert begun_at == sorted(begun_at)
        assert not list(nodes.taker.directory.tmp.iterdir())

    run(tmp_path, test, pieces=8)


def test_S12_a_torn_part_from_before_is_fetched_again(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        with pytest.raises(Unavailable):
            await nodes.fetcher(Wire(nodes.server, breaks_after=4)).fetch(1, G1, pin="copy")
        (part,) = nodes.taker.directory.tmp.glob("fetch-*")
        data = bytearray(part.read_bytes())
        assert len(data) > PIECE
        data[PIECE // 2 :] = bytes(len(data) - PIECE // 2)  # the power went
        part.write_bytes(data)
        wire = Wire(nodes.server)
        assert nodes.holds_all(await nodes.fetcher(wire).fetch(1, G1, pin="copy"))
        assert 0 in wire.offsets()[1:], "and blamed on nobody"
        assert (FILE_CHECK, 0) not in wire.asked

    run(tmp_path, test, pieces=8)


def test_S12_bytes_damaged_on_the_way_are_refused(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        wire = Wire(nodes.server)
        wire.spoil = lambda data: bytes([data[0] ^ 1]) + data[1:]
        with pytest.raises(CorruptData, match="although the file of node"):
            await nodes.fetcher(wire).fetch(1, G1, pin="copy")
        assert not list(nodes.taker.directory.tmp.iterdir())
        assert nodes.giver.host.replica(G1) is not None
        assert nodes.holds_all(await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy"))

    run(tmp_path, test, pieces=4)


@pytest.mark.parametrize("cut", [False, True], ids=["flipped", "cut"])
def test_S12_a_giver_learns_that_its_own_file_is_damaged(tmp_path: Path, cut: bool) -> None:
    async def test(nodes: Nodes) -> None:
        replica = nodes.giver.host.replica(G1)
        assert replica is not None
        path = nodes.giver.store.path(replica.state.manifest[0].content_id)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data[: len(data) // 2] if cut else data)
        with pytest.raises(CorruptData, match="and the node now knows about the damage"):
            await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy")
        assert list(nodes.giver.host.damaged) == [G1]
        assert nodes.giver.host.replica(G1) is None

    run(tmp_path, test, pieces=4)


def test_S12_a_damaged_file_that_is_here_is_fetched_anew(tmp_path: Path) -> None:
    """A repaired member found its own bad file under the right name, and took it."""

    async def test(nodes: Nodes) -> None:
        base = await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy")
        path = nodes.taker.store.path(base.manifest[0].content_id)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        nodes.taker.store.doubt([base.manifest[0].content_id])
        await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy")
        nodes.taker.store.verify(base.manifest[0].content_id)

    run(tmp_path, test, pieces=4)


def test_x2_18_the_log_is_kept_from_the_base_that_is_being_fetched(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        giver = nodes.giver
        replica = giver.host.replica(G1)
        assert replica is not None
        base = await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="copy")
        for number in range(3):
            await replica.append(batch(number))
            await giver.flusher.flush(replica)
        await giver.flusher.release(replica)
        assert replica.raft_log.base_index == base.applied_index
        replica.log_pins.clear()
        await giver.flusher.release(replica)
        assert replica.raft_log.base_index == replica.state.durable_base.applied_index

    run(tmp_path, test)


def test_x2_a_log_that_meta_does_not_know_takes_no_part(tmp_path: Path) -> None:
    """It may have voted: it was put off for ever, and so was its repair."""

    async def test(nodes: Nodes) -> None:
        taker = nodes.taker
        log = taker.wal.create_group(GroupId(2, 1))
        log.append(2, 1, b"\x00said")
        await taker.rounds.durable()
        assert await taker.host.create_range(descriptor(2), Base(), campaign=True) is None
        assert "meta does not know" in taker.host.damaged[GroupId(2, 1)]
        assert taker.host.marks[2] == 1
        taker.stop()
        await taker.start()
        assert list(taker.host.damaged) == [GroupId(2, 1)]

    run(tmp_path, test)


def test_a_peer_that_doubts_a_file_which_no_replica_holds_damages_nothing(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        with pytest.raises(RangeNotFound, match="no replica on this node has segment text"):
            await nodes.server.check(2, {"range": 1, "generation": 1, "id": "text"})
        assert not nodes.giver.host.damaged


def framed_base(base: Base) -> Any:
    """The base without the difference of lists and tuples."""
    return msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)


def large_tables(floors: int, producers: int) -> dict[str, Any]:
    """Tables of a range where so many of the longest keys were trimmed, for so many producers."""
    removal = Removal()
    for at in range(floors):
        removal.floors[b"%06d" % at + bytes(limits.key_bytes_max - 6)] = at + 1
    rows = Producers()
    for producer in range(1, producers + 1):
        row = rows.rows[producer] = Row(1, 5, last_ms=1_000, fence_token=1)
        row.add([7], producer)
        row.add([9], producer + 2)
    return {"next_seq": 1 << 40, "removal": removal.to_wire(0), "producers": rows.to_wire()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("floors", "producers"), [(0, 0), (limits.floors_max, 0), (0, 40_000), (30_000, 30_000)]
)
def test_S2_a_base_that_is_larger_than_a_frame_is_fetched(
    tmp_path: Path, floors: int, producers: int
) -> None:
    """100,000 floors are 49 MB; 40,000 producers are 200,000 containers, of which a frame has
    131,072. Until bases came in pieces neither was ever fetched."""

    async def test(nodes: Nodes) -> None:
        replica = nodes.giver.host.replica(G1)
        assert replica is not None
        base = replica.state.durable_base
        base.tables = {**base.tables, **large_tables(floors, producers)}
        expected = framed_base(base)
        wire = Wire(nodes.server)
        found = await nodes.fetcher(wire).fetch(1, G1, pin="test")
        assert framed_base(found) == expected
        assert nodes.holds_all(found)
        assert len(found.tables["removal"]["floors"]) == floors

    run(tmp_path, test)


def test_a_base_that_changes_between_its_pieces_is_not_put_together(tmp_path: Path) -> None:
    async def test(nodes: Nodes) -> None:
        replica = nodes.giver.host.replica(G1)
        assert replica is not None
        base = replica.state.durable_base
        base.tables = {**base.tables, **large_tables(9_000, 0)}
        wire = Wire(nodes.server)
        asked = wire.request

        async def request(op: Operation, body: dict[str, Any], *, deadline: float) -> Any:
            if len(wire.asked) == 2:
                await nodes.server.describe(2, {"range": 1, "generation": 1})  # another duty
            return await asked(op, body, deadline=deadline)

        wire.request = request  # type: ignore[method-assign]
        with pytest.raises(Unavailable, match="no longer has the base"):
            await nodes.fetcher(wire).fetch(1, G1, pin="test")
        found = await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="test")
        assert len(found.tables["removal"]["floors"]) == 9_000

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bytes": 10}, "sent .* of 10 bytes of a base"),
        ({"bytes": limits.base_bytes_max + 1}, "`bytes` is"),
        ({"data": b"\xc1"}, "of a base"),
    ],
    ids=str,
)
def test_S12_a_base_that_is_not_whole_is_not_believed(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    async def test(nodes: Nodes) -> None:
        describe = nodes.server.describe

        async def other(node: int, body: dict[str, Any]) -> dict[str, Any]:
            return {**await describe(node, body), **change}

        nodes.server.describe = other  # type: ignore[method-assign]
        with pytest.raises(
            (CorruptData, RemoteProtocolError, Unavailable), match=f"{said}|no longer has the base"
        ):
            await nodes.fetcher(Wire(nodes.server)).fetch(1, G1, pin="test")

    run(tmp_path, test)
