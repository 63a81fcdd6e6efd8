"""What a node takes from its directory at start: what it held, and of that what is committed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from storage_failpoints import follower_command, peer_base
from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Overloaded
from lognode.node.directory import meta_keys
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

G1, G2 = GroupId(1, 1), GroupId(2, 1)


async def hold_entries(node: StorageNode) -> None:
    """A follower with entries 2 to 6, of which 3 are committed, and a range of its own."""
    replica = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
    assert replica is not None
    log = replica.raft_log
    log.set_hard_state(4, 2)
    for index in range(2, 7):
        log.append(index, 1, follower_command(index))
    log.set_commit(4)
    other = await node.host.create_range(descriptor(2), Base(), campaign=True)
    assert other is not None
    await node.leading(other)
    await other.append(numbered_batch(1, [b"a", b"b"]))
    await node.flusher.flush(other)
    await node.rounds.durable()


def test_S5_x15_nothing_above_the_recovered_commit_index_is_applied(tmp_path: Path) -> None:
    one_life(tmp_path, hold_entries)

    async def test(node: StorageNode) -> None:
        replica = node.host.replica(G1)
        assert replica is not None
        for _ in range(20):
            await asyncio.sleep(0.005)  # elections come and go: nobody else is there
        assert (replica.raft_log.last_index, replica.applied_index) == (6, 4)
        assert replica.state.count(b"a") == 3
        assert replica.raft_log.term >= 4

    one_life(tmp_path, test)


def test_S2_x2_a_damaged_log_takes_no_part_and_is_remembered(tmp_path: Path) -> None:
    one_life(tmp_path, hold_entries)
    path = tmp_path / "wal" / "wal-0000000001"
    whole = path.read_bytes()
    at = whole.index(follower_command(3))
    path.write_bytes(whole[:at] + b"!" + whole[at + 1 :])

    async def damaged(node: StorageNode) -> None:
        assert G1 in node.host.damaged
        assert node.host.replica(G1) is None
        row = node.meta.get("replica/000000000001/00000001")
        assert row is not None
        assert row["damaged"]
        # Nor can it be created again: its votes are gone (x2, x3).
        assert (
            await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False) is None
        )

    one_life(tmp_path, damaged)
    path.write_bytes(whole)
    one_life(tmp_path, damaged)


def test_S2_x2_a_log_that_is_gone_is_damage(tmp_path: Path) -> None:
    one_life(tmp_path, hold_entries)
    for path in (tmp_path / "wal").iterdir():
        path.unlink()

    async def test(node: StorageNode) -> None:
        assert set(node.host.damaged) == {G1, G2}
        assert not node.host.groups

    one_life(tmp_path, test)


@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_S12_x28_a_replica_whose_segment_is_not_what_it_was_does_not_serve(
    tmp_path: Path, how: str
) -> None:
    one_life(tmp_path, hold_entries)
    (path,) = (tmp_path / "files").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(data if how == "flip" else data[:5000])

    async def test(node: StorageNode) -> None:
        assert set(node.host.damaged) == {G2}
        assert path.stem in node.host.damaged[G2]
        assert node.host.replica(G1) is not None

    one_life(tmp_path, test)


def test_S2_x15_a_meta_store_older_than_its_wal_is_damage_not_a_reset(tmp_path: Path) -> None:
    """Found by reading: the log was reset to what the old row said, with all that it held."""

    async def cut(node: StorageNode) -> None:
        await hold_entries(node)
        replica = node.host.replica(G1)
        assert replica is not None
        replica.raft_log.cut_front(4)
        node.rounds.kick()
        await node.rounds.durable()

    one_life(tmp_path, cut)

    async def test(node: StorageNode) -> None:
        assert "its log begins after 4" in node.host.damaged[G1]
        assert node.wal.groups[G1].last_index == 6

    one_life(tmp_path, test)


def test_x2_10_a_base_in_meta_is_rolled_forward_into_the_log(tmp_path: Path) -> None:
    """Whatever the log holds at its index: nothing, the very entry, or another leader's."""
    for term, last, kept in ((1, 12, 12), (5, 12, 8), (1, 5, 8)):
        root = tmp_path / f"{term}-{last}"

        async def crash(node: StorageNode, last: int = last, term: int = term) -> None:
            follower = descriptor(1, (1, 2, 3))
            replica = await node.host.create_range(follower, Base(), campaign=False)
            assert replica is not None
            for index in range(2, last + 1):
                replica.raft_log.append(index, 1, follower_command(index))
            await node.rounds.durable()
            base = peer_base(node.store, node.directory.tmp / "peer", term)
            row = {**meta_keys.replica_row(follower, base), "installed": True}
            node.meta.commit({"replica/000000000001/00000001": row})

        async def test(node: StorageNode, term: int = term, kept: int = kept) -> None:
            assert not node.host.damaged
            replica = node.host.replica(G1)
            assert replica is not None
            log = replica.raft_log
            assert (log.term_at(8), log.last_index, log.commit_index) == (term, kept, 8)
            assert replica.applied_index == 8

        one_life(root, crash)
        for _ in range(2):
            one_life(root, test)


