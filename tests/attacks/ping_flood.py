"""Send pings as fast as the node takes them and read no answer."""

import argparse

from attack import Line, arguments, main

from lognode.client.protocol import frame, frames

_PINGS_A_WRITE = 4_096


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the program ends."""
    pings = b"".join(frame.encode(1 + n, frames.PING, {}) for n in range(_PINGS_A_WRITE))
    while True:
        await line.write(pings)


if __name__ == "__main__":
    main(attack, arguments())
