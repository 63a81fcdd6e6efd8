"""Unpack msgpack that another process packed, within bounds of memory and time.

An unpacker trusts the header of an array. It reserves 8 bytes for each element that the header
claims, at each of 1,024 levels, before it has seen an element: 5 bytes a level are enough. And an
empty array has 1 byte on the wire and 72 bytes in memory. So a program unpacks bytes from the
network by one of these rules only:

- Up to `direct_bytes_max` bytes are unpacked at once. They reserve little memory and make few
  objects.
- A column is an array of scalars. `columns` reads a column as a stream without room for containers.
- For any other value `check_whole` first skips all bytes, in C and without an object. This proves
  that each container has as many elements as its header claims, so unpacking reserves at most 8
  bytes for each byte of the value. A `Census` adds up the memory of the containers.

Work that may take longer than a few milliseconds is a generator of short steps.
"""

from collections.abc import Generator
from itertools import chain, islice
from typing import Any, Final

import msgpack

from . import limits

Data = bytes | memoryview
Steps = Generator[None, None, Any]
"""Work in steps of at most a few milliseconds. It yields between steps and returns the result."""

container_bytes: Final = 256
element_bytes: Final = 48
"""Memory of a container with few elements, and of an element with its place in a container."""
text_bytes_max: Final = 64 * limits.KIB
"""The longest string."""
direct_bytes_max: Final = 2 * limits.KIB
"""For 2 KiB an unpacker reserves at most 11 MB, whatever the headers claim."""
step_bytes_max: Final = 12 * limits.KIB
"""Bytes that one step unpacks. 12 Ki empty arrays take 2 ms."""
_SKIP_BYTES: Final = 256 * limits.KIB
"""Bytes that one step skips. 256 Ki of the smallest values take 1 ms."""
_LONG_FROM: Final = 1 << 16
"""The length of a string or of binary data has 4 bytes from this length on."""
_ANY_KEYS_MAX: Final = 256
"""A map with at most this many elements is built quickly, whatever its keys are."""
_NUMBER_KEY_MAX: Final = limits.page_entries_max
"""The largest number that is a key of a large map: the position of an entry in a page. A
stranger may choose numbers that collide in the table of a map: numbers up to this one take at
most 20 ms. Chosen among the numbers below 2^32, 120,000 keys took 2 s."""
_HASHED_IN_SECRET: Final = frozenset({str, bytes})
_SHORT: Final = 32
"""`unpack` looks at up to 32 values one by one, which copies nothing."""
_WALK_ELEMENTS: Final = 4_096
"""Elements that one step looks at."""
_CONTAINERS: Final = frozenset({list, dict})


Form = tuple[int, int, int]
NO_FORM: Final[Form] = (1 << 62, 0, 0)
"""The form of extension types and of missing bytes: longer than any data."""
_FORMS: Final[dict[int, Form]] = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3), (1, 0, 0)),
    **{0x80 + n: (1, 0, 2 * n) for n in range(16)},
    **{0x90 + n: (1, 0, n) for n in range(16)},
    **{0xA0 + n: (1 + n, 0, 0) for n in range(32)},
    **dict.fromkeys((0xCC, 0xD0), (2, 0, 0)), **dict.fromkeys((0xCD, 0xD1), (3, 0, 0)),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), (5, 0, 0)), **dict.fromkeys((0xCB, 0xCF, 0xD3), (9, 0, 0)),
    0xC4: (1, 1, 0), 0xC5: (1, 2, 0), 0xC6: (1, 4, 0),
    0xD9: (1, 1, 0), 0xDA: (1, 2, 0), 0xDB: (1, 4, 0),
    0xDC: (0, 2, 1), 0xDD: (0, 4, 1), 0xDE: (0, 2, 2), 0xDF: (0, 4, 2),
}  # fmt: skip
"""The form of a value by its first byte. Without a length: (bytes of the value, 0, values inside).
With a length: (bytes for each unit of the length, bytes of the length, values for each unit)."""


