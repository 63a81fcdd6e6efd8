"""Follow events and scan a large key over HTTP and read nothing, and begin bodies that do not end.

`--address` is that of the node's HTTP port.
"""

import argparse
import asyncio
import random

from attack import Line, arguments, main, token_of

_STAY_S = 2.0
"""How long a connection stays after its request: within the patience of the node."""


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    token, log = token_of(options), f"/v1/logs/{options.log}"
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    entries = f"{log}/keys/{options.key}/entries"
    requests = (
        ("GET", f"{log}/events?from=earliest", ""),
        ("GET", f"{log}/events?from=earliest&key={options.key}", ""),
        ("GET", entries, "Accept: application/x-ndjson\r\n"),
        ("GET", f"{entries}?limit=1000", ""),
        ("POST", f"{log}/entries", "Content-Type: application/json\r\nContent-Length: 2000000\r\n"),
    )
    while True:
        method, path, more = random.choice(requests)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{shown}{more}\r\n"
            await line.write(head.encode())
            if method == "POST":
                await line.write(b" " * random.randrange(1_999_999))
            await asyncio.sleep(random.random() * _STAY_S)
        except ConnectionError:
            pass
        await line.renew(Line.secured)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.secured)
