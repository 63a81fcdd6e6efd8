"""A Bloom filter over keys: ten bits a key, seven probes, under one percent false positives.

Probes are h1 + i * h2 over one 128-bit hash (Kirsch and Mitzenmacher, ESA 2006).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

BITS_PER_KEY: Final = 10
_PROBES: Final = 7


def build(keys: Iterable[bytes], count: int) -> bytes:
    """The filter of `count` keys."""
    bits = max(64, count * BITS_PER_KEY)
    table = bytearray((bits + 7) // 8)
    size = len(table) * 8
    for key in keys:
        first, step = _hash(key)
        for _ in range(_PROBES):
            at = first % size
            table[at >> 3] |= 1 << (at & 7)
            first += step
    return bytes(table)


def may_contain(table: bytes, key: bytes) -> bool:
    """False only when the key is surely not among those the filter was built of."""
    size = len(table) * 8
    first, step = _hash(key)
    for _ in range(_PROBES):
        at = first % size
        if not table[at >> 3] & 1 << (at & 7):
            return False
        first += step
    return True


def _hash(key: bytes) -> tuple[int, int]:
    digest = blake2b(key, digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
