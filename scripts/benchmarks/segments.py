"""Building segments and merging them: processor time a record, bytes on disk, and a lookup."""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lognode.client.protocol.records import encode_batch
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.merge import merge
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import SegmentInfo, Source, build

_BATCH = 500
_WORDS = 2_000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench segments", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="size of a segment")
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory:
        for kind in ("random", "words"):
            _measure(Path(directory), kind, options)
    return 0


def _measure(directory: Path, kind: str, options: argparse.Namespace) -> None:
    rng = random.Random(1)
    sources = _sources(rng, _values(rng, kind, options.value_bytes), options.records)
    path = directory / kind
    info: SegmentInfo | None = None
    costs = []
    for _ in range(options.repeats):
        begun = time.process_time()
        info = build(path, 1, sources)
        costs.append((time.process_time() - begun) / options.records * 1e6)
    assert info is not None
    raw = options.records * (16 + options.value_bytes)
    print(f"{kind}: build {min(costs):.2f} us a record, {info.size / raw:.2f} bytes a byte")
    _look_up(path, info, rng, options.records)
    parts, seq, size = [], 1, max(1, len(sources) // 8)
    for at in range(0, len(sources), size):
        part = directory / f"{kind}-{at}"
        parts.append((part, build(part, seq, sources[at : at + size])))
        seq = parts[-1][1].end_seq
    begun = time.process_time()
    merged = merge(directory / "merged", parts, start=b"", end=None, kept=None)
    seconds = time.process_time() - begun
    assert merged is not None
    assert merged.entries == info.entries
    print(f"{kind}: merge of {len(parts)} {seconds / merged.entries * 1e6:.2f} us a record")


def _look_up(path: Path, info: SegmentInfo, rng: random.Random, records: int) -> None:
    begun = time.perf_counter()
    segment = Segment(path, info.content_id, BlockCache(0))
    opened = time.perf_counter() - begun
    times = []
    for _ in range(2_000):
        key = b"%016d" % rng.randrange(records)
        begun = time.perf_counter()
        segment.last_seq(key)
        times.append((time.perf_counter() - begun) * 1e6)
    segment.close()
    middle, slow = statistics.median(times), sorted(times)[len(times) * 99 // 100]
    print(
        f"  open {opened * 1e3:.1f} ms, last seq of a key with no block in the cache: "
        f"p50 {middle:.0f} us, p99 {slow:.0f} us"
    )


def _values(rng: random.Random, kind: str, size: int) -> Callable[[], bytes]:
    words = [rng.randbytes(3).hex().encode() for _ in range(_WORDS)]
    if kind == "random":
        return lambda: rng.randbytes(size)
    return lambda: b" ".join(rng.choices(words, k=size // 7 + 1))[:size]


def _sources(rng: random.Random, value: Callable[[], bytes], records: int) -> list[Source]:
    """Return batches as a range keeps them: keys at random, 16 bytes each."""
    sources = []
    for at in range(0, records, _BATCH):
        keys = [b"%016d" % rng.randrange(records) for _ in range(min(_BATCH, records - at))]
        data = encode_batch(keys, [value() for _ in keys], producer=1, epoch=1, low=1, numbers=at)
        sources.append(Source(data, None, 1_000 + at))
    return sources
