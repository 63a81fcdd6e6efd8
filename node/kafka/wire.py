"""The values of Kafka's protocol, before its flexible versions: numbers, texts, bytes and arrays.

A reader believes no length before it is checked against the bytes that are left, and reads a
bounded number of elements of arrays. So the memory that a request costs has a bound.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_NULL: Final = -1
ELEMENTS_MAX: Final = 10_000
"""The most elements of all arrays of a request together: topics, partitions, names, settings."""


class Malformed(Exception):
    """A request breaks the protocol. Kafka closes the connection then, and so does this node."""


class TooMany(Malformed):
    """A request has more elements than the reader allows."""


class Reader:
    """Reads the values of a request one after another. Every method raises Malformed.

    `elements_max`: the most elements that all arrays of the request have together.
    """

    def __init__(self, data: bytes, elements_max: int = ELEMENTS_MAX) -> None:
        self._data = data
        self._elements_left = elements_max
        self._at = 0

    def int8(self) -> int:
        """Return a number of 8 bits."""
        return self._number(_INT8)

    def int16(self) -> int:
        """Return a number of 16 bits."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Return a number of 32 bits."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Return a number of 64 bits."""
        return self._number(_INT64)

    def flag(self) -> bool:
        """Return a boolean."""
        return self.int8() != 0

    def text(self) -> str:
        """Return a text."""
        found = self.nullable_text()
        if found is None:
            raise Malformed("a text is null")
        return found

    def nullable_text(self) -> str | None:
        """Return a text or None."""
        size = self.int16()
        if size == _NULL:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        """Return bytes or None."""
        size = self.int32()
        return None if size == _NULL else self._take(size)

    def array(self, read: Callable[[], T], least: int) -> list[T]:
        """Return an array; a null array counts as empty. Each element has `least` bytes or more."""
        return self.nullable_array(read, least) or []

    def nullable_array(self, read: Callable[[], T], least: int) -> list[T] | None:
        """Return an array or None. Each element has `least` bytes or more."""
        count = self.int32()
        if count == _NULL:
            return None
        if not 0 <= count <= (len(self._data) - self._at) // least:
            raise Malformed(f"an array has {count} elements, more than bytes are left")
        self._elements_left -= count
        if self._elements_left < 0:
            raise TooMany("the request names too many topics and partitions. Send several requests")
        return [read() for _ in range(count)]

    def _number(self, form: struct.Struct) -> int:
        try:
            (found,) = form.unpack_from(self._data, self._at)
        except struct.error:
            raise Malformed("the request ends early") from None
        self._at += form.size
        return int(found)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Malformed(f"a field has {size} bytes, and the request ends early")
        found = self._data[self._at : end]
        self._at = end
        return found


class Writer:
    """Writes the values of an answer one after another."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> None:
        """Write a number of 8 bits."""
        self._parts.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        """Write a number of 16 bits."""
        self._parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        """Write a number of 32 bits."""
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        """Write a number of 64 bits."""
        self._parts.append(_INT64.pack(value))

    def flag(self, value: bool) -> None:
        """Write a boolean."""
        self.int8(int(value))

    def text(self, value: str | None) -> None:
        """Write a text or null."""
        if value is None:
            self.int16(_NULL)
            return
        data = value.encode()
        self.int16(len(data))
        self._parts.append(data)

    def bytes_of(self, parts: Sequence[bytes]) -> None:
        """Write these bytes as one field."""
        self.int32(sum(map(len, parts)))
        self._parts += parts

    def bytes_field(self, value: bytes) -> None:
        """Write bytes."""
        self.bytes_of((value,))

    def array(self, values: Sequence[T], write: Callable[[T], None]) -> None:
        """Write an array."""
        self.int32(len(values))
        for value in values:
            write(value)

    def null_array(self) -> None:
        """Write a null array."""
        self.int32(_NULL)

    def done(self) -> bytes:
        """Return all that was written."""
        return b"".join(self._parts)
