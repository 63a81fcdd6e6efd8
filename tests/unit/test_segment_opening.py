"""Segment files are opened by a thread, unhashed; the loop reads only bytes that are in memory."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flushed_range import FlushedRange
from prepared import make_ready

from lognode.client.protocol.errors import CorruptData, NotLeader
from lognode.node.replicas.prepare import prepare
from lognode.node.replicas.read_turns import in_turns
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_file import SegmentFile
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, Turns

KEYS = [b"%04d" % at for at in range(2_000)]
READS: dict[str, Callable[[RangeState], Any]] = {
    "latest": lambda state: state.latest(b"0701"),
    "absent": lambda state: state.latest(b"0701x"),
    "count": lambda state: state.count(b"0701"),
    "tail": lambda state: state.tail(b"0701", 3),
    "last_seq": lambda state: state.last_seq(b"0701"),
    "time": lambda state: state.seq_at_timestamp(5_500)[0],
}


@pytest.fixture
def filled(tmp_path: Path) -> FlushedRange:
    """Ten segments with all keys in each."""
    made = FlushedRange(tmp_path)
    for _ in range(10):
        made.append(KEYS)
        made.flush()
    made.append(KEYS[::2])
    return made


@pytest.fixture
def reads_of_files(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """The reads of segment files: whether the loop's thread read, and how many bytes."""
    loop, found, read = threading.main_thread(), [], SegmentFile.read

    def noted(self: SegmentFile, offset: int, count: int) -> memoryview:
        found.append((threading.current_thread() is loop, count))
        return read(self, offset, count)

    monkeypatch.setattr(SegmentFile, "read", noted)
    return found


def test_x28_a_thread_opens_a_file_with_a_few_reads_however_large_it_is(
    tmp_path: Path, reads_of_files: list[tuple[bool, int]]
) -> None:
    made = FlushedRange(tmp_path)
    for _ in range(16):
        made.append([b"%06d" % made.rng.randrange(10**6) for _ in range(4_000)], value_bytes=400)
    made.flush()
    (info,) = made.state.manifest
    assert info.size > 20 << 20
    made.store.close()
    with pytest.raises(NotPrepared) as told, made.store.on_hand(Turns()):
        made.state.count(b"500000")
    assert told.value.content_id == info.content_id
    assert reads_of_files == []
    make_ready(made.store, told.value)
    assert 2 <= len(reads_of_files) <= 20
    assert sum(count for _, count in reads_of_files) < 200_000
    with made.store.on_hand(Turns()):
        made.store.segment(info.content_id)
    made.store.doubt([info.content_id])
    with pytest.raises(NotPrepared), made.store.on_hand(Turns()):
        made.store.segment(info.content_id)


