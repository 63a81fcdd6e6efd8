"""What a memtable really holds: python -m benchmarks.filled_memtable RECORDS KEYS VALUE_BYTES.

Fills a memtable with batches as a node gets them, and prints by how much the process has grown over
the size that the memtable says it has.
"""

import gc
import random
import sys

from lognode.client.bench.shape import Shape
from lognode.client.protocol import limits
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine.column_cache import ColumnCache
from lognode.statemachine.memtable import Memtable

from .memory import own_and_files

_BATCH = 250
"""Records of a call of 1,000 that fall in one of four ranges."""


def main(records: int, keys: int, value_bytes: int) -> float:
    """Return the growth over the size."""
    shape, rng = Shape(keys, value_bytes=value_bytes), random.Random(1)
    memtable = Memtable(1, ColumnCache(limits.MIB))
    _add(memtable, shape, rng, 0)  # imports and caches
    gc.collect()
    before, size = own_and_files()["own"], memtable.size
    for number in range(records // _BATCH):
        _add(memtable, shape, rng, number)
    gc.collect()
    return (own_and_files()["own"] - before) / (memtable.size - size)


def _add(memtable: Memtable, shape: Shape, rng: random.Random, number: int) -> None:
    drawn = shape.draw(_BATCH, rng)
    data = encode_batch(
        drawn, shape.values(drawn, number * _BATCH), producer=1, epoch=1,
        low=number * _BATCH + 1, numbers=number * _BATCH + 1,
    )  # fmt: skip
    memtable.add(decode_batch(data), data, None, number)


if __name__ == "__main__":
    print(round(main(*map(int, sys.argv[1:])), 3))
