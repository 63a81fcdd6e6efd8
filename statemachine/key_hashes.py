"""The two CRCs of many keys at once, for Bloom filters.

A CRC is linear: each byte of a key contributes a number that depends on the byte and on how many
bytes follow, and the CRC is the exclusive or of all contributions and of the CRC of as many zeros.
Both CRCs of a byte are halves of one number here, so that a byte costs one look-up for both.
"""

import zlib
from functools import cache
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from .compiled import building
from .strings import Strings

Hashes = NDArray[np.uint64]
_STEP: Final = 16_384
"""The most keys that numpy hashes at a time, whose numbers stay in the processor's cache."""


def hash_keys(keys: Strings) -> Hashes:
    """Return crc32c of each key in the low half of a number, and crc32 in the high half."""
    if building is not None and len(keys):
        longest = int(keys.lengths.max())
        found = building.hash_keys(keys.data, keys.starts, keys.lengths, *_tables(longest))
        return np.frombuffer(found, np.uint64)
    steps = range(0, len(keys), _STEP)
    hashes = [_hash_step(keys.slice(at, at + _STEP)) for at in steps]
    return np.concatenate([np.zeros(0, np.uint64), *hashes])


def _hash_step(keys: Strings) -> Hashes:
    shortest, longest = int(keys.lengths.min()), int(keys.lengths.max())
    if shortest == longest and (np.diff(keys.starts) == longest).all():
        return _hash_rows(keys.data[slice(*keys.extent)].reshape(len(keys), longest))
    # Longest first, so that the keys with a byte so far from their end are the first ones.
    order = np.argsort(-keys.lengths, kind="stable")
    lengths = keys.lengths[order]
    ends = keys.starts[order] + lengths
    found = _zeros(longest)[lengths]
    longer = (-lengths).searchsorted(-np.arange(longest))
    for behind, count in enumerate(longer.tolist()):
        found[:count] ^= _contributions(behind)[keys.data[ends[:count] - (behind + 1)]]
    hashes = np.empty(len(keys), np.uint64)
    hashes[order] = found
    return hashes


def _hash_rows(rows: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> Hashes:
    """Return the hashes of keys of one length that lie side by side."""
    count, length = rows.shape
    hashes = np.full(count, _zeros(length)[length])
    for at in range(length):
        hashes ^= _contributions(length - 1 - at)[rows[:, at]]
    return hashes


def _hash(key: bytes) -> int:
    crc: int = google_crc32c.value(key)
    return crc | zlib.crc32(key) << 32


def _tables(longest: int) -> tuple[Hashes, Hashes]:
    """Return what bytes contribute, and the hashes of zeros, for keys up to a length."""
    return _tables_up_to(1 << longest.bit_length())


@cache
def _tables_up_to(longest: int) -> tuple[Hashes, Hashes]:
    return np.array([_contributions(behind) for behind in range(longest)]), _zeros(longest)


@cache
def _contributions(behind: int) -> Hashes:
    """Return what a byte contributes with so many bytes behind it, for each byte."""
    nothing, rest = _hash(bytes(behind + 1)), bytes(behind)
    numbers = [_hash(bytes((byte,)) + rest) ^ nothing for byte in range(256)]
    return np.array(numbers, np.uint64)


@cache
def _zeros(longest: int) -> Hashes:
    """Return the hashes of 0 to `longest` zeros."""
    return np.array([_hash(bytes(count)) for count in range(longest + 1)], np.uint64)
