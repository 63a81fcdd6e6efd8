"""Merging segments: what is joined, what stays, and that it does not depend on who does it."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry
from lognode.node.rules.merging import due
from lognode.statemachine import merge_plan
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.floors import Compaction
from lognode.statemachine.merge import Kept, merge
from lognode.statemachine.merge_plan import plan
from lognode.statemachine.merge_process import Merger, Task, run
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.removal import Removal
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import SegmentInfo, Source, build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.visibility import Rules

Input = tuple[Path, SegmentInfo]


def segment_of(directory: Path, entries: Sequence[Entry]) -> Input:
    """A file of entries with consecutive seqs, in the store's place."""
    sources = [
        Source(
            encode_batch([e.key], [e.value], producer=0, epoch=0, low=0, numbers=1,
                         headers=[e.headers], snapshots=[0] if e.snapshot else None),
            None, e.timestamp_ms,
        )
        for e in entries
    ]  # fmt: skip
    directory.mkdir(exist_ok=True)
    info = build(directory / "building", entries[0].seq, sources)
    path = directory / f"{info.content_id}.seg"
    (directory / "building").rename(path)
    return path, info


def task(path: Path, inputs: list[Input], *, end: bytes | None = None) -> Task:
    return Task(path, inputs, b"", end, Rules.of({}), oldest=True)


