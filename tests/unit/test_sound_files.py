"""S12, x28: after a stop without notice only what was never read back from the disk is hashed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prepared import make_ready
from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.node.directory import meta_keys
from lognode.node.replicas.range_replica import RangeReplica
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, Turns

G1 = GroupId(1, 1)


async def with_segments(node: StorageNode, count: int) -> RangeReplica:
    """A range, and so many more segments of it."""
    replica: RangeReplica | None = node.host.replica(G1)
    if replica is None:
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
    assert replica is not None
    await node.leading(replica)
    for number in range(count):
        first = replica.state.next_seq
        await replica.append(numbered_batch(first, [b"k%d" % number]))
        await node.flusher.flush(replica)
    return replica


def names(replica: RangeReplica) -> list[str]:
    return [info.content_id for info in replica.state.manifest]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What was hashed since, and whether from the disk."""
    done: list[tuple[str, bool]] = []
    verify = SegmentStore.verify

    def noted(self: SegmentStore, content_id: str, *, from_disk: bool = False) -> None:
        done.append((content_id, from_disk))
        verify(self, content_id, from_disk=from_disk)

    monkeypatch.setattr(SegmentStore, "verify", noted)
    return done


def test_S12_x28_a_second_start_hashes_only_what_is_new(
    tmp_path: Path, hashed: list[tuple[str, bool]]
) -> None:
    made: list[str] = []

    async def begin(node: StorageNode) -> None:
        made.extend(names(await with_segments(node, 2)))

    async def more(node: StorageNode) -> None:
        assert hashed == [(name, True) for name in made], "as the disk has them"
        assert all(name in node.host.sound for name in made)
        hashed.clear()
        made.extend(names(await with_segments(node, 1))[2:])
        assert made[2] not in node.host.sound

    async def again(node: StorageNode) -> None:
        assert hashed == [(made[2], True)]

    one_life(tmp_path, begin)
    one_life(tmp_path, more)
    one_life(tmp_path, again)


def test_S12_x28_a_damaged_file_is_not_taken_for_sound_whatever_a_row_says(tmp_path: Path) -> None:
    """The row goes with the file, and with the first doubt of it."""
    made: list[str] = []

    async def begin(node: StorageNode) -> None:
        made.extend(names(await with_segments(node, 2)))
        await node.host.sound.add(made)
        await node.host.sound.forget(made[:1])

    async def end(node: StorageNode) -> None:
        assert made[0] in node.host.sound, "hashed by the start"
        await node.host.retire([G1])
        assert not node.store.content_ids
        assert not node.meta.items(meta_keys.SOUND)
        await node.host.sound.add(["gone"])

    async def later(node: StorageNode) -> None:
        assert not node.meta.items(meta_keys.SOUND), "what is not here has no row"

    one_life(tmp_path, begin)
    one_life(tmp_path, end)
    one_life(tmp_path, later)


def test_garbage_is_collected_without_decoding_rows_of_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand rows took 20 ms of the loop, at the end of every generation."""

    async def test(node: StorageNode) -> None:
        kept = names(await with_segments(node, 3))
        stray = node.directory.tmp / "stray"
        stray.write_bytes(b"nobody's")
        node.store.add(stray, "stray")
        looked: list[str] = []
        get, items = node.meta.get, node.meta.items

        def noted(call: Callable[[str], Any]) -> Callable[[str], Any]:
            def noting(key: str) -> Any:
                looked.append(key)
                return call(key)

            return noting

        monkeypatch.setattr(node.meta, "get", noted(get))
        monkeypatch.setattr(node.meta, "items", noted(items))
        await node.host.collect_garbage()
        assert looked == [meta_keys.PREPARED]
        assert sorted(node.store.content_ids) == sorted(kept)
        # A replica that does not run, but may again, keeps its files.
        replica = node.host.replica(G1)
        assert replica is not None
        replica.stop()
        del node.host.groups[G1]
        await node.host.collect_garbage()
        assert sorted(node.store.content_ids) == sorted(kept)
        assert looked[1:] == [meta_keys.replica_key(G1), meta_keys.PREPARED]

    one_life(tmp_path, test)


def test_a_read_on_the_loop_is_told_what_has_to_be_hashed_first(tmp_path: Path) -> None:
    async def begin(node: StorageNode) -> None:
        replica = await with_segments(node, 1)
        (name,) = names(replica)
        node.store.doubt([name])
        with pytest.raises(NotPrepared) as caught, node.store.on_hand(Turns()):
            replica.state.count(b"k0")
        assert caught.value.content_id == name
        make_ready(node.store, name)
        with node.store.on_hand(Turns()):
            assert replica.state.count(b"k0") == 1
        node.store.doubt([name])
        assert replica.state.count(b"k0") == 1, "who has time hashes it"

    one_life(tmp_path, begin)
