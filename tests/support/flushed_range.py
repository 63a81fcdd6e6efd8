"""A range's state over real segment files, for tests of reads without a node."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.merge_process import Task, run
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segment_writer import build
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.visibility import Rules


class FlushedRange:
    """A range's state, filled and flushed in this thread, with a cache for hardly a block."""

    def __init__(self, root: Path, *, cache_bytes: int = 1) -> None:
        (root / "files").mkdir()
        self.root = root
        self.store = SegmentStore(root / "files")
        self.store._blocks = BlockCache(cache_bytes)
        self.state = RangeState(start=b"", end=None, store=self.store)
        self.rng = random.Random(1)
        self.stopped = False
        self.descriptor = SimpleNamespace(to_wire=dict)
        self.gid = SimpleNamespace(range_id=1)

    def apply(self, kind: int, payload: object) -> Any:
        index = self.state.applied_index + 1
        return self.state.apply(index, 1, commands.encode(kind, 1000 * index, payload)).replies

    def append(self, keys: list[bytes], value_bytes: int = 100) -> None:
        values = [self.rng.randbytes(value_bytes) for _ in keys]
        data = encode_batch(keys, values, producer=0, epoch=1, low=1, numbers=1)
        self.apply(commands.APPEND, [data])

    def flush(self) -> None:
        frozen = self.state.freeze()
        assert frozen is not None
        info = build(self.root / "new", frozen.memtable.first_seq, list(frozen.sources()))
        self.store.add(self.root / "new", info.content_id)
        self.state.flushed(self.state.base_with(frozen, info))

    def merge(self, begin: int, end: int) -> None:
        inputs = self.state.durable_base.manifest[begin:end]
        rules = Rules.of(self.state.durable_base.tables)
        files = [(self.store.path(info.content_id), info) for info in inputs]
        merged = run(Task(self.root / "merged", files, b"", None, rules, begin == 0))
        assert merged is not None
        self.store.add(self.root / "merged", merged.content_id)
        self.state.merged(self.state.base_merged(inputs, merged))
        for gone in self.store.forget_except(info.content_id for info in self.state.manifest):
            self.store.remove(gone)
