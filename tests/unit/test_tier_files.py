"""Segments that are read from a tier: equal to local reads, cheap, and never wrong."""

import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from flushed_range import FlushedRange
from tier_reads import MIB, TierReads

from lognode.client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LognodeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from lognode.node.tier.chunk_cache import CHUNK_BYTES, ChunkCache, ChunkName
from lognode.node.tier.tier_files import GONE
from lognode.statemachine import commands
from lognode.statemachine.band_reads import Position
from lognode.statemachine.range_state import RangeState

KEYS = [b"%04d" % at for at in range(2_000)]
Ask = Callable[[Callable[[RangeState], Any]], Any]


@pytest.fixture
def made(tmp_path: Path) -> FlushedRange:
    found = FlushedRange(tmp_path, cache_bytes=MIB)
    for _ in range(3):
        found.append(KEYS, 400)
        found.append([b"hot"] * 500, 400)
        found.apply(commands.TRIM_KEYS, [[b"0007", found.state.next_seq - 1]])
        found.flush()
    return found


def in_order(ask: Ask) -> list[Any]:
    """All entries in the order of seq, page by page."""
    found: list[Any] = []
    seq, more = 1, True
    while more:
        page = ask(lambda state, seq=seq: state.read_span(b"", None, seq, limit=500, bytes_max=MIB))  # type: ignore[misc]
        found += zip(page.seqs, page.keys, page.values, strict=True)
        seq, more = page.next, page.more
    return found


def in_bands(ask: Ask) -> int:
    """Read all entries in the order of the files; return their number."""
    count, at = 0, Position()
    while True:
        page, following = ask(
            lambda state, at=at: state.read_bands(b"", None, at, limit=2_000, bytes_max=MIB)  # type: ignore[misc]
        )
        count += sum(chunk.rows for chunk in page.chunks())
        if following is None:
            return count
        at = following


@pytest.mark.parametrize(("memory_bytes", "disk_bytes"), list(product((0, 16 * MIB), repeat=2)))
def test_reads_from_a_tier_are_equal_to_local_reads(
    made: FlushedRange, memory_bytes: int, disk_bytes: int
) -> None:
    """Without room for any chunk, too: what a read has fetched stays with that read."""
    reads = TierReads(made, memory_bytes=memory_bytes, disk_bytes=disk_bytes)
    asked: list[Callable[[RangeState], Any]] = [
        lambda state: state.count(b"hot"),
        lambda state: state.last_seq(b"0300"),
        lambda state: state.keys(b"00", limit=200),
        lambda state: state.scan(b"hot", limit=10, bytes_max=MIB).to_wire(),
        lambda state: state.scan(b"0007", limit=9, bytes_max=MIB, reverse=True).to_wire(),
        lambda state: state.seq_at_timestamp(5_000),
    ]
    for ask in asked:
        assert reads.read(ask) == ask(made.state)
    assert in_order(reads.read) == in_order(lambda ask: ask(made.state))


def test_a_poll_of_a_cold_key_takes_few_requests_and_bytes(made: FlushedRange) -> None:
    reads = TierReads(made)
    assert reads.read(lambda state: state.last_seq(b"1234"))
    cold = len(reads.objects.asked)
    assert cold <= 7
    assert reads.objects.fetched <= 8 * CHUNK_BYTES
    assert reads.read(lambda state: state.last_seq(b"1234"))
    assert len(reads.objects.asked) == cold, "the next poll is served from memory"


def test_a_read_of_everything_takes_more_and_more_with_each_request(made: FlushedRange) -> None:
    reads = TierReads(made)
    assert in_bands(reads.read) == in_bands(lambda ask: ask(made.state)) > 6_000
    size = sum(held.size for held in reads.held.values())
    assert reads.objects.fetched <= size, "no byte is fetched twice"
    assert len(reads.objects.asked) < size / CHUNK_BYTES / 1.5


def test_a_later_process_goes_on_with_the_chunks_on_the_disk(made: FlushedRange) -> None:
    reads = TierReads(made)
    expected = in_order(reads.read)
    asked = len(reads.objects.asked)
    with pytest.raises(InvalidArgument, match="another process uses"):
        ChunkCache(made.root / "chunks", memory_bytes_max=1, disk_bytes_max=1)
    reads.end()
    (chunk, *_) = sorted((made.root / "chunks").glob("*.0"))
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    (made.root / "chunks" / f"{chunk.name}.7.part").write_bytes(b"unfinished")
    reads.begin(memory_bytes=0)
    assert in_order(reads.read) == expected
    assert len(reads.objects.asked) == asked + 1, "only the damaged chunk is fetched again"
    assert not list((made.root / "chunks").glob("*.part"))
    assert reads.cache.disk_bytes == sum(
        path.stat().st_size for path in (made.root / "chunks").glob("*.[0-9]*")
    )


