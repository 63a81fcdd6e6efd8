"""Begin a frame of 9 MiB on each connection, and send a byte of it every second."""

import argparse
import asyncio

from attack import Line, arguments, main

from lognode.client.protocol import frame, limits


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the node ends it."""
    await line.write(frame.HEADER.pack(limits.frame_bytes_max, 0))
    while True:
        await line.write(b"x")
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    main(attack, arguments())
