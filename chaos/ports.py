"""Free loopback ports for the nodes and proxies of a test."""

import random
import socket
from typing import Final

_FIRST: Final = 10_000
_END: Final = 32_000
"""Below the kernel's range for outgoing connections on Linux: one of these could take the port of
a node that is down, which then could not start again."""


def free_ports(count: int, taken: set[int] | None = None) -> list[int]:
    """Distinct ports that nobody listens on now; `taken` are left out, and those found added."""
    given = set() if taken is None else taken
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_FIRST, _END)
        if port not in given and _is_free(port):
            found.append(port)
            given.add(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