class Census:
    """Adds up the memory of containers and their elements while a value is unpacked.

    A census is the `list_hook` of an unpacker, and `pairs` is the `object_pairs_hook`. It counts a
    container with its elements when the container is complete, and raises ValueError above
    `memory_max` bytes.
    """

    __slots__ = ("containers", "memory", "memory_max")

    def __init__(self, memory_max: int) -> None:
        self.containers = 0
        self.memory = 0
        """Bytes besides the bytes on the wire."""
        self.memory_max = memory_max

    def __call__(self, container: Any) -> Any:
        self.containers += 1
        self.memory += container_bytes + element_bytes * len(container)
        if self.memory > self.memory_max:
            raise self._too_large()
        return container

    def pairs(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """Make a map. Raises ValueError for a large map with number keys that a stranger may
        have chosen to collide in the table of the map: such a map takes a second for each 14,000
        keys (Crosby and Wallach, 2003). Texts have secret hashes."""
        self.containers += 1
        self.memory += container_bytes + element_bytes * len(pairs)
        if self.memory > self.memory_max:
            raise self._too_large()
        if len(pairs) > _ANY_KEYS_MAX:
            _check_keys(pairs)
        return dict(pairs)

    def _too_large(self) -> ValueError:
        return ValueError(f"its arrays and maps take over {self.memory_max} bytes of memory")


def _check_keys(pairs: list[tuple[Any, Any]]) -> None:
    """Raise ValueError for a number that is not a position in a page, and for a repeated number:
    each repetition would walk to the place of the first."""
    seen = bytearray(_NUMBER_KEY_MAX + 1)
    for key, _ in pairs:
        if type(key) in _HASHED_IN_SECRET:
            continue
        if type(key) is not int or not 0 <= key <= _NUMBER_KEY_MAX or seen[key]:
            again = " again" if type(key) is int and 0 <= key <= _NUMBER_KEY_MAX else ""
            raise ValueError(
                f"a map of over {_ANY_KEYS_MAX} elements has the key "
                f"{str(key)[:40]}{again}; only texts, bytes and different integers from 0 "
                f"to {_NUMBER_KEY_MAX} are allowed"
            )
        seen[key] = 1


def unpack(data: Data, census: Census, *, array_max: int) -> Any:
    """Unpack one value whose arrays and maps have at most `array_max` elements.

    Raises ValueError.
    """
    if len(data) > direct_bytes_max and not is_short(data, _SHORT):
        check_whole(data)
    return unpack_checked(data, census, array_max)


def unpack_checked(data: Data, census: Census, array_max: int) -> Any:
    """Unpack one value that has at most `direct_bytes_max` bytes or that passed `check_whole`.

    Raises ValueError.
    """
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, list_hook=census, object_pairs_hook=census.pairs,
            max_ext_len=0, max_array_len=array_max, max_map_len=array_max,
            max_str_len=text_bytes_max,
        )  # fmt: skip
    except ValueError:
        raise
    except Exception as error:  # msgpack raises many unrelated classes
        raise wrong(error) from None


def unpack_steps(data: Data, census: Census, *, array_max: int) -> Steps:
    """Do the same as `unpack`, in steps. Raises ValueError."""
    yield from _skip_steps(data)
    unpacker = msgpack.Unpacker(
        read_size=2 * step_bytes_max, strict_map_key=False, list_hook=census,
        object_pairs_hook=census.pairs, max_ext_len=0, max_array_len=array_max,
        max_map_len=array_max, max_str_len=text_bytes_max,
    )  # fmt: skip
    view, at = memoryview(data), 0
    while at < len(data):
        unpacker.feed(view[at : at + step_bytes_max])
        at += step_bytes_max
        try:
            return unpacker.unpack()
        except msgpack.OutOfData:
            begin = unpacker.tell()
        except ValueError:
            raise
        except Exception as error:  # msgpack raises many unrelated classes
            raise wrong(error) from None
        if at - begin >= _LONG_FROM:
            # The unpacker waits for the end of one long value. The 4 bytes before the value are its
            # length, and the unpacker makes nothing else before that end.
            end = begin + int.from_bytes(view[begin - 4 : begin], "big")
            unpacker.feed(view[at : end - 1])
            at = max(at, end - 1)
        yield
    raise ValueError("the bytes end too early")


def check_whole(data: Data) -> None:
    """Check that the data is one value whose containers have the elements that their headers claim.

    The check takes about 3 ns for each number, string and container. Raises ValueError.
    """
    for _ in _skip_steps(data):
        pass


def is_short(data: Data, values_max: int) -> bool:
    """Whether the data is one whole value of at most `values_max` values, counting all levels.

    Numbers, strings and containers count. Few values are unpacked quickly, at any length.
    """
    at, due, size = 0, 1, len(data)
    for _ in range(values_max):
        if not due:
            return at == size
        if at >= size or due > values_max:
            return False
        takes, length_bytes, holds = _FORMS.get(data[at], NO_FORM)
        if length_bytes:
            begin = at + 1 + length_bytes
            number = int.from_bytes(data[at + 1 : begin], "big")
            at = begin + takes * number
            due += holds * number - 1
        else:
            at += takes
            due += holds - 1
    return not due and at == size


def depth_steps(value: Any, depth_max: int) -> Steps:
    """Return whether containers are nested deeper than `depth_max`, in steps."""
    level: list[Any] = [value]
    for _ in range(depth_max):
        elements = chain.from_iterable(map(_elements, level))
        below: list[Any] = []
        while part := list(islice(elements, _WALK_ELEMENTS)):
            if not _CONTAINERS.isdisjoint(map(type, part)):
                below += [each for each in part if type(each) in _CONTAINERS]
            yield
        if not below:
            return False
        level = below
    return True


def form_at(data: Data, at: int) -> Form:
    """Return the form of the value that begins at that place."""
    return _FORMS.get(data[at], NO_FORM) if at < len(data) else NO_FORM


def _skip_steps(data: Data) -> Steps:
    # The unpacker is fresh and only skips, so it holds no object when it fails.
    unpacker = msgpack.Unpacker(read_size=min(len(data), _SKIP_BYTES) or 1)
    view = memoryview(data)
    for at in range(0, len(data), _SKIP_BYTES):
        unpacker.feed(view[at : at + _SKIP_BYTES])
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            yield
            continue
        if unpacker.tell() != len(data):
            raise ValueError("bytes follow the end of the value")
        return
    raise ValueError("the bytes end too early")


def wrong(error: Exception) -> ValueError:
    """Return the ValueError for an exception of another class that msgpack raised."""
    return ValueError(f"{type(error).__name__}: {error}")


def _elements(container: Any) -> Any:
    return container.values() if type(container) is dict else container