def random_entries(rng: random.Random, first_seq: int, count: int, keys: int) -> list[Entry]:
    """Some small, some larger than a block, some without value, with headers, marked."""
    entries = []
    for seq in range(first_seq, first_seq + count):
        value = rng.choice([None, b"", rng.randbytes(rng.randrange(200)), b"x" * 300])
        if rng.random() < 0.003:
            value = rng.randbytes(3 * limits.segment_block_bytes)
        headers = {b"h": b"%d" % seq} if rng.random() < 0.1 else None
        key = b"key-%06d" % rng.randrange(keys)
        entries.append(Entry(key, seq, 1000 + seq // 3, headers, value, rng.random() < 0.05))
    return entries


def inputs_of(directory: Path, seed: int = 1, count: int = 1500) -> tuple[list[Input], list[Entry]]:
    rng = random.Random(seed)
    inputs, everything, seq = [], [], 1
    for keys in (10_000, 300, 7, 10_000, 1):
        entries = random_entries(rng, seq, count, keys)
        inputs.append(segment_of(directory, entries))
        everything += entries
        seq += count + rng.choice([0, 50])  # a segment between them may be gone
    return inputs, everything


def state_of(directory: Path, infos: list[SegmentInfo]) -> RangeState:
    store = SegmentStore(directory)
    base = Base(9, 1, infos, {"next_seq": infos[-1].end_seq})
    return RangeState(start=b"", end=None, store=store, base=base)


def check_reads(state: RangeState, entries: list[Entry]) -> None:
    """All ways of reading agree with the list."""
    by_key: dict[bytes, list[Entry]] = {}
    for entry in entries:
        by_key.setdefault(entry.key, []).append(entry)
    assert state.keys(limit=100_000) == sorted(by_key)
    rng = random.Random(5)
    for key in rng.sample(sorted(by_key), min(200, len(by_key))):
        mine = by_key[key]
        assert state.scan(key, limit=9999, bytes_max=1 << 30).entries() == mine
        assert state.latest(key) == mine[-1]
        assert state.count(key) == len(mine)
        bound = rng.choice(mine).seq
        assert state.count(key, bound) == sum(e.seq >= bound for e in mine)
        back = state.scan(key, 1, bound, limit=3, bytes_max=1 << 30, reverse=True).entries()
        assert back == [e for e in mine if e.seq < bound][::-1][:3]
    span, at = [], 1
    while True:
        page = state.read_span(b"", None, at, limit=700, bytes_max=1 << 30)
        span += page.entries()
        at = page.next
        if not page.more:
            break
    assert span == entries
    for ms in (0, 1000, 1400, 1777, 2200, 10**9):
        expected = next((e.seq for e in entries if e.timestamp_ms >= ms), None)
        assert state.seq_at_timestamp(ms) == (expected or state.memtable.end_seq, None)


def test_files_without_visible_entries_go_before_others_are_merged(tmp_path: Path) -> None:
    infos = [segment_of(tmp_path, [Entry(b"k", seq, 1_000, None, b"v")])[1] for seq in range(1, 10)]
    base = Base(9, 1, infos, {"next_seq": infos[-1].end_seq})
    everything = (b"", None)
    merge = due(base, everything, ended=False)
    assert merge is not None
    assert (merge.inputs, merge.writes, merge.oldest) == (infos[:8], True, True)
    assert due(base, everything, ended=True) is None, "the next generation takes the files over"
    trimmed = Removal()
    assert trimmed.trim_spans([(b"", None, infos[1].end_seq)]) is None
    base.tables["removal"] = trimmed.to_wire(0)
    merge = due(base, everything, ended=False)
    assert merge is not None
    assert (merge.inputs, merge.writes) == (infos[:2], False)
    alone = Base(9, 1, infos[:1], {"next_seq": infos[0].end_seq})
    assert due(alone, everything, ended=False) is None


def test_S3_S6_a_merge_keeps_every_entry_as_it_is(tmp_path: Path) -> None:
    inputs, entries = inputs_of(tmp_path)
    infos = [info for _, info in inputs]
    check_reads(state_of(tmp_path, infos), entries)
    merged = merge(tmp_path / "merged", inputs, start=b"", end=None, kept=None)
    assert merged is not None
    assert (merged.first_seq, merged.end_seq) == (1, infos[-1].end_seq)
    assert merged.entries == len(entries)
    (tmp_path / "merged").rename(tmp_path / f"{merged.content_id}.seg")
    state = state_of(tmp_path, [merged])
    state.store.segment(merged.content_id).check()
    check_reads(state, entries)
    state.store.close()
    again = merge(
        tmp_path / "merged", [(tmp_path / f"{merged.content_id}.seg", merged)],
        start=b"", end=None, kept=None,
    )  # fmt: skip
    assert again is not None
    assert again.entries == merged.entries


def dropping(seed: int) -> Kept:
    """Positions that stay, by chance; the same whenever it is asked."""

    def kept(key: bytes, seqs: list[int], timestamps: list[int], *_: Any) -> list[int]:
        assert seqs == sorted(seqs)
        assert timestamps == sorted(timestamps)
        if random.Random(key + bytes([seed])).random() < 0.3:
            return []
        return [at for at, seq in enumerate(seqs) if random.Random(seq * 31 + seed).random() < 0.6]

    return kept


@pytest.mark.parametrize("seed", range(4))
def test_x8_x13_invisible_entries_and_entries_outside_the_span_are_dropped(
    tmp_path: Path, seed: int
) -> None:
    inputs, entries = inputs_of(tmp_path, seed, 600)
    kept = dropping(seed)
    start, end = [(b"", None), (b"key-000003", None), (b"", b"key-000040"),
                  (b"key-000002", b"key-004000")][seed]  # fmt: skip
    by_key: dict[bytes, list[Entry]] = {}
    for entry in entries:
        if entry.key >= start and (end is None or entry.key < end):
            by_key.setdefault(entry.key, []).append(entry)
    expected = [
        mine[at]
        for key, mine in by_key.items()
        for at in kept(key, [e.seq for e in mine], [e.timestamp_ms for e in mine], [], [])
    ]
    expected.sort(key=lambda entry: entry.seq)
    merged = merge(tmp_path / "merged", inputs, start=start, end=end, kept=kept)
    assert merged is not None
    (tmp_path / "merged").rename(tmp_path / f"{merged.content_id}.seg")
    state = state_of(tmp_path, [merged])
    state.store.segment(merged.content_id).check()
    assert merged.entries == len(expected) < len(entries)
    assert (merged.first_seq, merged.end_seq) == (1, inputs[-1][1].end_seq)
    check_reads(state, expected)


def test_nothing_is_left_of_segments_that_nobody_sees(tmp_path: Path) -> None:
    inputs, _ = inputs_of(tmp_path, 1, 50)
    for start, kept in ((b"", lambda *_: []), (b"l", None)):
        assert merge(tmp_path / "merged", inputs, start=start, end=None, kept=kept) is None
        assert not (tmp_path / "merged").exists()


@pytest.mark.slow
def test_x13_a_merge_makes_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    inputs, _ = inputs_of(tmp_path)
    made = [merge(tmp_path / "a", inputs, start=b"", end=b"key-005000", kept=None)]
    for name in ("b", "c"):
        made.append(Merger().merge(task(tmp_path / name, inputs, end=b"key-005000")))
    assert made[0] is not None
    assert made[0] == made[1] == made[2]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()


@pytest.mark.slow
def test_S12_a_damaged_input_is_named_and_not_merged_over(tmp_path: Path) -> None:
    inputs, _ = inputs_of(tmp_path, 1, 200)
    path, info = inputs[2]
    whole = path.read_bytes()
    path.write_bytes(whole[:9000] + b"?" + whole[9001:])
    with pytest.raises(CorruptData, match="is damaged") as raised:
        Merger().merge(task(tmp_path / "merged", inputs))
    assert raised.value.fields["segment"] == info.content_id
    path.unlink()
    with pytest.raises(CorruptData, match="is missing"):
        Merger().merge(task(tmp_path / "merged", inputs))
    path.write_bytes(whole)
    with pytest.raises(Unavailable, match=r"merging segments failed: .*No such file"):
        Merger().merge(task(tmp_path / "none" / "merged", inputs))
    assert not (tmp_path / "merged").exists()


def test_a_merging_process_that_is_killed_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, _ = inputs_of(tmp_path, 1, 200)
    real = subprocess.Popen

    def dying(command: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], **options)

    monkeypatch.setattr(subprocess, "Popen", dying)
    with pytest.raises(Unavailable, match="ended with status -9"):
        Merger().merge(task(tmp_path / "merged", inputs))
    monkeypatch.setattr(subprocess, "Popen", real)
    stopped = Merger()
    stopped.stop()
    with pytest.raises(Unavailable):
        stopped.merge(task(tmp_path / "merged", inputs))
    assert not (tmp_path / "merged").exists()


# What is joined.


def of_size(first: SegmentInfo, sizes: Sequence[int]) -> list[SegmentInfo]:
    return [first._replace(content_id=str(at), size=size) for at, size in enumerate(sizes)]


FIRST = SegmentInfo("0", 0, 1, 1, 2, b"a", b"a", 0, 0)
MIB = limits.MIB


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], None),
        ([1] * 7, None),
        ([1] * 8, (0, 8)),
        ([2 * MIB, *[1] * 7], None),  # a large one is not written again for small ones
        ([2 * MIB, *[1] * 9], (1, 9)),
        ([*[2 * MIB] * 8, *[1] * 7], (0, 8)),
        ([*[2 * MIB] * 8, *[1] * 8], (8, 16)),  # the cheaper one first
        ([*[1] * 7, 64 * MIB, *[1] * 7], None),
        ([64 * MIB] * 32, None),  # full ones, within the bound
        ([*[512 * MIB] * 3, *[60 * MIB] * 30], (3, 11)),
    ],
)
def test_neighbours_of_one_size_are_joined_by_eight(
    sizes: list[int], expected: tuple[int, int] | None
) -> None:
    assert plan(of_size(FIRST, sizes), Rules.of({})) == expected


