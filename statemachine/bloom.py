"""Bloom filters over keys: ten bits a key, four probes, 1.2 percent false positives.

The probes are the halves of two CRCs of different polynomials. These are C functions of a key,
unlike any keyed hash of the library, and need no arithmetic afterwards. So a filter has at most
2^16 bits, and a segment has a filter for every few thousand keys, which also bounds a reader's
memory. Seven probes would be the best for ten bits, 0.8 percent, at twice the cost of building. A
client that chooses colliding keys makes reads of absent keys slower, nothing else.
"""

import zlib
from typing import Final

import google_crc32c

BITS_PER_KEY: Final = 10
BITS_MAX: Final = 1 << 16
KEYS_MAX: Final = BITS_MAX // BITS_PER_KEY
"""The most keys of one filter."""
BITS_MIN: Final = 64
_one = google_crc32c.value
_other = zlib.crc32


def may_contain(table: bytes, key: bytes) -> bool:
    """Return False only when the filter was surely not built of the key."""
    mask = len(table) * 8 - 1
    one, other = _one(key), _other(key)
    for half in (one, one >> 16, other, other >> 16):
        place = half & mask & 0xFFFF
        if not table[place >> 3] & 1 << (place & 7):
            return False
    return True
