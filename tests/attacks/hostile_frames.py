"""Send malformed frames: bombs, wrong checksums, lengths that nobody sends.

The node ends the connection for each of them; the attack goes on with the next frame on a new one.
"""

import argparse
import itertools
import os
import random
from functools import cache

import msgpack
import payloads
from attack import Line, arguments, main

from lognode.client.protocol import frame, frames


@cache
def all_frames() -> list[bytes]:
    """Each frame once. To make them takes seconds."""
    ping = frame.encode(1, frames.PING, {})
    return [
        *(make() for make in payloads.FRAMES.values()),
        ping[:-1] + bytes([ping[-1] ^ 1]),
        frame.HEADER.pack(0, 0),
        frame.HEADER.pack(0xFFFFFFFF, 0) + bytes(1_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        os.urandom(1 << 16),
        payloads.framed(b""),
        payloads.framed(b"\xc1"),
        payloads.framed(b"\x93\x01\xa1x" + b"\x91" * 100_000 + b"\x00"),
        payloads.framed(msgpack.packb([-1, 40, {}])),
        payloads.framed(msgpack.packb([1 << 63, 1 << 63, {}])),
        payloads.framed(msgpack.packb([1, 40, [1]])),
        payloads.framed(msgpack.packb({"a": 1})),
        frame.encode(1, frames.WELCOME, {}),
        frame.encode(0, frames.HELLO, {"magic": "lognode"}),
        frame.encode(1, frames.CREDIT, {"bytes": 1 << 62}) * 1_000,
    ]


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    first = random.randrange(len(all_frames()))
    for data in itertools.cycle(all_frames()[first:] + all_frames()[:first]):
        try:
            await line.write(data)
            await line.write(frame.encode(2, frames.PING, {}))
            while (await line.read()).request_id != 2:
                pass  # errors of request 1
        except ConnectionError:
            await line.renew(Line.open)


if __name__ == "__main__":
    all_frames()  # before the time begins
    main(attack, arguments())