@pytest.mark.parametrize("kind", ["full", "small", "mixed"])
def test_a_range_holds_at_most_about_forty_segments(kind: str) -> None:
    """And each byte is written a few times only, however long it goes on."""
    rng = random.Random(7)
    manifest: list[SegmentInfo] = []
    made = written = 0
    for _ in range(3000):
        size = {"full": 60 * MIB, "small": 200_000, "mixed": rng.choice([10**5, 10**7, 6 * 10**7])}
        manifest += of_size(FIRST, [size[kind]])
        made += size[kind]
        while (found := plan(manifest, Rules.of({}))) is not None:
            total = sum(info.size for info in manifest[slice(*found)])
            manifest[slice(*found)] = of_size(FIRST, [total])
            written += total
        assert len(manifest) <= 40
    print(f"{kind}: {made >> 20} MiB, merges write {written / made:.2f} bytes for each")
    assert written < 5 * made


def test_a_block_that_fills_its_pages_wastes_little(tmp_path: Path) -> None:
    rng = random.Random(1)
    for kind in ("random", "text"):
        entries = []
        for seq in range(1, 20_000):
            text = b'{"value": %d}' % rng.randrange(10**9)
            value = rng.randbytes(128) if kind == "random" else text
            entries.append(Entry(b"%016d" % rng.randrange(10**6), seq, 1000, None, value, False))
        path, info = segment_of(tmp_path, entries)
        segment = Segment(path, info.content_id, BlockCache(1 << 20))
        stored = [len(segment._part(b"block", at)) for at in range(segment.footer.blocks)]
        segment.close()
        pages = sum(-(-(size + 16) // 4096) for size in stored if size > 2000)
        assert sum(stored) > 0.9 * 4096 * pages
        assert merge_plan.plan([info], Rules.of({})) is None


# What nobody sees any more.


def rules_of(*, compacted: int = 0, trimmed: int = 0, floors: dict[bytes, int]) -> Rules:
    """Rules with a compaction mark over all keys, a trim of all keys, and floors."""
    removal = Removal()
    assert removal.compact(b"", None, Compaction(compacted, 0)) is None
    assert removal.trim_spans([(b"", None, trimmed)]) is None
    assert removal.raise_floors(floors) is None
    return Rules.of({"removal": removal.to_wire(1), "last_timestamp_ms": 1})


@pytest.mark.parametrize("end", [None, b"key-000150"])
def test_S6_x8_x13_a_merge_in_its_process_drops_what_the_rules_hide(
    tmp_path: Path, end: bytes | None
) -> None:
    inputs, entries = inputs_of(tmp_path, 3, 400)
    entries = [entry for entry in entries if end is None or entry.key < end]
    compacted, trimmed = inputs[3][1].first_seq + 50, 200
    floors = {b"key-000003": 900, b"key-000000": 10**6}
    newest: dict[bytes, int] = {}
    for entry in entries:
        if entry.seq < compacted:
            newest[entry.key] = entry.seq
    expected = [
        entry for entry in entries
        if entry.seq >= max(trimmed, floors.get(entry.key, 0))
        and entry.seq >= (newest.get(entry.key, 0) if entry.seq < compacted else 0)
    ]  # fmt: skip
    rules = rules_of(compacted=compacted, trimmed=trimmed, floors=floors)
    task_ = Task(tmp_path / "merged", inputs, b"", end, rules, oldest=True)
    merged = Merger().merge(task_)
    assert merged is not None
    assert merged == run(task_._replace(path=tmp_path / "again"))
    assert merged.entries == len(expected) < len(entries) / 2
    (tmp_path / "merged").rename(tmp_path / f"{merged.content_id}.seg")
    state = state_of(tmp_path, [merged])
    state.store.segment(merged.content_id).check()
    check_reads(state, expected)


def test_superseded_entries_are_at_most_about_half_of_a_compacted_range() -> None:
    """The oldest are joined when those behind the first have its size together."""
    rules = rules_of(compacted=5, floors={})
    assert plan(of_size(FIRST, [5, 4]), rules) is None
    assert plan(of_size(FIRST, [5, 5]), rules) == (0, 2)
    assert plan(of_size(FIRST, [64 * MIB, 30 * MIB, 1, 40 * MIB]), rules) == (0, 4)
    assert plan(of_size(FIRST, [64 * MIB] * 2), rules_of(trimmed=5, floors={})) is None
    beyond = [FIRST, FIRST._replace(content_id="1", first_seq=5, end_seq=6)]
    assert plan(beyond, rules) is None


def test_only_files_that_stay_on_the_disk_are_merged() -> None:
    """The others do not count, and never join two runs of files that stay."""
    rows = of_size(FIRST, [MIB - 1] * 20)
    far = {info.content_id for info in rows[:9]}
    assert plan(rows, Rules.of({})) == (0, 8)
    assert plan(rows, Rules.of({}), lambda name: name not in far) == (9, 17)
    between = rows[7].content_id
    assert plan(rows[:15], Rules.of({}), lambda name: name != between) is None
    base = Base(5, 1, list(rows[:15]))
    assert due(base, (b"", None), ended=False, stays=lambda name: name != between) is None
