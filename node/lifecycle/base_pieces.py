"""Packs a base into bytes that travel in pieces, because a base can be larger than a frame.

A base has up to 100,000 floors with keys of 480 bytes, and a row for each of up to 100,000
producers: 50 MB and half a million containers. A frame has 9 MiB and 131,072 containers. A base
sent in one frame could never be fetched, so its range could never be repaired, moved or split.
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
"""Items of maps and lists that are packed before other work runs: 2 ms."""


async def pack(base: Base) -> bytes:
    """Return the base as bytes. A base never changes, so packing may take many turns."""
    parts: list[bytes] = []
    items = _packed(msgpack.Packer(), base.to_wire())
    while some := list(islice(items, _ITEMS_A_TURN)):
        parts += some
        await asyncio.sleep(0)
    return b"".join(parts)


def unpack(data: bytes) -> Base:
    """Undo `pack` for bytes that another node sent. Raises CorruptData.

    The largest base takes some tenths of a second, which is too long for the event loop. In a
    thread the loop continues meanwhile: without the hooks the unpacker would hold the interpreter's
    lock to its end.
    """
    try:
        body = msgpack.unpackb(data, strict_map_key=False, list_hook=_same, object_pairs_hook=_made)
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise CorruptData(f"a base does not unpack: {error}") from None
    return received(body)


def _same(array: list[Any]) -> list[Any]:
    return array


def _made(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make a map element by element.

    A stranger may choose numbers as keys that collide in the hash table. The map then takes
    seconds, and other threads continue meanwhile.
    """
    made = {}
    for key, value in pairs:
        made[key] = value
    return made


def _packed(packer: msgpack.Packer, value: Any) -> Iterator[bytes]:
    """Yield the bytes of a map, of a list of maps, or of any other value, item by item."""
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
