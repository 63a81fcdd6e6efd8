"""The last seq of each Kafka partition: exact after any entries, and through freezes, splits,
merges and removals."""

import random
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lognode.client.protocol.key_partitions import prefix, stored
from lognode.client.protocol.records import encode_batch
from lognode.node.rules.first_base import first_base
from lognode.partitions.model import Descriptor, Span
from lognode.statemachine import commands, tails
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.unite import Parent, united

PARTITIONS = 6
EVERYTHING = Span(b"", None)


class Range:
    """A range of a log with partitions, and the last seqs as a model keeps them."""

    def __init__(self, root: Path, base: Base | None = None, span: Span = EVERYTHING) -> None:
        self.root = root
        (root / "files").mkdir(parents=True, exist_ok=True)
        self.store = SegmentStore(root / "files")
        first = first_base(Descriptor(1, 1, 1, span, (1,)), (), has_partitions=True)
        self.state = RangeState(
            start=span.start, end=span.end, store=self.store, base=base or first
        )
        self.model: dict[int, int] = {}

    def do(self, kind: int, payload: object) -> Any:
        index = self.state.applied_index + 1
        (reply,) = self.state.apply(index, 1, commands.encode(kind, 1, payload)).replies or ()
        return reply

    def append(self, *keys: bytes) -> None:
        first = self.state.next_seq
        reply = self.do(commands.APPEND, [packed(*keys)])
        assert reply["status"] == "ok"
        for seq, key in enumerate(keys, first):
            self.model[int.from_bytes(key[:2], "big")] = seq

    def flush(self) -> Base:
        frozen = self.state.freeze()
        assert frozen is not None
        info = None
        if len(frozen.memtable):
            info = build(self.root / "new", frozen.memtable.first_seq, list(frozen.sources()))
            self.store.add(self.root / "new", info.content_id)
        base = self.state.base_with(frozen, info)
        self.state.flushed(base)
        return base

    def told(self) -> dict[int, int]:
        assert self.state.tails is not None
        return self.state.tails.now(self.state.memtables())


def packed(*keys: bytes) -> bytes:
    return encode_batch(list(keys), [b"v"] * len(keys), producer=0, epoch=1, low=1, numbers=1)


def keys(rng: random.Random, count: int) -> list[bytes]:
    return [stored(b"%d" % rng.randrange(40), PARTITIONS) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_the_tails_are_the_last_seqs_whenever_they_are_asked(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    own = Range(tmp_path)
    for _ in range(40):
        own.append(*keys(rng, rng.randint(1, 30)))
        if rng.random() < 0.3:
            assert own.told() == own.model
        if rng.random() < 0.2:
            base = sent(own.flush())
            assert Range(tmp_path, base).told() == own.model
    assert own.told() == own.model


def sent(base: Base) -> Base:
    """The base as another node takes it."""
    body = msgpack.unpackb(msgpack.packb(base.to_wire()), strict_map_key=False)
    return received(body)


def test_many_entries_are_noted_while_they_come(tmp_path: Path) -> None:
    """A base with hundreds of thousands of entries never has to note them at once."""
    own = Range(tmp_path)
    batch = [stored(b"%d" % n, PARTITIONS) for n in range(9_000)]
    for _ in range(3):
        own.append(*batch)
    assert own.state.tails is not None
    assert own.state.tails._end > 9_000
    assert own.told() == own.model


def test_S6_tails_go_with_their_partitions_through_a_split_and_a_merge(tmp_path: Path) -> None:
    own = Range(tmp_path)
    own.append(*(prefix(partition) + b"k" for partition in (0, 3, 4, 1, 5)))
    own.do(commands.SEAL, 9)
    base = own.flush()
    left, right = clipped(base, b"", b"\0\3"), clipped(base, b"\0\3", None)
    assert rows(left) == {0: 1, 1: 4}
    assert rows(right) == {3: 2, 4: 3, 5: 5}
    # The right child goes on; a merge takes each partition from the parent that has it.
    grown = Range(tmp_path, sent(Base(1, 0, right.manifest, {**right.tables, "sealed": None})),
                  Span(b"\0\3", None))  # fmt: skip
    grown.append(prefix(3) + b"k")
    stale = Base(left.applied_index, 0, left.manifest,
                 {**left.tables, tails.TABLE: [[0, 1, 3], [1, 4, 1]]})  # fmt: skip
    base = united([Parent(b"", b"\0\3", stale), Parent(b"\0\3", None, grown.flush())], 1, 0)
    assert rows(base) == {0: 1, 1: 4, 3: 6, 4: 3, 5: 5}


def rows(base: Base) -> dict[int, int]:
    return dict(zip(*base.tables[tails.TABLE], strict=True))


def test_the_tail_stays_when_the_last_entry_is_removed(tmp_path: Path) -> None:
    own = Range(tmp_path)
    own.append(prefix(2) + b"a", prefix(2) + b"b")
    own.do(commands.TRIM_KEYS, [[prefix(2) + b"b", 9]])
    assert Range(tmp_path, sent(own.flush())).told() == {2: 2}


def test_a_restored_range_has_the_tails_of_its_entries(tmp_path: Path) -> None:
    own = Range(tmp_path)
    batch = packed(prefix(1) + b"a", prefix(2) + b"b")
    seqs = b"".join(seq.to_bytes(8, "little") for seq in (5, 9))
    assert own.do(commands.RESTORE, [20, [[1, seqs, batch]]])["status"] == "ok"
    assert own.told() == {1: 5, 2: 9}
    own.append(prefix(1) + b"c")
    assert own.told() == {1: 20, 2: 9}
    assert Range(tmp_path, sent(own.flush())).told() == {1: 20, 2: 9}


def test_keys_without_a_partition_do_no_harm(tmp_path: Path) -> None:
    """A client of another version may append a key without the bytes of a partition."""
    own = Range(tmp_path)
    own.append(b"a")
    own.append(prefix(1) + b"k", b"b")
    assert own.told() == {1: 2}


def test_a_range_of_a_log_without_partitions_has_no_tails(tmp_path: Path) -> None:
    state = RangeState(start=b"", end=None, store=SegmentStore(tmp_path), base=Base())
    assert state.tails is None
    batch = packed(b"k")
    state.apply(2, 1, commands.encode(commands.APPEND, 1, [batch]))
    frozen = state.freeze()
    assert frozen is not None
    assert tails.TABLE not in frozen.tables


@pytest.mark.parametrize(
    "table", [7, [], [[1]], [[1], [2], [3]], [[1], []], [[-1], [1]], [[1 << 16], [1]],
              [[1], [0]], [[1], ["1"]], [[True], [1]], {1: 2}],
)  # fmt: skip
def test_x6_a_base_of_another_node_with_bad_tails_is_refused(table: object) -> None:
    assert not tails.are_rows(table)