def test_S2_x15_a_log_that_has_lost_its_end_is_damage_not_a_reset(tmp_path: Path) -> None:
    """Found by reading: only a base of a peer comes before its log; what is applied was durable.
    A disk that forgot the end of the WAL forgot votes with it."""

    async def forget(node: StorageNode) -> None:
        await hold_entries(node)
        replica = node.host.replica(G1)
        assert replica is not None
        base = replace(Base(), applied_index=8, applied_term=1)
        node.meta.commit(
            {meta_keys.replica_key(G1): meta_keys.replica_row(replica.descriptor, base)}
        )

    one_life(tmp_path, forget)

    async def test(node: StorageNode) -> None:
        assert node.host.damaged == {G1: "its log ends at entry 6, meta applied 8"}
        assert node.wal.groups[G1].last_index == 6

    for _ in range(2):
        one_life(tmp_path, test)


def test_S2_x2_a_log_with_another_entry_where_meta_applied_one_is_damage_not_a_reset(
    tmp_path: Path,
) -> None:
    """Found by reading: a disk that went back to before a new leader replaced the end of the log
    forgot the vote for it as well; the log was reset to what meta says, and voted on."""

    async def forget(node: StorageNode) -> None:
        await hold_entries(node)
        replica = node.host.replica(G1)
        assert replica is not None
        base = replace(Base(), applied_index=6, applied_term=2)
        node.meta.commit(
            {meta_keys.replica_key(G1): meta_keys.replica_row(replica.descriptor, base)}
        )

    one_life(tmp_path, forget)

    async def test(node: StorageNode) -> None:
        said = "its log has entry 6 of term 1, meta applied that entry of term 2"
        assert node.host.damaged == {G1: said}
        assert node.wal.groups[G1].last_index == 6

    for _ in range(2):
        one_life(tmp_path, test)


def test_L3_appends_are_refused_when_segments_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memtable_hard_bytes_max", 20_000)
    monkeypatch.setattr(limits, "append_light_bytes", 0)  # who brings little is refused later

    async def test(node: StorageNode) -> None:
        await hold_entries(node)
        replica = node.host.replica(G2)
        assert replica is not None
        number = 3
        while replica.state.memtable_bytes <= 20_000:
            await replica.append(numbered_batch(number, [b"a"] * 10, filler=500))
            number += 10
        with pytest.raises(Overloaded, match="segments"):
            await replica.append(numbered_batch(number, [b"a"]))
        assert 20 < number < 80
        await node.flusher.flush(replica)
        reply = await replica.append(numbered_batch(number, [b"a"]))
        assert reply["status"] == "ok"

    one_life(tmp_path, test)
