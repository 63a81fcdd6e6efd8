"""Files in the tier only: their pages on the disk, their rows in meta, their way in and out."""

import asyncio
from pathlib import Path

import pytest
from flushed_range import FlushedRange
from tier_reads import MIB, TierReads

from lognode.client.protocol.errors import InvalidArgument, Unavailable
from lognode.node.directory.kept_files import KeptFiles, Place, from_row
from lognode.node.directory.meta_keys import TIER, kept_gid, kept_key, kept_row
from lognode.node.replicas.base_files import BaseFiles
from lognode.node.tier import kept_pages
from lognode.node.tier.far_files import FarFile
from lognode.partitions.model import Descriptor, Lineage, Span
from lognode.raft.types import GroupId
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.segment_file import SegmentFile
from lognode.statemachine.segment_reader import Segment

KEYS = [b"%05d" % at for at in range(20_000)]


@pytest.fixture
def made(tmp_path: Path) -> FlushedRange:
    found = FlushedRange(tmp_path, cache_bytes=MIB)
    found.append(KEYS[::2], 200)
    found.flush()
    return found


def kept(made: FlushedRange, reads: TierReads) -> FarFile:
    """The only file of the range, read from the tier, with its pages on the disk."""
    (info,) = made.state.durable_base.manifest
    local = SegmentFile(made.store.path(info.content_id), info.content_id)
    path = kept_pages.path_of(made.root / "files", info.content_id)
    size = kept_pages.write(local, info.content_id, path)
    local.close()
    assert 0 < size < info.size / 20
    assert path.stat().st_blocks * 512 < info.size / 4, "the file has holes"
    pages = kept_pages.opened(made.root / "files", info.content_id, info.size)
    assert pages is not None
    file = reads.files.open(info.content_id)
    assert file is not None
    return FarFile(file, pages, lambda error: None)


def test_a_key_that_no_filter_has_needs_no_store(made: FlushedRange) -> None:
    reads = TierReads(made)
    segment = Segment(kept(made, reads), "a", BlockCache(MIB))
    reads.objects.away = True
    known = [key for key in KEYS[1::2] if not segment.may_hold(key)]
    assert len(known) > 9_000
    assert all(segment.last_seq(key) == 0 for key in known)
    assert not reads.objects.asked
    with pytest.raises(Unavailable):
        segment.last_seq(KEYS[2_000])


def test_reads_with_and_without_pages_are_equal(made: FlushedRange) -> None:
    reads = TierReads(made)
    (info,) = made.state.durable_base.manifest
    local = Segment(made.store.path(info.content_id), info.content_id, BlockCache(MIB))
    far = Segment(kept(made, reads), info.content_id, BlockCache(MIB))
    for key in KEYS[:400]:
        assert list(far.entries(key, 1, None)) == list(local.entries(key, 1, None))


