"""Ask for the status over HTTP and leave at once, on one connection after another.

`--address` is that of the node's HTTP port.
"""

import argparse
import contextlib

from attack import Line, arguments, main, token_of


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    token = token_of(options)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    request = f"GET /status.json HTTP/1.1\r\nHost: 127.0.0.1\r\n{shown}\r\n".encode()
    while True:
        with contextlib.suppress(ConnectionError):
            await line.write(request)
        await line.renew(Line.secured)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.secured)
