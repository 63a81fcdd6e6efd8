"""Free loopback ports, for clusters on one machine: `lognode dev`, tests, `lognode-chaos`."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT: Final = 10_000
_FIRST_OUTGOING: Final = 32_768
_given: dict[int, int] = {}
"""Ports that this process has given, and the files that it holds for them."""


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on now, and that no process is given again
    while this one lives: a node that is down keeps its port. So does the port after each of them,
    at which a node listens for its peers.

    Not from the kernel's range for outgoing connections: one of these could take the port of a node
    that is down, which then could not start again.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_FIRST_PORT, _first_outgoing() - 1)
        if _is_ours(port) and _is_ours(port + 1):
            found.append(port)
    return found


def free_row(count: int) -> int:
    """The first of `count` loopback ports in a row, all given as `free_ports` gives them: for
    programs that are told a first port and count on from there."""
    while True:
        first = random.randrange(_FIRST_PORT, _first_outgoing() - count)
        if all(_is_ours(port) for port in range(first, first + count)):
            return first


def _is_ours(port: int) -> bool:
    """Whether nobody listens on the port and nobody, here or elsewhere, was given it before.

    The lock comes first: to look whether a port is free takes the port for a moment, and its owner
    may be starting a node there.
    """
    return port not in _given and _reserved(port) and _is_free(port)


def _first_outgoing() -> int:
    """Where the kernel's range begins; without one that is known, where Linux has it."""
    try:
        first = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OUTGOING
    return first if first >= 2 * _FIRST_PORT else _FIRST_OUTGOING


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _reserved(port: int) -> bool:
    """Whether nobody else had it; a lock on a file, which ends with the process."""
    folder = Path(tempfile.gettempdir()) / f"lognode-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _given[port] = file
    return True
