"""Ports for nodes on this machine: nobody else can have taken one when its node starts again."""

import socket
import subprocess
import sys
from pathlib import Path

from lognode.testing import free_ports, free_row


def test_a_port_is_given_once_and_none_that_the_kernel_gives_away() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [port for _ in range(50) for port in free_ports(4)]
    # The port after each is the one for the peers of a node.
    both = [*ports, *(port + 1 for port in ports)]
    assert len(set(both)) == len(both) == 400
    assert not any(first <= port <= last for port in both)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports[0]))


def test_no_other_process_is_given_a_port_while_this_one_lives() -> None:
    (port,) = free_ports(1)
    asked = (
        "from lognode.client import ports; "
        f"print(ports._reserved({port}), ports._reserved({port + 1}))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_every_port_of_a_row_is_kept_from_other_processes() -> None:
    first = free_row(9)
    asked = (
        "from lognode.client import ports; "
        f"print(*map(ports._reserved, range({first}, {first + 9})))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 9
