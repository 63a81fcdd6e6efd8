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
"""Ports that this process has reserved, and the descriptors of their lock files."""


def free_ports(count: int) -> list[int]:
    """Return distinct loopback ports on which nobody listens, reserved while this process lives: a
    node that is down keeps its port. The port after each of them, where a node listens for its
    peers, is reserved too.

    The ports are outside the kernel's range for outgoing connections: an outgoing connection could
    take the port of a node that is down, which then could not start again.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(_FIRST_PORT, _first_outgoing() - 1)
        if _is_ours(port) and _is_ours(port + 1):
            found.append(port)
    return found


def free_row(count: int) -> int:
    """Return the first of `count` consecutive loopback ports, all reserved as `free_ports` does:
    for programs that take a first port and count up."""
    while True:
        first = random.randrange(_FIRST_PORT, _first_outgoing() - count)
        if all(_is_ours(port) for port in range(first, first + count)):
            return first


def _is_ours(port: int) -> bool:
    """Reserve the port, if nobody listens on it and no process has reserved it; return whether it
    did.

    The lock comes first: testing whether a port is free takes the port for a moment, and its owner
    may be starting a node there.
    """
    return port not in _given and _reserved(port) and _is_free(port)


def _first_outgoing() -> int:
    """Return the start of the kernel's range for outgoing ports, Linux' default where it is
    unknown."""
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
    """Lock the port's file; return False when another process has the lock, which ends with its
    process."""
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