def test_the_chunk_that_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    names = [ChunkName(f"{at:064x}", at) for at in range(4)]
    cache = ChunkCache(tmp_path, memory_bytes_max=250, disk_bytes_max=320)
    for name in names[:3]:
        cache.put(name, b"x" * 100)
    assert [cache.in_memory(name) is None for name in names] == [True, False, False, True]
    assert cache.get(names[0]) == b"x" * 100
    cache.put(names[3], b"y" * 100)
    assert [cache.has(name) for name in names] == [True, False, True, True]
    assert cache.disk_bytes == 312 == sum(p.stat().st_size for p in tmp_path.glob("0*"))
    assert cache.memory_bytes == 200
    cache.forget(names[0].content_id)
    assert not cache.has(names[0])
    assert (cache.memory_bytes, cache.disk_bytes) == (100, 208)
    cache.put(names[0], b"z" * 1_000)
    assert cache.get(names[0]) is None, "a chunk above the bounds is not kept"
    cache.close()


def test_a_disk_that_takes_nothing_only_makes_the_cache_smaller(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path / "chunks", memory_bytes_max=1_000, disk_bytes_max=1_000)
    (tmp_path / "chunks" / f"{1:064x}.1").mkdir()  # in the place of the chunk
    cache.put(ChunkName(f"{1:064x}", 1), b"x" * 10)
    assert cache.in_memory(ChunkName(f"{1:064x}", 1)) == b"x" * 10
    assert cache.disk_bytes == 0
    cache.close()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="cannot use"):
        ChunkCache(tmp_path / "file", memory_bytes_max=1, disk_bytes_max=1)


@pytest.mark.parametrize("place", range(0, 64, 8))
def test_S12_damage_in_a_tier_is_reported_and_never_read(made: FlushedRange, place: int) -> None:
    """A byte of each answer is wrong. After a repair the read gives all entries again."""
    expected = in_order(lambda ask: ask(made.state))
    reads = TierReads(made)

    def spoiled(data: bytes) -> bytes:
        at = len(data) * place // 64
        return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]

    reads.objects.spoils = spoiled
    for _ in range(len(reads.held) + 1):
        try:
            found = in_order(reads.read)
        except CorruptData as error:
            name = error.fields["segment"]
            reads.files.forget(name)
            reads.store.doubt([name])
            reads.objects.spoils = lambda data: data
            continue
        assert found == expected, "the damage is where no read looks, or was repaired"
        break
    else:
        pytest.fail("the damage stays after the repair")
    reads.end()


def test_a_store_that_is_away_gets_a_rest_and_reads_say_so(made: FlushedRange) -> None:
    reads = TierReads(made)
    assert reads.read(lambda state: state.count(b"hot")) == 1_500
    reads.objects.away = True
    asked = len(reads.objects.asked)

    def refused() -> Unavailable:
        with pytest.raises(Unavailable) as raised:
            reads.read(lambda state: state.last_seq(b"0500"))
        return raised.value

    first = refused()
    assert "no answer" in first.message
    assert first.fields["retry_after"] == 1.0
    for rest_s in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        asked += 1
        assert len(reads.objects.asked) == asked
        error = refused()
        assert error.fields["retry_after"] == rest_s
        assert (error.outcome, error.fields["reason"]) == ("not_applied", "tier")
        assert len(reads.objects.asked) == asked, "the store has a rest"
        assert reads.read(lambda state: state.count(b"hot")) == 1_500, "memory goes on"
        reads.now += rest_s
        assert "no answer" in refused().message
    reads.objects.away = False
    reads.now += 10.0
    assert reads.read(lambda state: state.last_seq(b"0500")) == 5_501
    assert reads.files.row()["store_error"] is None


@pytest.mark.parametrize("refusal", [Unauthorized, NotFound, InvalidArgument])
def test_a_store_that_refuses_reads_counts_as_away(
    made: FlushedRange, refusal: type[LognodeError]
) -> None:
    """An entry that a member applies waits for Unavailable. Another error would end the node."""
    reads = TierReads(made)
    reads.objects.away, reads.objects.refusal = True, refusal
    for _ in range(2):
        with pytest.raises(Unavailable, match="no answer") as raised:
            reads.read(lambda state: state.last_seq(b"0500"))
        assert raised.value.fields["retry_after"] > 0
    assert len(reads.objects.asked) == 1, "the store has a rest"
    reads.objects.away = False
    reads.now += 1.0
    assert reads.read(lambda state: state.last_seq(b"0500")) == 5_501


def test_a_file_that_left_the_tier_is_unavailable_and_not_empty(made: FlushedRange) -> None:
    reads = TierReads(made)
    for listed in list(reads.objects.objects("files")):
        reads.objects.delete(listed.name)
    with pytest.raises(Unavailable, match="is not in the tier") as raised:
        reads.read(lambda state: state.last_seq(b"1999"))
    assert raised.value.fields["reason"] == GONE
    reads.held.clear()
    with pytest.raises(CorruptData, match="is missing"):
        reads.read(lambda state: state.last_seq(b"1999"))


def test_reads_at_the_same_time_share_a_request(made: FlushedRange) -> None:
    reads = TierReads(made)
    name, held = next(iter(reads.held.items()))
    both, found = threading.Barrier(2), list[bytes]()

    def arrive() -> None:
        reads.objects.before = lambda: None
        both.wait(10)  # the other read is on its way

    def ask() -> None:
        found.append(bytes(reads.files.read(name, held, 100, 50)))

    reads.objects.before = arrive
    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    for thread in threads[1:]:
        thread.start()
    both.wait(10)
    for thread in threads:
        thread.join(10)
    local = made.store.path(name).read_bytes()[100:150]
    assert found == [local] * 3
    assert len(reads.objects.asked) == 1
