"""How the values of a segment are compressed: decided by trial on a sample.

Similar values gain from a dictionary if blocks are small against what repeats. Values that do not
compress are kept as they are, which is cheaper to write and to read.
"""

from collections.abc import Sequence
from typing import Final

import zstandard

from ..client.protocol import limits
from .segment_block import LEVEL, PLAIN, RAW, WITH_DICTIONARY, Codec

SAMPLE_BYTES: Final = 256 * limits.KIB
_SMALL_BYTES: Final = limits.KIB
"""Values larger than this on average get no dictionary."""
_DICTIONARY_BYTES: Final = 16 * limits.KIB
_TRAINED_MIN: Final = 256
"""The least number of values from which a dictionary can be trained."""


def choose_codec(sample: Sequence[bytes | None], value_gain: int) -> Codec:
    """Return the codec for a segment with these sample values (`Codec` has `value_gain`).

    The same sample gives the same codec.
    """
    values = [value for value in sample if value]
    blocks = _blocks(values)
    size = sum(map(len, blocks))
    plain = _compressed(blocks, None)
    if plain > size - size // value_gain:
        return Codec(RAW, None)
    if len(values) >= _TRAINED_MIN and size <= _SMALL_BYTES * len(values):
        dictionary = _train(values[::2])
        if dictionary is not None:
            others = _blocks(values[1::2])
            small = _compressed(others, dictionary)
            if small < _compressed(others, None) * 19 // 20:
                return Codec(WITH_DICTIONARY, dictionary.as_bytes(), value_gain=value_gain)
    return Codec(PLAIN, None, value_gain=value_gain)


def evenly(count: int, size: int) -> range:
    """Return the positions of a sample of `count` entries that have `size` bytes together."""
    wanted = count * SAMPLE_BYTES // max(size, SAMPLE_BYTES)
    return range(0, count, max(1, count // max(1, wanted)))


def _train(values: Sequence[bytes]) -> zstandard.ZstdCompressionDict | None:
    try:
        # Given k and d avoid a search: 10 ms instead of 500.
        return zstandard.train_dictionary(_DICTIONARY_BYTES, list(values), k=256, d=8)
    except zstandard.ZstdError:  # the values have nothing in common
        return None


def _compressed(blocks: Sequence[bytes], dictionary: zstandard.ZstdCompressionDict | None) -> int:
    compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=dictionary)
    return sum(len(compressor.compress(block)) for block in blocks)


def _blocks(values: Sequence[bytes]) -> list[bytes]:
    joined = b"".join(values)
    step = limits.segment_block_bytes
    return [joined[at : at + step] for at in range(0, len(joined), step)]
