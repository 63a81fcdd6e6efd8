"""Every answer that carries entries or keys keeps to the rule of `statemachine.room`.

Each producer of pages reads each shape of entries, from memory, from files and from both. Each page
is packed as a frame, measured, and compared with what the rule allows.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from loose_operations import asked

from lognode.client.pages import entries_of
from lognode.client.protocol import OPERATIONS, chunks, frame, frames, limits
from lognode.client.protocol.reads import FOLLOW
from lognode.client.protocol.records import encode_batch
from lognode.client.protocol.types import Entry, Headers
from lognode.node.serving import reads
from lognode.node.serving.follow import Follow
from lognode.statemachine import commands, segment_output
from lognode.statemachine.merge_process import Task, run
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.visibility import Rules

Record = tuple[bytes, bytes | None, Headers | None]
Body = dict[str, Any]
KEY = limits.key_bytes_max
HEADERS = {b"%02d" % at: bytes(limits.header_bytes_max // 32 - 2) for at in range(32)}
LARGEST: Record = (b"k" * KEY, bytes(limits.value_bytes_max), HEADERS)
AROUND_BYTES = 256
"""What an answer has beside its entries, on these ranges: names, positions, the head of a frame."""
LARGEST_ENTRY_BYTES = limits.value_bytes_max + limits.header_bytes_max + KEY + 512


def keyed(at: int) -> bytes:
    """One of the longest keys."""
    return b"%06d" % at + bytes(KEY - 6)


def mixture() -> list[Record]:
    """Entries of all sizes, some with headers, some without a value."""
    rng = random.Random(7)
    sizes = (0, 1, 30, 3_000, 300_000, limits.value_bytes_max)
    weights = (20, 20, 40, 15, 1, 1)
    return [
        (
            keyed(rng.randrange(9)) if rng.random() < 0.2 else b"k%d" % rng.randrange(9),
            None if rng.random() < 0.1 else bytes(rng.choices(sizes, weights)[0]),
            HEADERS if rng.random() < 0.2 else {b"a": b"b"} if rng.random() < 0.2 else None,
        )
        for _ in range(600)
    ]


SHAPES: dict[str, list[Record]] = {
    "largest": [LARGEST] * 12,
    "largest values": [(b"k%02d" % at, bytes(limits.value_bytes_max), None) for at in range(12)],
    "smallest": [(b"k", b"", None)] * 10_000,
    "smallest, of many keys": [(b"%d" % at, b"", None) for at in range(10_000)],
    "largest keys": [(keyed(at), b"", None) for at in range(10_000)],
    "largest headers": [(b"k", b"", HEADERS)] * 3_000,
    "largest headers, of many keys": [(b"%d" % at, b"", HEADERS) for at in range(3_000)],
    "tombstones": [(keyed(1), None, None)] * 10_000,
    "mixture": mixture(),
}


class Stored:
    """A range of one replica, which is read without a node."""

    def __init__(self, root: Path) -> None:
        (root / "files").mkdir()
        self.root = root
        self.store = SegmentStore(root / "files")
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.stopped = self.is_sealed = False
        self.descriptor = SimpleNamespace(to_wire=dict)
        self.gid = SimpleNamespace(range_id=1)
        self.group = SimpleNamespace(staleness_s=0.0)

    @property
    def applied_index(self) -> int:
        return self.state.applied_index

    def append(self, records: list[Record]) -> None:
        """In batches as a client makes them."""
        batch: list[Record] = []
        size = 0
        for record in records:
            key, value, headers = record
            own = len(key) + len(value or b"") + sum(map(len, (headers or {}).values()))
            if batch and (size + own > limits.batch_bytes_max or len(batch) == 2_500):
                self._apply(batch)
                batch, size = [], 0
            batch.append(record)
            size += own
        self._apply(batch)

    def _apply(self, batch: list[Record]) -> None:
        keys, values, headers = zip(*batch, strict=True)
        data = encode_batch(
            list(keys), list(values), producer=0, epoch=1, low=1, numbers=1, headers=list(headers)
        )
        command = commands.encode(commands.APPEND, 1_000 + self.applied_index, [data])
        (reply,) = self.state.apply(self.applied_index + 1, 1, command).replies or ()
        assert reply["status"] == "ok"

    def flush(self) -> None:
        frozen = self.state.freeze()
        assert frozen is not None
        info = build(self.root / "new", frozen.memtable.first_seq, list(frozen.sources()))
        self.store.add(self.root / "new", info.content_id)
        self.state.flushed(self.state.base_with(frozen, info))


def stored(root: Path, records: list[Record], home: str) -> Stored:
    """The records in memory, in a file, or in both."""
    made = Stored(root)
    cut = {"memory": 0, "file": len(records), "both": len(records) // 2}[home]
    if cut:
        made.append(records[:cut])
        made.flush()
    if cut < len(records):
        made.append(records[cut:])
    return made


def expected(records: list[Record]) -> list[Entry]:
    """The records as entries; timestamps are not compared."""
    return [
        Entry(key, seq, 0, headers, value) for seq, (key, value, headers) in enumerate(records, 1)
    ]


def by_key(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.key, entry.seq))


def ask(made: Stored, op: str, **body: Any) -> tuple[Body, int]:
    """An answer as it arrives, and its bytes in the frame."""
    operation = OPERATIONS[op]
    answer = asyncio.run(reads.READS[operation](made, asked(operation, **body)))  # type: ignore[arg-type]
    return arrived(answer)


def arrived(answer: Body) -> tuple[Body, int]:
    size = len(frame.encode(1, frames.OK, answer))
    (event,) = frame.Decoder().feed(frame.encode(1, frames.OK, answer))
    assert isinstance(event, frame.Frame), event
    return event.body, size


def without_time(entries: list[Entry]) -> list[Entry]:
    return [
        Entry(e.key, e.seq, 0, e.headers and dict(e.headers), e.value, e.snapshot) for e in entries
    ]


def check_size(count: int, size: int, bytes_max: int) -> None:
    """The rule."""
    assert size <= limits.frame_bytes_max - LARGEST_ENTRY_BYTES, "one largest entry more fits too"
    if count > 1:
        assert size <= bytes_max + AROUND_BYTES


def scanned(made: Stored, key: bytes, bytes_max: int, *, reverse: bool) -> Iterator[Entry]:
    start, end, more = 1, None, True
    while more:
        page, size = ask(
            made, "scan", key=key, start=start, end=end, bytes=bytes_max, reverse=reverse
        )
        entries, more = entries_of(page), page["more"]
        assert entries, "a page has at least one entry"
        check_size(len(entries), size, bytes_max)
        yield from entries
        if reverse:
            end = page["next"]
        else:
            start = page["next"]


def spanned(made: Stored, bytes_max: int) -> Iterator[Entry]:
    start, more = 1, True
    while more:
        page, size = ask(made, "read_span", start=start, bytes=bytes_max)
        assert page["next"] > start
        start, more = page["next"], page["more"]
        entries = entries_of(page)
        check_size(len(entries), size, bytes_max)
        yield from entries


def exported(made: Stored, bytes_max: int) -> Iterator[Entry]:
    position: Any = None
    while True:
        page, size = ask(made, "export", position=position, bytes=bytes_max)
        assert position is None or page["position"] != position, "each page gets further"
        entries = entries_of(chunks.unpacked(page))
        check_size(len(entries), size, bytes_max)
        yield from entries
        position = page["position"]
        if position is None:
            return


def followed(made: Stored, body: Body, count: int) -> list[Entry]:
    found: list[Entry] = []

    async def run() -> None:
        follow = Follow(made, SimpleNamespace(body=asked(FOLLOW, **body)))  # type: ignore[arg-type]
        await follow._look_for_unread()
        more = True
        while more:
            page, more = await follow._next_page()
            push, size = arrived(follow._push_body(page, caught_up=not more))
            entries = entries_of(push["page"])
            positions = push["next"] if type(push["next"]) is dict else {}
            check_size(len(entries), size - len(msgpack.packb(positions)),
                       limits.page_bytes_default)  # fmt: skip
            found.extend(entries)
        assert len(found) == count

    asyncio.run(run())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "home", ["memory", "file", pytest.param("both", marks=pytest.mark.by_hand)]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_page_of_each_read_keeps_to_its_limits(tmp_path: Path, shape: str, home: str) -> None:
    records = SHAPES[shape]
    made, entries = stored(tmp_path, records, home), expected(records)
    ordered, keys = by_key(entries), sorted({key for key, _, _ in records})
    for bytes_max in (limits.page_bytes_default, limits.page_bytes_max):
        assert without_time(list(spanned(made, bytes_max))) == entries
        assert by_key(without_time(list(exported(made, bytes_max)))) == ordered
        for key in keys[:3]:
            own = [entry for entry in entries if entry.key == key]
            for reverse in (False, True):
                found = list(scanned(made, key, bytes_max, reverse=reverse))
                assert without_time(found) == (own[::-1] if reverse else own)
    for key in keys[:3]:
        (last,) = entries_of(ask(made, "latest", key=key)[0])
        assert without_time([last]) == [entry for entry in entries if entry.key == key][-1:]
    wanted = dict.fromkeys(keys[:3000], 1)
    own = [entry for entry in ordered if entry.key in wanted]
    assert by_key(without_time(followed(made, {"keys": wanted}, len(own)))) == own
    assert without_time(followed(made, {"prefix": b""}, len(entries))) == entries


@pytest.mark.parametrize("home", ["memory", "file", "both"])
def test_pages_of_the_longest_keys_fit_a_frame(tmp_path: Path, home: str) -> None:
    made = stored(tmp_path, SHAPES["largest keys"], home)
    found: list[bytes] = []
    after, more = None, True
    while more:
        page, size = ask(made, "keys", start_after=after)
        assert page["keys"]
        assert size <= limits.page_bytes_max + KEY + AROUND_BYTES
        found += page["keys"]
        after, more = page["after"], page["more"]
    assert found == [keyed(at) for at in range(10_000)]
    weights, size = ask(made, "layout")
    assert size <= 520 * (KEY + 16)
    assert sum(bytes_ for _, bytes_ in weights["weights"]) > 0


def test_a_page_takes_the_entries_that_its_limits_allow_and_no_fewer(tmp_path: Path) -> None:
    made = stored(tmp_path, [(b"k", bytes(100_000), HEADERS)] * 30, "both")
    for op, where in (("scan", {"key": b"k"}), ("read_span", {}), ("export", {})):
        for bytes_max, count in ((1, 1), (150_000, 1), (250_000, 2), (1 << 20, 10)):
            page, _ = ask(made, op, bytes=bytes_max, **where)
            found = entries_of(chunks.unpacked(page) if op == "export" else page)
            assert len(found) == count, (op, bytes_max)
        page, _ = ask(made, op, bytes=1 << 20, limit=3, **where)
        assert len(entries_of(chunks.unpacked(page) if op == "export" else page)) == 3


def test_blocks_of_a_file_count_headers(tmp_path: Path) -> None:
    made = stored(tmp_path, SHAPES["largest headers"], "file")
    segment = made.store.segment(made.state.manifest[0].content_id)
    entry_bytes = LARGEST_ENTRY_BYTES - limits.value_bytes_max - KEY
    memory = [segment.block(at).size for at in range(segment.footer.blocks)]
    assert max(memory) <= 3 * (2 * limits.segment_block_bytes + entry_bytes)
    assert segment.footer.data_bytes >= 3_000 * limits.header_bytes_max


@pytest.mark.slow
def test_a_file_of_an_earlier_version_with_large_blocks_is_read_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions did not count headers: blocks of 12 MB in memory."""
    records = SHAPES["largest headers"]
    made = Stored(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(segment_output, "headers_bytes", lambda headers: 0)
        for begin in (0, 2_500):
            made.append(records[begin : begin + 2_500])
            made.flush()
    old = made.state.manifest
    assert made.store.segment(old[0].content_id).block(0).size > 10 * limits.MIB
    entries = expected(records)
    for bytes_max in (limits.page_bytes_default, limits.page_bytes_max):
        assert without_time(list(exported(made, bytes_max))) == entries
        assert without_time(list(spanned(made, bytes_max))) == entries
        assert without_time(list(scanned(made, b"k", bytes_max, reverse=False))) == entries
    for info in old:
        made.store.doubt([info.content_id])  # a process opens a file once
    files = [(made.store.path(info.content_id), info) for info in old]
    merged = run(Task(tmp_path / "merged", files, b"", None, Rules.of({}), True))
    assert merged is not None
    made.store.add(tmp_path / "merged", merged.content_id)
    made.state.merged(made.state.base_merged(old, merged))
    assert made.store.segment(merged.content_id).block(0).size < limits.MIB
    assert without_time(list(exported(made, limits.page_bytes_max))) == entries
