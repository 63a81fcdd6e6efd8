"""What every attack shares: bare connections, options, a deadline, and one line of JSON at the end.

An attack is a program: `python tests/attacks/unread_scans.py --address HOST:PORT --log NAME`.
Programs are black boxes to a node: they speak frames and use nothing of the client library but the
codec. Each program ends by itself after `--seconds`, whatever the node does.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from lognode.client import frame, wire
from lognode.client.protocol import Operation, frames
from lognode.client.protocol.cluster import METADATA

Body = dict[str, Any]
RECEIVE_BUFFER_BYTES = 64 << 10
"""A small one, so that the kernel of the attacker holds little of what the node sends."""


class Line:
    """One connection that reads only when it is told to."""

    def __init__(self, sock: socket.socket) -> None:
        self.sent_bytes = 0
        self.closed = False
        """Whether the node has ended the connection."""
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = frame.Decoder()
        self._frames: list[frame.Frame] = []
        self._next_id = 1

    @classmethod
    async def connect(cls, address: str, source: str) -> "Line":
        """Connect from the address `source`, and say nothing."""
        host, port = address.rsplit(":", 1)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.setblocking(False)
        if source:
            sock.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        return cls(sock)

    @classmethod
    async def open(cls, address: str, source: str) -> "Line":
        """Connect from the address `source`, and shake hands as a client."""
        line = await cls.connect(address, source)
        hello = wire.Hello(role="client", nonce=os.urandom(wire.nonce_bytes))
        await line.write(frame.encode(0, frames.HELLO, hello.to_body()))
        welcome = await line.read()
        if welcome.kind != frames.WELCOME:
            raise ConnectionError(f"no welcome: {welcome.body}")
        return line

    async def say(self, kind: int, body: Body, request_id: int | None = None) -> int:
        """Send one message and return its id."""
        if request_id is None:
            request_id, self._next_id = self._next_id, self._next_id + 1
        await self.write(frame.encode(request_id, kind, body))
        return request_id

    async def ask(self, operation: Operation, body: Body) -> Body:
        """Send a request and read its answer."""
        request_id = await self.say(operation.number, body)
        while True:
            answer = await self.read()
            if answer.request_id == request_id:
                return answer.body

    async def write(self, data: bytes) -> None:
        """Send bytes; wait for as long as the node does not take them."""
        try:
            await self._loop.sock_sendall(self._sock, data)
        except OSError:
            self.closed = True
            raise ConnectionError("the node has ended the connection") from None
        self.sent_bytes += len(data)
        await asyncio.sleep(0)  # a socket that takes everything would let nothing else run

    async def read_bytes(self) -> bytes:
        """Read what the node has sent."""
        data = await self._loop.sock_recv(self._sock, 1 << 16)
        if not data:
            self.closed = True
            raise ConnectionError("the node has ended the connection")
        return data

    async def read(self) -> frame.Frame:
        """Read one frame."""
        while not self._frames:
            for event in self._decoder.feed(await self.read_bytes()):
                if isinstance(event, frame.Broken):
                    raise event.error
                self._frames.append(event)
        return self._frames.pop(0)

    async def until_closed(self) -> None:
        """Wait until the node ends the connection, without reading anything of it."""
        while not self.closed:
            await asyncio.sleep(0.2)
            # 1 is TCP_ESTABLISHED. A reset shows here although nothing is read.
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            self.closed = struct.unpack("B", info)[0] != 1

    def become(self, other: "Line") -> None:
        """Go on as that connection; this one is closed."""
        self.sent_bytes += other.sent_bytes
        self._sock = other._sock

    def close(self) -> None:
        """End the connection."""
        self._sock.close()


Attack = Callable[[Line, argparse.Namespace], Awaitable[None]]
Begin = Callable[[str, str], Awaitable[Line]]


def arguments() -> argparse.ArgumentParser:
    """The options that every attack has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True, help="host:port of the node")
    parser.add_argument("--log", default="attacked", help="a log that exists")
    parser.add_argument("--key", default="k", help="a key of the log with many entries")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="the program ends after them")
    parser.add_argument("--source", default="", help="the local address to connect from")
    return parser


async def range_of(line: Line, log: str, key: bytes = b"") -> Body:
    """The range and generation of the log's range with the key, as requests name them."""
    metadata = await line.ask(METADATA, {"log": log})
    starts = [row["start"] for row in metadata["ranges"]]
    found = metadata["ranges"][starts.index(max(start for start in starts if start <= key))]
    return {"range": found["id"], "generation": found["generation"]}


def main(attack: Attack, parser: argparse.ArgumentParser, begin: Begin = Line.open) -> None:
    """Run the attack on every connection at once and print what came of it."""
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(asyncio.run(_run(attack, options, begin))))
    sys.stdout.flush()


async def _run(attack: Attack, options: argparse.Namespace, begin: Begin) -> Body:
    lines: list[Line] = []
    refused = 0

    async def one() -> None:
        nonlocal refused
        try:
            line = await begin(options.address, options.source)
        except (OSError, ConnectionError):
            refused += 1
            return
        lines.append(line)
        with contextlib.suppress(ConnectionError):
            await attack(line, options)

    tasks = [asyncio.create_task(one()) for _ in range(options.connections)]
    await asyncio.wait(tasks, timeout=options.seconds)
    result = {
        "connections": len(lines),
        "refused": refused,
        "sent_bytes": sum(line.sent_bytes for line in lines),
        "closed": sum(line.closed for line in lines),
    }
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for line in lines:
        line.close()
    return result
