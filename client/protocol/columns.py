"""Unpack columns of scalars that another process packed.

A stream reads a column after its header with an unpacker that has no room for containers. So
reading stops at the first container, and makes no more elements than the header announced. A column
with few elements in few bytes is unpacked at once, which is faster and harmless (see `packed`).

All of this is C code. No Python runs per element.
"""

from itertools import chain, islice
from typing import Any, Final

import msgpack

from . import limits
from .native import native
from .packed import (
    NO_FORM,
    Census,
    container_bytes,
    direct_bytes_max,
    element_bytes,
    form_at,
    is_short,
    wrong,
)

_SLICE_BYTES: Final = 56 * limits.KIB
"""Bytes that a stream gives its unpacker at a time."""
few_max: Final = 1_024
few_bytes_max: Final = 64 * limits.KIB
"""A column with at most this many elements and bytes reserves at most 8 MB and takes at most 1
ms."""
_FLAT_MEMORY_MAX: Final = 6 * container_bytes + (4 * few_max + 16) * element_bytes
"""A batch of few bytes has four lists, each of few elements, among its fields."""
_FIELDS_MAX: Final = 15
_LARGE: Final = 64
"""A shorter column is checked element by element, in 15 us."""
_BYTES: Final = frozenset({bytes})


def column(data: bytes, count: int, *, none: bool = False) -> list[Any]:
    """Unpack an array of `count` bytes objects. With `none` an element may be None.

    Raises ValueError.
    """
    few = count <= few_max and len(data) <= few_bytes_max
    if len(data) <= direct_bytes_max or few or (count <= _LARGE and is_short(data, count + 1)):
        found = unpack_flat(data, count)
    else:
        stream = Scalars(data, _check_header(data, count))
        found = stream.take(count)
        stream.check_end()
    if len(found) != count:
        raise ValueError(f"the array has {len(found)} elements instead of {count}")
    if not all_are(bytes, found, none=none):
        raise ValueError("an element has another type")
    return found


def longest(data: bytes, count: int) -> int:
    """Return the length of the longest of `count` packed values. None is a value, of length 0.

    Raises ValueError for anything that `column` would not unpack.
    """
    found: int | None = None if native is None else native.longest(data, count)
    if found is None:
        found = max(map(len, filter(None, column(data, count, none=True))), default=0)
    return found


def all_are(kind: type, elements: list[Any], *, none: bool = False) -> bool:
    """Return whether each element is of exactly this type. With `none` an element may be None."""
    if native is not None:
        same: bool = native.all_are(kind, elements, none)
        return same
    kinds = list(map(type, elements))  # counting in a list is the fastest way in Python
    found = kinds.count(kind)
    return found == len(kinds) or (none and found + kinds.count(type(None)) == len(kinds))


class HeaderColumn:
    """The headers of a batch: an array of `count` elements, each nil or a map of bytes to bytes.

    The column is unpacked in steps. A MiB of headers at once would hold the loop for 30 ms.
    """

    step_records: Final = 256

    def __init__(self, data: bytes, count: int) -> None:
        self.count = count
        self.maps: list[dict[bytes, bytes] | None] = []
        """The elements unpacked so far."""
        self._data = data
        self._stream: Scalars | None = None

    def step(self) -> list[dict[bytes, bytes]]:
        """Unpack at most `step_records` more elements and return the maps among them.

        Raises ValueError. After an error the column must not be used any more.
        """
        if self._stream is None:
            self._stream = Scalars(
                self._data, _check_header(self._data, self.count), max_map_len=limits.headers_max,
                strict_map_key=False, object_pairs_hook=Census(_headers_memory(self.count)).pairs,
            )  # fmt: skip
        wanted = min(self.step_records, self.count - len(self.maps))
        found = self._stream.take(wanted)
        if len(found) != wanted:
            raise ValueError(f"the page ends after {len(self.maps) + len(found)} of {self.count}")
        maps = [each for each in found if each is not None]
        if not {dict}.issuperset(map(type, maps)):
            raise ValueError("an element is neither a map nor nil")
        if not _BYTES.issuperset(map(type, chain.from_iterable(maps))) or not _BYTES.issuperset(
            map(type, chain.from_iterable(map(dict.values, maps)))
        ):
            raise ValueError("a header is not bytes")
        self.maps += found
        if len(self.maps) == self.count:
            self._stream.check_end()
        return maps


