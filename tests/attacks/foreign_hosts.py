"""Ask over HTTP by names that are not the node's, as a page in somebody's browser can make it.

`--address` is that of the node's HTTP port. Each name is refused. Some requests are malformed.
"""

import argparse
import itertools

from attack import Line, arguments, main

_NAMES = (
    "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "a" * 8_000,
    "\u00e9vil", "127.0.0.1\r\nHost: evil.example", "evil.example\x00", "@127.0.0.1",
)  # fmt: skip
_BROKEN = (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
           b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"\r\n" * 1_000)  # fmt: skip


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    named = [f"GET /status.json HTTP/1.1\r\nHost: {name}\r\n\r\n".encode() for name in _NAMES]
    for request in itertools.cycle((*named, *_BROKEN)):
        try:
            await line.write(request)
            if not await line.receive():
                raise ConnectionError("the node has ended the connection")
        except ConnectionError:
            await line.renew(Line.secured)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.secured)
