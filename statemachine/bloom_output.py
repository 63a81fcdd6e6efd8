"""Making Bloom filters (`bloom`) from hashes of keys."""

import numpy as np

from .bloom import BITS_MAX, BITS_MIN, BITS_PER_KEY
from .key_hashes import Hashes


def build_filter(hashes: Hashes) -> bytes:
    """Return the filter of the keys with these hashes."""
    size = BITS_MIN
    while size < min(BITS_MAX, len(hashes) * BITS_PER_KEY):
        size *= 2
    bits = np.zeros(size, np.bool_)
    bits[hashes.view(np.uint16) & (size - 1)] = True  # four probes: the quarters of each number
    return np.packbits(bits, bitorder="little").tobytes()
