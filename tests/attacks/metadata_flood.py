"""Ask for what the controller has to commit or refuse, as fast as the node takes the requests.

`--kind producers` opens anonymous producers, `names` opens named ones, `logs` creates and deletes a
log, `refused` deletes a log that does not exist. Answers are read and not heeded.
"""

import argparse
import itertools
import os
from collections.abc import Iterator

from attack import Body, Line, arguments, main

from lognode.client.protocol import Operation, frame
from lognode.client.protocol.cluster import CREATE_LOG, DELETE_LOG, PRODUCER_OPEN

_IN_FLIGHT = 256


def requests(kind: str) -> Iterator[tuple[Operation, Body]]:
    """What one connection asks for."""
    mine = os.urandom(4).hex()
    for turn in itertools.count():
        if kind == "producers":
            yield PRODUCER_OPEN, {}
        elif kind == "names":
            yield PRODUCER_OPEN, {"name": f"{mine}-{turn}" + "n" * 200}
        elif kind == "refused":
            yield DELETE_LOG, {"name": "nobody-has-it"}
        else:
            yield CREATE_LOG, {"name": f"flood-{mine}", "ranges": 64}
            yield DELETE_LOG, {"name": f"flood-{mine}"}


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    under_way = 0
    for number, (operation, body) in enumerate(requests(options.kind), 1):
        try:
            await line.write(frame.encode(number, operation.number, body))
            under_way += 1
            if under_way >= _IN_FLIGHT:
                await line.read()
                under_way -= 1
        except ConnectionError:
            await line.renew(Line.open)
            under_way = 0


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--kind", choices=("producers", "names", "logs", "refused"), required=True)
    main(attack, parser)
