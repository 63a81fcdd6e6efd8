"""A Bloom filter over keys: ten bits a key, seven probes, about one percent false positives.

Probes are h1 + i * h2 (Kirsch and Mitzenmacher, ESA 2006), with two CRCs of different polynomials
for the hashes: both are C functions of a key, which no keyed hash of the library is. Whoever
chooses keys to collide makes reads of absent keys slower, nothing else.
"""

import zlib
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import add, mod, sub
from typing import Final

import google_crc32c

BITS_PER_KEY: Final = 10
_PROBES: Final = 7
_first = google_crc32c.value
_step = zlib.crc32


def build(keys: Sequence[bytes]) -> bytes:
    """The filter of these keys. All its loops are in C: it is built of every key of a segment."""
    size = max(64, len(keys) * BITS_PER_KEY + 7 & ~7)
    bits = bytearray(b"0" * size)  # one character a bit, the highest first, as int() reads them
    at = list(map(_first, keys))
    steps = list(map(_step, keys))
    for _ in range(_PROBES):
        places = map(sub, repeat(size - 1), map(mod, at, repeat(size)))
        deque(map(bits.__setitem__, places, repeat(ord("1"))), maxlen=0)
        at = list(map(add, at, steps))
    return int(bits, 2).to_bytes(size // 8, "little")


def may_contain(table: bytes, key: bytes) -> bool:
    """False only when the key is surely not among those the filter was built of."""
    size = len(table) * 8
    at, step = _first(key), _step(key)
    for _ in range(_PROBES):
        place = at % size
        if not table[place >> 3] & 1 << (place & 7):
            return False
        at += step
    return True
