"""Ask for pages over HTTP, one behind the other, and read none of them.

`--address` is that of the node's HTTP port.
"""

import argparse

from attack import Line, arguments, main, token_of

_PAGES = ("/status.json", "/metrics", "/", "/healthz")
_REQUESTS_A_WRITE = 64


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    token = token_of(options)
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    asked = "".join(f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\n{shown}\r\n" for page in _PAGES)
    requests = asked.encode() * (_REQUESTS_A_WRITE // len(_PAGES))
    while True:
        try:
            while True:
                await line.write(requests)
        except ConnectionError:
            await line.renew(Line.secured)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.secured)