class Scalars:
    """A stream of values. No value is a container with elements, unless `options` allow it."""

    def __init__(self, data: bytes, begin: int, end: int | None = None, **options: Any) -> None:
        room: dict[str, Any] = {"max_array_len": 0, "max_map_len": 0, "max_ext_len": 0}
        self._view = memoryview(data)[begin:end]
        self._fed = 0
        # A small buffer stays in the processor's cache. In a buffer as large as the data the first
        # touch of each page costs more than the copy.
        size = min(len(self._view), 2 * _SLICE_BYTES) or 1
        self._unpacker = msgpack.Unpacker(read_size=size, **{**room, **options})

    @property
    def position(self) -> int:
        """Bytes of the values taken so far."""
        found: int = self._unpacker.tell()
        return found

    def take(self, count: int) -> list[Any]:
        """Return the next `count` values, fewer at the end. Raises ValueError."""
        unpacker, view = self._unpacker, self._view
        try:
            found = list(islice(unpacker, count))
            while len(found) < count and self._fed < len(view):
                unpacker.feed(view[self._fed : self._fed + _SLICE_BYTES])
                self._fed += _SLICE_BYTES
                found += islice(unpacker, count - len(found))
        except ValueError:
            raise
        except Exception as error:  # msgpack raises many unrelated classes
            raise wrong(error) from None
        return found

    def check_end(self) -> None:
        """Raise ValueError when bytes are left."""
        if self.position != len(self._view):
            raise ValueError("bytes follow the end of the array")


def array_header(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return the number of elements that the array at that place claims, and the start of the
    elements.

    Raises ValueError.
    """
    _, length_bytes, holds = form_at(data, at)
    first = data[at] if at < len(data) else 0xC1
    begin = at + 1 + length_bytes
    if 0x90 <= first <= 0x9F:
        return holds, begin
    if first not in (0xDC, 0xDD) or begin > len(data):
        raise ValueError("the value is not an array")
    return int.from_bytes(data[at + 1 : begin], "big"), begin


def fields(data: bytes, *, width_min: int, array_max: int, viewed: int | None = None) -> list[Any]:
    """Unpack an array of `width_min` to 15 fields.

    A field is a number, nil, a short string, binary data, or an array of at most `array_max`
    scalars. Raises ValueError for anything else. Binary data at the position `viewed` is not
    copied: the field is a view.
    """
    width, at = array_header(data)
    if not width_min <= width <= _FIELDS_MAX:
        raise ValueError(f"the array has {width} fields")
    found: list[Any] = []
    begin, single = at, 0
    for _ in range(width):
        takes, length_bytes, holds = form = form_at(data, at)
        if form is NO_FORM:
            raise ValueError("the bytes end too early, or have an extension type")
        if not length_bytes and not holds:
            at += takes
            single += 1
            continue
        found += _singles(data, begin, at, single)
        value, at = _field(data, at, array_max, view=len(found) == viewed)
        found.append(value)
        begin, single = at, 0
    found += _singles(data, begin, at, single)
    if at != len(data):
        raise ValueError("bytes follow the end of the array")
    return found


def unpack_flat(data: bytes, array_max: int) -> list[Any]:
    """Unpack an array of few bytes or few elements. Raises ValueError.

    The array has no map with elements inside. The caller checks the types of the elements.
    """
    try:
        found = msgpack.unpackb(
            data, list_hook=None if len(data) <= direct_bytes_max else Census(_FLAT_MEMORY_MAX),
            max_array_len=array_max, max_map_len=0, max_ext_len=0,
        )  # fmt: skip
    except ValueError:
        raise
    except Exception as error:  # msgpack raises many unrelated classes
        raise wrong(error) from None
    if type(found) is not list:
        raise ValueError("the value is not an array")
    return found


def _singles(data: bytes, begin: int, end: int, count: int) -> list[Any]:
    """Return the numbers and constants between two places."""
    return unpack_flat(bytes((0x90 | count,)) + data[begin:end], count) if count else []


def _field(data: bytes, at: int, array_max: int, *, view: bool) -> tuple[Any, int]:
    """Return the binary data or the array of scalars at that place, and its end."""
    if data[at] in (0xC4, 0xC5, 0xC6):
        begin = at + 1 + form_at(data, at)[1]
        end = begin + int.from_bytes(data[at + 1 : begin], "big")
        if end > len(data):
            raise ValueError("the bytes end too early")
        return memoryview(data)[begin:end] if view else data[begin:end], end
    count, begin = array_header(data, at)
    if count > array_max:
        raise ValueError(f"an array has {count} elements; {array_max} are allowed")
    integers = None if native is None else native.integers(data, begin, count)
    if integers is not None:
        return integers[0], integers[1]
    end = begin + 9 * count
    if count <= few_max:
        try:
            return unpack_flat(data[at:end], count), min(end, len(data))
        except msgpack.ExtraData as error:
            return error.unpacked, min(end, len(data)) - len(error.extra)
    stream = Scalars(data, begin, end)
    found = stream.take(count)
    if len(found) != count:
        raise ValueError("the bytes end too early")
    return found, begin + stream.position


def _headers_memory(count: int) -> int:
    return count * (container_bytes + element_bytes * limits.headers_max)


def _check_header(data: bytes, count: int) -> int:
    claimed, begin = array_header(data)
    if claimed != count:
        raise ValueError(f"the array has {claimed} elements instead of {count}")
    return begin
