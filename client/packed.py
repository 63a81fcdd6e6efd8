"""Bounded unpacking of msgpack that somebody else has packed.

An unpacker believes the header of an array: it reserves 8 bytes for each element that the header
claims, at each of 1,024 levels, before it has seen an element. Five bytes a level are enough to
have it reserve as much as it may. And one byte on the wire, an empty array, becomes an object of
56 bytes. So nothing that came over the network is unpacked without one of these rules:

- Up to `direct_bytes_max` bytes are unpacked as they are: they reserve and make little.
- A column, an array of scalars, is read as a stream behind its header by an unpacker that has no
  room for containers (`column`, `HeaderColumn`). Reading ends at the first container.
- Any other value is first passed over in C, without making an object (`check_whole`). Then every
  container has as many elements as its header claims, and unpacking reserves no more than 8 bytes
  for each byte that is there. The memory that they take is added up meanwhile (`Census`).

What may take longer than a few milliseconds comes as a generator of steps as well, each of which
takes less. No Python runs for an element of a column.
"""

from collections.abc import Generator
from itertools import chain, islice
from typing import Any, Final

import msgpack

from . import limits

Data = bytes | memoryview
Steps = Generator[None, None, Any]
"""Work in steps of at most a few milliseconds: yields between them, returns the result."""

container_bytes: Final = 256
element_bytes: Final = 48
"""Memory that a container of few elements takes, and an element with its place in it."""
text_bytes_max: Final = 64 * limits.KIB
"""Of a string."""
direct_bytes_max: Final = 2 * limits.KIB
"""An unpacker reserves 11 MB at most for so few bytes, whatever they claim."""
step_bytes_max: Final = 12 * limits.KIB
"""Bytes unpacked in a step: as many empty arrays take 2 ms."""
_SKIP_BYTES: Final = 256 * limits.KIB
"""Bytes passed over in a step: 262,144 of the smallest values take 1 ms."""
_LONG_FROM: Final = 1 << 16
"""From so many bytes on the length of a string or of binary data takes 4 bytes."""
_SHORT: Final = 32
"""So few numbers, strings and containers are looked at one by one: that copies nothing."""
_WALK_ELEMENTS: Final = 4_096
"""Elements looked at in a step."""
_CONTAINERS: Final = frozenset({list, dict})


Form = tuple[int, int, int]
NO_FORM: Final[Form] = (1 << 62, 0, 0)
"""Of what is not allowed: it is never whole."""
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
"""How a value is made, by its first byte: the bytes that it takes, 0, the values in it. Or, where
a number follows the first byte: the bytes that it takes besides for each that the number counts,
the bytes of the number, the values in it for each."""


class Census:
    """Adds up the memory that containers and their elements take, while a value is unpacked.

    An instance is the `list_hook` and the `object_hook` of an unpacker. Raises ValueError once
    they take more than `memory_max` bytes. The elements of a container count when the container
    is complete.
    """

    __slots__ = ("containers", "memory", "memory_max")

    def __init__(self, memory_max: int) -> None:
        self.containers = 0
        self.memory = 0
        """Bytes, beside those on the wire."""
        self.memory_max = memory_max

    def __call__(self, container: Any) -> Any:
        self.containers += 1
        self.memory += container_bytes + element_bytes * len(container)
        if self.memory > self.memory_max:
            raise ValueError(f"its arrays and maps take over {self.memory_max} bytes of memory")
        return container


def unpack(data: Data, census: Census, *, array_max: int) -> Any:
    """Unpack one value. Arrays and maps have `array_max` elements at most. Raises ValueError."""
    if len(data) > direct_bytes_max and not is_short(data, _SHORT):
        check_whole(data)
    return unpack_checked(data, census, array_max)


def unpack_checked(data: Data, census: Census, array_max: int) -> Any:
    """Unpack one value of at most `direct_bytes_max` bytes, or one that was found to be whole."""
    try:
        return msgpack.unpackb(
            data, strict_map_key=False, list_hook=census, object_hook=census, max_ext_len=0,
            max_array_len=array_max, max_map_len=array_max, max_str_len=text_bytes_max,
        )  # fmt: skip
    except ValueError:
        raise
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise wrong(error) from None


def unpack_steps(data: Data, census: Census, *, array_max: int) -> Steps:
    """The same as `unpack`, in steps. Raises ValueError."""
    yield from _skip_steps(data)
    unpacker = msgpack.Unpacker(
        read_size=2 * step_bytes_max, strict_map_key=False, list_hook=census, object_hook=census,
        max_ext_len=0, max_array_len=array_max, max_map_len=array_max, max_str_len=text_bytes_max,
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
        except Exception as error:  # msgpack raises half a dozen unrelated classes
            raise wrong(error) from None
        if at - begin >= _LONG_FROM:
            # It waits for the end of one long value, whose length stands before its first byte:
            # up to there nothing else is made.
            end = begin + int.from_bytes(view[begin - 4 : begin], "big")
            unpacker.feed(view[at : end - 1])
            at = max(at, end - 1)
        yield
    raise ValueError("it ends too early")


def check_whole(data: Data) -> None:
    """Check that the data is one value whose containers have what their headers claim.

    Takes about 3 ns for each number, string and container in it. Raises ValueError.
    """
    for _ in _skip_steps(data):
        pass


def is_short(data: Data, values_max: int) -> bool:
    """Whether the data is whole, and made of at most `values_max` numbers, strings and containers.

    To unpack it takes no time to speak of then, however long it is.
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
    """Whether containers are nested deeper than `depth_max`, in steps."""
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
    return _FORMS.get(data[at], NO_FORM) if at < len(data) else NO_FORM


def _skip_steps(data: Data) -> Steps:
    # A fresh unpacker: one that has only skipped holds no object, whatever it fails at.
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
            raise ValueError("there are bytes behind its end")
        return
    raise ValueError("it ends too early")


def wrong(error: Exception) -> ValueError:
    return ValueError(f"{type(error).__name__}: {error}")


def _elements(container: Any) -> Any:
    return container.values() if type(container) is dict else container