@pytest.mark.parametrize("spoil", ["cut", "list", "another size", "absent"])
def test_pages_that_cannot_be_used_count_as_absent(made: FlushedRange, spoil: str) -> None:
    (info,) = made.state.durable_base.manifest
    kept(made, TierReads(made)).close()
    path = kept_pages.path_of(made.root / "files", info.content_id)
    size = info.size + (spoil == "another size")
    if spoil == "cut":
        with path.open("r+b") as file:
            file.truncate(info.size // 2)
    if spoil == "list":
        with path.open("r+b") as file:
            file.seek(info.size)
            file.write(b"\0")
    if spoil == "absent":
        kept_pages.remove(made.root / "files", info.content_id)
    assert kept_pages.opened(made.root / "files", info.content_id, size) is None


def test_pages_of_files_without_a_place_are_removed(made: FlushedRange) -> None:
    (info,) = made.state.durable_base.manifest
    kept(made, TierReads(made)).close()
    path = kept_pages.path_of(made.root / "files", info.content_id)
    kept_pages.remove_except(made.root / "files", frozenset([info.content_id]))
    assert path.exists()
    kept_pages.remove_except(made.root / "files", frozenset())
    assert not path.exists()


class Rows:
    """The rows of meta, changed at once."""

    def __init__(self) -> None:
        self.rows: dict[str, object] = {}

    def get(self, key: str) -> object:
        return self.rows.get(key)

    def items(self, prefix: str) -> list[tuple[str, object]]:
        return [(key, row) for key, row in sorted(self.rows.items()) if key.startswith(prefix)]


class NoTier:
    """A tier without files."""

    async def bring_back(self, content_id: str) -> bool:
        return False

    async def join(self, gid: GroupId, base: object) -> None:
        return None


def test_the_newest_generation_says_where_a_file_is() -> None:
    rows = Rows()
    old, new = GroupId(7, 1), GroupId(9, 2)
    for gid, path in ((old, "old"), (new, "new")):
        rows.rows[kept_key(gid)] = kept_row({"f": Place(5, path)})
    kept_files = KeptFiles(rows, None)  # type: ignore[arg-type]
    kept_files.use(NoTier())
    kept_files.load()
    assert kept_files.place("f") == Place(5, "new")
    assert kept_files.of_any([old], ["f", "g"]) == {"f": Place(5, "old")}
    assert kept_files.knows(new)
    kept_files.take(new, {})
    assert kept_files.knows(new)
    kept_files.forget([new])
    assert not kept_files.knows(new)
    assert kept_files.place("f") == Place(5, "old")
    assert kept_files.has(old, "f")
    assert not kept_files.has(new, "f")


def test_a_node_with_files_in_the_tier_only_needs_a_tier() -> None:
    rows = Rows()
    KeptFiles(rows, None).load()  # type: ignore[arg-type]
    rows.rows[kept_key(GroupId(7, 1))] = kept_row({"f": Place(5, "old")})
    with pytest.raises(InvalidArgument, match="1 segments of this node are in its tier only"):
        KeptFiles(rows, None).load()  # type: ignore[arg-type]


def test_keys_and_rows_are_read_as_they_were_written() -> None:
    gid = GroupId(12, 34)
    assert kept_gid(kept_key(gid)) == gid
    places = {"f": Place(5, "a"), "g": Place(6, "b")}
    assert from_row(kept_row(places)) == places
    with pytest.raises(ValueError, match="is not the place of a file"):
        from_row([["f", "5", "a"]])


def test_a_file_that_is_given_up_is_read_elsewhere_at_once(made: FlushedRange) -> None:
    reads = TierReads(made)
    (info,) = made.state.durable_base.manifest
    expected = made.state.last_seq(KEYS[0])
    made.store.read_elsewhere(reads.files.open, lambda call: call())
    made.store.hold(info.content_id)
    assert made.store.give_up([info.content_id]) == []
    made.store.release(info.content_id)
    for gone in made.store.give_up([info.content_id, "another"]):
        made.store.remove(gone)
    assert not made.store.path(info.content_id).exists()
    assert not made.store.has(info.content_id)
    assert made.state.last_seq(KEYS[0]) == expected
    assert reads.objects.asked


@pytest.mark.parametrize("token", ["one", ""])
def test_a_node_takes_no_other_tier_for_the_one_that_has_its_files(token: str) -> None:
    """A tier that an earlier version has made has no token."""
    rows = Rows()
    rows.rows[TIER] = token
    files = KeptFiles(rows, None)  # type: ignore[arg-type]
    files.use(NoTier())
    files.load()
    files.take(GroupId(7, 1), {"f": Place(5, "old")})
    asyncio.run(files.check(token))
    with pytest.raises(Unavailable, match="another tier than the one that has 1 segments"):
        asyncio.run(files.check("two"))


@pytest.mark.parametrize("with_tier", [False, True])
def test_a_file_that_is_missing_on_the_disk_keeps_no_generation_from_its_begin(
    made: FlushedRange, *, with_tier: bool
) -> None:
    """Readers repair the file. Before, the node waited for a fetch that nobody begins."""
    kept_files = KeptFiles(Rows(), None)  # type: ignore[arg-type]
    if with_tier:
        kept_files.use(NoTier())
    files = BaseFiles(made.store, kept_files, None, hash_files=False)  # type: ignore[arg-type]
    base, gid = made.state.durable_base, GroupId(7, 2)
    descriptor = Descriptor(7, 2, 1, Span(b"", None), (1,), (Lineage(7, 1, 5, 1, 5, 1, b""),))
    (info,) = base.manifest
    made.store.path(info.content_id).unlink()
    assert files.places(descriptor, base) is None
    files.check_has(gid, base)
    made.store.forget_except(())
    if with_tier:
        with pytest.raises(Unavailable, match="is not on this node any more"):
            files.places(descriptor, base)
    else:
        assert files.places(descriptor, base) is None
