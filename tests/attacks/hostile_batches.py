"""Append batches that lie: wrong counts, containers for bytes, columns that unpack to gigabytes.

Every batch is refused. The attack goes on with the next one, on a new connection where the node has
ended the old one.
"""

import argparse
import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgpack
import payloads
from attack import Line, arguments, main, range_of

from lognode.client.protocol.appends import APPEND

_IN_FLIGHT = 8
_HUGE = (-1, 0, 2, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, None, "x", b"", [], {})
_FIELDS = 14
_COLUMNS: tuple[Any, ...] = (
    b"", b"\xc1", b"\x90", b"\x91\xc4\x00", b"\x91\xa1k", b"\x92\xc4\x01a\xc4\x01b",
    b"\x91\xc5\x01\xe1" + bytes(481), b"\xdd\xff\xff\xff\xff", b"\x91\x81\xc4\x01a\x05",
    b"\x91\xc7\x01\x05\x00", b"\x91" * 1_000 + b"\x90",
)  # fmt: skip


def lies() -> Iterator[bytes]:
    """Batches of one record in which one field is wrong."""
    honest = msgpack.unpackb(payloads.batch())
    for at in range(_FIELDS):
        for value in (*_HUGE, *_COLUMNS, list(range(10_000)), [-1], [1 << 63]):
            yield msgpack.packb([*honest[:at], value, *honest[at + 1 :]])
    for count in range(_FIELDS):
        yield msgpack.packb(honest[:count])
    whole = msgpack.packb(honest)
    yield from (whole[:at] for at in range(len(whole)))
    yield whole + whole


@cache
def large() -> list[bytes]:
    """Batches that are large in memory. To make them takes seconds."""
    return [make() for make in payloads.BATCHES.values()]


def batches() -> Iterator[bytes]:
    """All of them again and again: small lies between what is large in memory."""
    small = list(lies())
    for at in itertools.count(random.randrange(1_000)):
        yield large()[at % len(large())]
        yield from small[at * 64 % len(small) :][:64]


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    asked = await range_of(line, options.log)
    under_way = 0
    for batch in batches():
        try:
            await line.say(APPEND.number, {**asked, "batches": [batch], "timeout_ms": 2_000})
            under_way += 1
            if under_way >= _IN_FLIGHT:
                await line.read()
                under_way -= 1
        except ConnectionError:
            await line.renew(Line.open)
            under_way = 0


if __name__ == "__main__":
    large()  # before the time begins
    main(attack, arguments())
