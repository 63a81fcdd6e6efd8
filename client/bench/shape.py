"""Keys and values: zero-padded numbers, and values that can be checked from themselves."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Final

from ..protocol.errors import CorruptData, InvalidArgument
from ..protocol.limits import key_bytes_max, value_bytes_max
from .digits import drawn

key_bytes_default: Final = 16
value_bytes_default: Final = 128
_MARK_BYTES: Final = 9
_POOL_KEYS_MAX: Final = 1 << 20
_FILLS_BYTES_MAX: Final = 16 << 20
_FILLS_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Keys `0 .. keys - 1` as decimal numbers of `key_bytes`; values of `value_bytes`.

    A value is its key, the number of a fill, and the fill: random hexadecimal digits, which
    compress to half their size. `zipf` is the exponent of a Zipf distribution over the keys, 0 for
    a uniform one. Raises InvalidArgument when a key or a value would not fit.
    """

    keys: int
    key_bytes: int = key_bytes_default
    value_bytes: int = value_bytes_default
    zipf: float = 0.0
    seed: int = 1
    _pool: list[bytes] = field(init=False, repr=False)
    _weights: list[float] | None = field(init=False, repr=False)
    _fills: list[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not (len(str(self.keys - 1)) <= self.key_bytes <= key_bytes_max) or self.keys < 1:
            raise InvalidArgument(
                f"{self.keys} keys do not fit {self.key_bytes} bytes; a key has at most "
                f"{key_bytes_max} bytes. Give --key-bytes a larger size",
                what="keys",
            )
        room = self.value_bytes - self.key_bytes
        if not _MARK_BYTES <= room <= value_bytes_max - self.key_bytes:
            raise InvalidArgument(
                f"values have {self.value_bytes} bytes; {self.key_bytes + _MARK_BYTES} to "
                f"{value_bytes_max} bytes are allowed with keys of {self.key_bytes} bytes",
                what="value_bytes",
            )
        pool: list[bytes] = []
        weights = None
        if self.zipf > 0:
            if self.keys > _POOL_KEYS_MAX:
                raise InvalidArgument(
                    f"a Zipf distribution has {self.keys} keys; at most {_POOL_KEYS_MAX} "
                    "are allowed",
                    what="zipf",
                )
            pool = list(map(self.key, range(self.keys)))
            weights = list(accumulate(1 / (n + 1) ** self.zipf for n in range(self.keys)))
        object.__setattr__(self, "_pool", pool)
        object.__setattr__(self, "_weights", weights)
        object.__setattr__(self, "_fills", _fills(room, self.seed))

    @property
    def fills(self) -> int:
        """The number of different fills."""
        return len(self._fills)

    def key(self, number: int) -> bytes:
        """Return the key with a number."""
        return b"%0*d" % (self.key_bytes, number)

    def value(self, key: bytes, number: int) -> bytes:
        """Return the value of a key's record with this number."""
        return key + self._fills[number % len(self._fills)]

    def values(self, keys: Sequence[bytes], first: int) -> list[bytes]:
        """Return values of records numbered from `first`."""
        fills = self._fills
        at = first % len(fills)
        some = fills[at : at + len(keys)]
        while len(some) < len(keys):
            some += fills[: len(keys) - len(some)]
        return list(map(add, keys, some))

    def check(self, key: bytes, value: bytes | None) -> None:
        """Raise CorruptData unless the value is a complete value of this key."""
        at = self.key_bytes
        if value is not None and value[:at] == key:
            mark = value[at : at + _MARK_BYTES - 1]
            if mark.isdigit() and value[at:] == self._fills[int(mark) % len(self._fills)]:
                return
        raise CorruptData(f"key {key!r} holds {value!r:.80}, which no client wrote to the key")

    def draw(self, count: int, rng: random.Random) -> list[bytes]:
        """Return random keys."""
        if self._weights is not None:
            return rng.choices(self._pool, cum_weights=self._weights, k=count)
        # Built anew: fetching one of a million from memory takes twice as long.
        return drawn(rng.randbytes(8 * count), self.keys, self.key_bytes)

    def in_order(self, first: int, count: int) -> list[bytes]:
        """Return the keys from `first` on; after the last key the first one follows."""
        return [self.key(number % self.keys) for number in range(first, first + count)]

    def splits(self, ranges: int) -> list[bytes]:
        """Return the split keys of a log with this many ranges of equal key counts."""
        return sorted({self.key(self.keys * n // ranges) for n in range(1, ranges)} - {self.key(0)})


def _fills(size: int, seed: int) -> list[bytes]:
    """Return texts of `size` bytes, each beginning with its number."""
    count = max(1, min(_FILLS_MAX, _FILLS_BYTES_MAX // size))
    body = size - _MARK_BYTES
    digits = random.Random(seed).randbytes((count * body + 1) // 2).hex().encode()
    return [b"%08d:" % n + digits[n * body : (n + 1) * body] for n in range(count)]
