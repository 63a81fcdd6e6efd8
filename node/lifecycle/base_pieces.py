"""A base as bytes, which travel in pieces: a base is larger than a frame where much was removed.

A base has up to 100,000 floors with keys of 480 bytes, and a row of each of up to 100,000
producers: 50 MB and half a million containers. A frame has 9 MiB and 131,072 containers. A base
that was sent as it is could never be fetched, so its range could never be repaired, moved or split.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData
from ...statemachine.range_state import Base
from ...statemachine.received_base import received

PIECE_BYTES: Final = limits.MIB
_ITEMS_A_TURN: Final = 2_048
"""Of maps and lists, packed before others run: 2 ms."""


async def pack(base: Base) -> bytes:
    """Return the base as bytes. Nobody changes a base, so packing may take many turns."""
    parts: list[bytes] = []
    items = _packed(msgpack.Packer(), base.to_wire())
    while some := list(islice(items, _ITEMS_A_TURN)):
        parts += some
        await asyncio.sleep(0)
    return b"".join(parts)


def unpack(data: bytes) -> Base:
    """Undo `pack` for bytes that another node sent. Raises CorruptData.

    It takes some tenths of a second for the largest base: too long for a loop. In a thread it lets
    the loop go on: an unpacker without hooks would keep the interpreter's lock to its end.
    """
    try:
        body = msgpack.unpackb(data, strict_map_key=False, list_hook=_same, object_pairs_hook=_made)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise CorruptData(f"a base does not unpack: {error}") from None
    return received(body)


def _same(array: list[Any]) -> list[Any]:
    return array


def _made(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make a map element by element. Its keys may be numbers that a stranger chose to share places
    in the table of the map: then it takes seconds, and other threads go on meanwhile."""
    made = {}
    for key, value in pairs:
        made[key] = value
    return made


def _packed(packer: msgpack.Packer, value: Any) -> Iterator[bytes]:
    """The bytes of a map, of a list of maps, or of anything else, item by item."""
    if isinstance(value, dict):
        yield packer.pack_map_header(len(value))
        for name, item in value.items():
            yield packer.pack(name)
            yield from _packed(packer, item)
    elif isinstance(value, list) and value and isinstance(value[0], dict | list | tuple):
        yield packer.pack_array_header(len(value))
        for item in value:
            yield from _packed(packer, item)
    else:
        yield packer.pack(value)
