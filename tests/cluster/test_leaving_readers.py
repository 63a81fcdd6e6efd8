"""Readers that leave in the middle of an answer: a node logs no traceback and no error.

Each asks for much, reads a part, and resets its connection, at the port for clients and at the port
for HTTP, with TLS and without.
"""

import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from strangers import hello

import lognode
from lognode import testing
from lognode.client.protocol import OPERATIONS, frames
from lognode.client.protocol.frame import encode

pytestmark = pytest.mark.cluster

LEAVERS = 80
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the kernel drops what is unread and unsent, and tells the other side."""
ALL_BYTES = 1 << 20
PAGES = ("/status.json", "/metrics", "/healthz")

Wrap = Callable[[socket.socket], socket.socket]


def leave(address: str, wrap: Wrap, said: list[bytes], read_bytes: int) -> None:
    """Say all of that, the last of it without waiting, read so much, and go."""
    host, port = address.rsplit(":", 1)
    raw = socket.create_connection((host, int(port)), timeout=15)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    link = wrap(raw)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    try:
        *greetings, asked = said
        for greeting in greetings:
            link.sendall(greeting)
            assert link.recv(65_536)
        link.sendall(asked)
        link.settimeout(0.2)  # an answer may be shorter
        with contextlib.suppress(TimeoutError):
            while read_bytes > 0 and (data := link.recv(min(read_bytes, 65_536))):
                read_bytes -= len(data)
    finally:
        link.close()


def requests(range_: dict[str, int]) -> list[bytes]:
    """Frames that ask for much."""
    where = {"range": range_["id"], "generation": range_["generation"]}
    asked = {
        "scan": {"key": b"0000"}, "read_span": {}, "export": {}, "keys": {},
        "follow": {"credit": 8 << 20}, "append": {"batches": [b"no batch"] * 100},
        "status": {}, "metadata": {},
    }  # fmt: skip
    found = []
    for name, body in asked.items():
        operation = OPERATIONS[name]
        body = {**where, "bytes": 4 << 20, "timeout_ms": 5_000, **body}
        operation.request.check(body)  # else it would be refused
        found.append(encode(1, operation.number, body))
    return found


@pytest.mark.parametrize(
    "tls",
    [
        pytest.param(False, id="plain", marks=pytest.mark.by_hand),
        pytest.param(True, id="TLS"),
    ],
)
def test_readers_that_leave_in_the_middle_leave_nothing_in_the_log(
    tmp_path: Path, *, tls: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with testing.cluster(tmp_path, 1, tls=tls) as cluster:
        context = None if cluster.tls is None else cluster.tls.context

        def wrap(raw: socket.socket) -> socket.socket:
            if context is None:
                return raw
            return context.wrap_socket(raw, server_hostname="127.0.0.1")

        with lognode.Client(cluster.servers, timeout=20) as client:
            log = client.create_log("log", split_at=[f"{n:04}" for n in range(1, 64)])
            for at in range(0, 4_000, 500):
                log.append_many([(b"0000", bytes(1_000)) for _ in range(at, at + 500)])
            ranges = [row for row in client.status()["ranges"] if row["log"] == "log"]
            first = min(ranges, key=lambda row: row["id"])
            (node,) = cluster.nodes
            said = requests(first)
            for _ in range(LEAVERS):
                read = rng.choice((0, 1, 100, 5_000, 100_000, ALL_BYTES))
                read = rng.randint(0, read)
                if rng.random() < 0.3:
                    page = rng.choice(PAGES)
                    get = f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                    leave(node.http, wrap, [get.encode()], read)
                else:
                    greeting = encode(0, frames.HELLO, hello().to_body())
                    leave(node.address, wrap, [greeting, rng.choice(said)], min(read, 100_000))
            assert log.append(b"k", b"after").seq
        assert node.running
        for line in node.log_path.read_text("utf-8").splitlines():
            assert line.startswith("{"), line
            assert json.loads(line)["level"] not in ("error", "critical"), line
            assert "Traceback" not in line
