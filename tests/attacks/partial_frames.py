"""Begin a frame of 9 MiB on each connection, send all of it but the last byte, and stop."""

import argparse
import asyncio

from attack import Line, arguments, main

from lognode.client.protocol import frame, limits

_CHUNK = bytes(1 << 16)


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the program ends."""
    await line.write(frame.HEADER.pack(limits.frame_bytes_max, 0))
    left = limits.frame_bytes_max - 1
    while left:
        await line.write(_CHUNK[:left])
        left -= min(left, len(_CHUNK))
    await asyncio.sleep(options.seconds)


if __name__ == "__main__":
    main(attack, arguments())
