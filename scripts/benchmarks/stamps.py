"""Keys and values that contain their due time: another process sees how long a record takes.

A value holds its key, the record's place among those of its key, its due time by the clock that all
processes of a machine share (`time.perf_counter`), and a CRC over all of that.
"""

import zlib
from dataclasses import dataclass, field

import lognode
from lognode.client.bench.shape import Shape

_DUE, _CRC = 16, 8
_TAIL = _DUE + _CRC


@dataclass(frozen=True, slots=True)
class Stamps:
    """Keys `0 .. keys - 1`; no decimal number of 16 digits is one of them.

    Keys are `step` apart: key n comes after all numbers that begin with the 15 digits of `n *
    step`. Raises InvalidArgument for values of under 49 bytes.
    """

    keys: int
    value_bytes: int = 128
    step: int = 1
    _shape: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_shape", Shape(self.keys, value_bytes=self.value_bytes - _TAIL))

    def key(self, number: int) -> bytes:
        """Return the key of a number."""
        return b"%015d~" % (number * self.step)

    def number(self, key: bytes) -> int:
        """Return the number of a key."""
        return int(key[:-1]) // self.step

    @property
    def fills(self) -> int:
        """How many records of a key have different places; then the places begin again."""
        return self._shape.fills

    def value(self, key: bytes, nth: int, due: float) -> bytes:
        """Return the value of a key's record with this place, from 0."""
        body = self._shape.value(key, nth) + b"%016x" % round(due * 1e9)
        return body + b"%08x" % zlib.crc32(body)

    def nth(self, key: bytes, value: bytes | None, near: int) -> int:
        """Return the place of a value among the records of its key: a value holds the place only
        modulo a number of thousands, and the place that is closest to `near` is taken.

        Raises CorruptData for a value of another shape.
        """
        mark, count = (value or b"")[len(key) : len(key) + 8], self._shape.fills
        if not mark.isdigit():
            raise lognode.CorruptData(f"key {key!r} holds {value!r:.80}, which no client wrote")
        ahead = (int(mark) - near) % count
        behind = near + ahead - count
        return behind if ahead > count // 2 and behind >= 0 else near + ahead

    def due(self, key: bytes, nth: int, value: bytes | None) -> float:
        """Return when the record was due.

        Raises CorruptData unless it is the whole one of that place.
        """
        if value is not None and len(value) == self.value_bytes:
            body, crc = value[:-_CRC], value[-_CRC:]
            if crc == b"%08x" % zlib.crc32(body) and body[:-_DUE] == self._shape.value(key, nth):
                return int(body[-_DUE:], 16) / 1e9
        raise lognode.CorruptData(f"key {key!r} holds {value!r:.80} as its record {nth}")
