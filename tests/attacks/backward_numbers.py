"""Append records whose numbers go backwards, and settle none of them, with one producer after
another."""

import argparse

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import PRODUCER_OPEN
from lognode.client.protocol.records import encode_batch

_BATCHES_A_REQUEST = 64
_IN_FLIGHT = 16


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    while True:
        try:
            await _use(line, options)
        except ConnectionError:
            await line.renew(Line.open)


async def _use(line: Line, options: argparse.Namespace) -> None:
    asked = await range_of(line, options.log)
    opened = await line.ask(PRODUCER_OPEN, {})
    producer = opened.get("id")
    if producer is None:
        raise ConnectionError("refused")
    under_way = 0
    for first in range(options.numbers, _BATCHES_A_REQUEST, -_BATCHES_A_REQUEST):
        batches = [
            encode_batch([b"back"], [b""], producer=producer, epoch=1, low=1, numbers=number)
            for number in range(first, first - _BATCHES_A_REQUEST, -1)
        ]
        body = {**asked, "batches": batches, "timeout_ms": 2_000, "grant": opened.get("grant")}
        await line.write(frame.encode(first, APPEND.number, body))
        under_way += 1
        if under_way >= _IN_FLIGHT:
            await line.read()
            under_way -= 1


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--numbers", type=int, default=10_000, help="the highest number")
    main(attack, parser)