def test_the_first_read_of_a_key_after_a_start_reads_a_few_pages_of_each_file(
    tmp_path: Path, reads_of_files: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a key that no file has: 5 GiB of files were hashed and walked, 9 s."""
    made = FlushedRange(tmp_path)
    for _ in range(5):
        for _ in range(4):
            made.append([b"%06d" % made.rng.randrange(10**6) for _ in range(4_000)], 400)
        made.flush()
    size = sum(info.size for info in made.state.manifest)
    assert size > 30 << 20
    # A start has opened, hashed and decoded nothing.
    made.store = made.state.store = SegmentStore(tmp_path / "files")
    monkeypatch.setattr(SegmentStore, "verify", None)
    assert asyncio.run(in_turns(made, lambda: made.state.latest(b"500000x"))) is None  # type: ignore[arg-type]
    read = sum(count for _, count in reads_of_files)
    assert len(reads_of_files) <= 20 * len(made.state.manifest)
    assert read < size // 50
    made.store.close()


def test_x28_a_file_with_a_wrong_first_page_is_not_opened(tmp_path: Path) -> None:
    made = FlushedRange(tmp_path)
    made.append(KEYS)
    made.flush()
    (info,) = made.state.manifest
    made.store.close()
    with open(made.store.path(info.content_id), "r+b") as file:
        file.seek(4096)
        file.write(b"x")
    with pytest.raises(CorruptData, match="page 1 does not begin a file of LMDB"):
        make_ready(made.store, info.content_id)


def test_S12_a_file_that_is_not_the_one_of_the_manifest_is_damage(tmp_path: Path) -> None:
    """All its checksums are right."""
    made = FlushedRange(tmp_path)
    for _ in range(2):
        made.append(KEYS)
        made.flush()
    one, other = (made.store.path(info.content_id) for info in made.state.manifest)
    made.store.close()
    one.write_bytes(other.read_bytes())
    with pytest.raises(CorruptData, match="does not match its manifest"):
        asyncio.run(in_turns(made, lambda: made.state.count(b"0701")))  # type: ignore[arg-type]


def test_a_file_that_was_replaced_while_a_thread_opened_it_is_opened_again(tmp_path: Path) -> None:
    made = FlushedRange(tmp_path)
    made.append(KEYS)
    made.flush()
    (info,) = made.state.manifest
    store = made.store
    path = store.path(info.content_id)
    for change in ("doubt", "add", "remove"):
        store.close()
        prepared = store.prepare(NotPrepared(info.content_id))
        assert prepared is not None
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        if change == "doubt":
            store.doubt([info.content_id])
        elif change == "remove":
            (gone,) = store.forget_except([])
            store.remove(gone)
        if change != "doubt":
            store.add(copy, info.content_id)
        store.admit(prepared)
        with pytest.raises(NotPrepared), store.on_hand(Turns()):
            store.segment(info.content_id)
        make_ready(store, info.content_id)
        with store.on_hand(Turns()):
            assert store.segment(info.content_id).last_seq(b"0700")


@pytest.mark.parametrize("drops", [False, True], ids=["kept", "dropped again"])
@pytest.mark.parametrize("read", READS)
def test_S7_bytes_that_only_the_disk_has_are_read_by_a_thread(
    filled: FlushedRange, reads_of_files: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch,
    read: str, drops: bool,
) -> None:  # fmt: skip
    """`drops`: the kernel drops the bytes again before the loop reads them."""
    expected = READS[read](filled.state)
    filled.store.close()
    filled.store._blocks = BlockCache(1)
    in_memory: set[tuple[int, int]] = set()
    waited: list[tuple[int, int]] = []
    fetch, look = filled.store.prepare, SegmentFile._in_memory

    def fetched(missing: NotPrepared, turns: Turns) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        if missing.place is not None:
            waited.append(missing.place[1:])
            assert len(waited) < 1_000, "it does not come to its end"
            if not drops:
                in_memory.add(missing.place[1:])
        return fetch(missing, turns)

    def looked(self: SegmentFile, offset: int, data: memoryview) -> bool:
        return (offset, len(data)) in in_memory and look(self, offset, data)

    monkeypatch.setattr(filled.store, "prepare", fetched)
    monkeypatch.setattr(SegmentFile, "_in_memory", looked)
    found = asyncio.run(in_turns(filled, lambda: READS[read](filled.state)))  # type: ignore[arg-type]
    assert found == expected
    assert waited


def test_S7_the_loop_does_not_read_what_the_kernel_has_dropped(filled: FlushedRange) -> None:
    """A real file, whose pages are dropped."""
    expected = filled.state.last_seq(b"0701")
    info = filled.state.manifest[-1]
    path = filled.store.path(info.content_id)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        else:
            pytest.skip("the file system keeps the file in memory")
        filled.store._blocks = BlockCache(1 << 20)
        segment = Segment(path, info.content_id, filled.store._blocks)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    turns = Turns()
    missed: list[NotPrepared] = []
    while len(missed) < 99:
        try:
            with filled.store.on_hand(turns):
                assert segment.last_seq(b"0701") == expected
            break
        except NotPrepared as missing:
            missed.append(missing)
            make_ready(filled.store, missing)
    assert 2 <= len(missed) <= 9, "filter, index, block: none of them twice"
    assert all(missing.place is not None for missing in missed)


def test_x28_a_file_that_a_merge_has_removed_is_not_damage(filled: FlushedRange) -> None:
    old, kept = filled.state.manifest[0], filled.state.manifest[9]
    filled.merge(0, 8)
    asyncio.run(prepare(filled.state, NotPrepared(old.content_id), Turns()))
    filled.store.doubt([kept.content_id])
    filled.store.path(kept.content_id).unlink()
    with pytest.raises(CorruptData, match="is missing"):
        asyncio.run(prepare(filled.state, NotPrepared(kept.content_id), Turns()))
    filled.stopped = True
    with pytest.raises(NotLeader):
        asyncio.run(in_turns(filled, lambda: filled.state.count(b"0701")))  # type: ignore[arg-type]
