"""Reads of a segment in a tier: requests and bytes of cold polls, and of a read of everything.

The segment has keys at random and values that do not compress. Each poll asks for the newest entry
of a key whose blocks are in no cache; the first poll of a file also opens the file.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lognode.client.objects.directory import DirectoryStore
from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.node.tier.chunk_cache import ChunkCache
from lognode.node.tier.local_file import LocalFile
from lognode.node.tier.manifest import Held
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.tier_files import TierFiles
from lognode.node.tier.tier_store import TierStore
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.segment_reader import Segment
from lognode.statemachine.segment_writer import Source, build

_BATCH = 500
_POLLS = 50


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench coldreads", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="size of the segment")
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--chunks", default="32,64,128,256,512", help="sizes of chunks in KiB")
    options = parser.parse_args(arguments)
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(dir=".") as made:
        root = Path(made)
        sources = []
        for at in range(0, options.records, _BATCH):
            keys = [b"%016d" % rng.randrange(options.records) for _ in range(_BATCH)]
            values = [rng.randbytes(options.value_bytes) for _ in keys]
            data = encode_batch(keys, values, producer=1, epoch=1, low=1, numbers=at)
            sources.append(Source(data, None, 1_000 + at))
        info = build(root / "segment", 1, sources)
        file = StoredFile(Chain(1, 1), info.content_id, 1)
        store = TierStore(DirectoryStore(root / "tier"))
        local = LocalFile(root / "segment", info.content_id, info.size)
        local.check()
        for at, replaces in store.missing_parts(file, info.size):
            store.put_part(local, file, at, replace=replaces)
        local.close()
        print(f"a segment of {info.size / 1e6:.1f} MB, {info.entries} entries")
        for chunk in map(int, options.chunks.split(",")):
            held = Held(info.size, file.path)
            keys = [b"%016d" % rng.randrange(options.records) for _ in range(2 * _POLLS)]
            _measure(root, store, held, info.content_id, chunk, keys)
    return 0


def _measure(
    root: Path, store: TierStore, held: Held, content_id: str, chunk_kib: int, keys: list[bytes]
) -> None:
    firsts, others, opened = [], [], []
    for first, other in zip(keys[::2], keys[1::2], strict=True):
        files = _files(root, store, held, chunk_kib)
        segment = _segment(files, content_id)
        opened.append((files.requests, files.fetched_bytes))
        segment.last_seq(first)
        firsts.append((files.requests, files.fetched_bytes))
        segment.last_seq(other)
        others.append((files.requests - firsts[-1][0], files.fetched_bytes - firsts[-1][1]))
    files = _files(root, store, held, chunk_kib)
    segment = _segment(files, content_id)
    begun = time.perf_counter()
    for ordinal in range(segment.footer.blocks):
        segment.block(ordinal)
    seconds = time.perf_counter() - begun
    print(
        f"chunks of {chunk_kib} KiB: open {_mean(opened)}; first poll with the open "
        f"{_mean(firsts)}; a further poll {_mean(others)}; everything {files.requests} requests, "
        f"{files.fetched_bytes / held.size:.2f} bytes a byte, {held.size / seconds / 1e6:.0f} MB/s"
    )


def _files(root: Path, store: TierStore, held: Held, chunk_kib: int) -> TierFiles:
    with tempfile.TemporaryDirectory(dir=root) as cache:
        chunks = ChunkCache(
            Path(cache), memory_bytes_max=1 << 30, disk_bytes_max=0,
            chunk_bytes=chunk_kib * limits.KIB,
        )  # fmt: skip
        chunks.close()
    return TierFiles(store.objects, chunks, lambda _: held)


def _segment(files: TierFiles, content_id: str) -> Segment:
    file = files.open(content_id)
    assert file is not None
    segment = Segment(file, content_id, BlockCache(0))
    file.cache = None  # this thread waits for the store
    return segment


def _mean(found: Sequence[tuple[int, int]]) -> str:
    requests = statistics.mean(each for each, _ in found)
    return f"{requests:.1f} requests and {statistics.mean(n for _, n in found) / 1024:.0f} KiB"
