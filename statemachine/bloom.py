"""Bloom filters over keys: ten bits a key, four probes, 1.2 percent false positives.

The probes are the halves of two CRCs of different polynomials: C functions of a key, which no
keyed hash of the library is, and no arithmetic after them. So a filter has at most 2^16 bits, and
a segment one for every few thousand keys, which also bounds what a reader holds. Seven probes
would be the best that ten bits can do, 0.8 percent, at twice the cost of building. Whoever
chooses keys to collide makes reads of absent keys slower, nothing else.
"""

import zlib
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import and_
from typing import Final

import google_crc32c

BITS_PER_KEY: Final = 10
_BITS_MAX: Final = 1 << 16
KEYS_MAX: Final = _BITS_MAX // BITS_PER_KEY
"""Of one filter."""
_BITS_MIN: Final = 64
_one = google_crc32c.value
_other = zlib.crc32


def build(keys: Sequence[bytes]) -> bytes:
    """The filter of these keys. All its loops are in C: it is built of every key of a segment."""
    size = _BITS_MIN
    while size < min(_BITS_MAX, len(keys) * BITS_PER_KEY):
        size *= 2
    bits = bytearray(b"0" * size)  # one character a bit
    for hashed in (_one, _other):
        places = array("H", array("I", map(hashed, keys)).tobytes())
        less = places if size == _BITS_MAX else map(and_, places, repeat(size - 1))
        deque(map(bits.__setitem__, less, repeat(ord("1"))), maxlen=0)
    bits.reverse()  # int() reads the highest first
    return int(bits, 2).to_bytes(size // 8, "little")


def may_contain(table: bytes, key: bytes) -> bool:
    """False only when the key is surely not among those the filter was built of."""
    mask = len(table) * 8 - 1
    one, other = _one(key), _other(key)
    for half in (one, one >> 16, other, other >> 16):
        place = half & mask & 0xFFFF
        if not table[place >> 3] & 1 << (place & 7):
            return False
    return True
