"""Patterns against a NATS server, whose subjects have the same wildcards for whole levels."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from lognode.client.protocol.patterns import patterns_of

SERVER: Final = shutil.which("nats-server") or "/usr/sbin/nats-server"
PATTERNS: Final = (
    "a", "b.a", "*", "*.*", "a.*", "*.a", "a.*.b", "*.*.*", ">", "a.>", "*.>", "a.b.>", "*.b.>",
    "a.*.>", "b.b.b.b", "*.a.*.b",
)  # fmt: skip
KEYS: Final = tuple(
    ".".join(levels) for count in range(1, 5) for levels in product(("a", "b", "c"), repeat=count)
)


@pytest.fixture
def nats() -> Iterator[socket.socket]:
    if not Path(SERVER).exists():
        if os.environ.get("CI"):
            pytest.fail("nats-server is missing; .ci/run installs the package nats-server")
        pytest.skip("nats-server is not installed")
    server = subprocess.Popen(
        [SERVER, "-a", "127.0.0.1", "-p", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert server.stderr is not None
        ports = (re.search(rb"client connections on 127.0.0.1:(\d+)", x) for x in server.stderr)
        port = next(int(found[1]) for found in ports if found)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as found:
            yield found
    finally:
        server.kill()
        server.communicate()


def test_matches_are_those_of_a_nats_server(nats: socket.socket) -> None:
    """Each pattern is a subscription, and each key a message of its subject."""
    lines = [b'CONNECT {"verbose":false,"pedantic":false}']
    lines += [b"SUB %s %d" % (each.encode(), at) for at, each in enumerate(PATTERNS)]
    lines += [b"PUB %s 0\r\n" % key.encode() for key in KEYS]
    nats.sendall(b"\r\n".join([*lines, b"PING", b""]))
    found: set[tuple[str, str]] = set()
    with nats.makefile("rb") as answers:
        for line in answers:
            words = line.decode().split()
            if words[:1] == ["PONG"]:
                break
            assert words[:1] in ([], ["INFO"], ["MSG"]), line
            if words[:1] == ["MSG"]:
                found.add((PATTERNS[int(words[2])], words[1]))
    due = {
        (pattern, key)
        for pattern in PATTERNS
        for key in KEYS
        if patterns_of(b".", pattern).matches(key.encode())
    }
    assert due == found
    assert len(due) > len(KEYS)
