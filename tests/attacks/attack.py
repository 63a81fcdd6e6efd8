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
from pathlib import Path
from typing import Any

from channel import Channel, context

from lognode.client.protocol import Operation, frame, frames, wire
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.errors import CorruptData

Body = dict[str, Any]
_AGAIN_S = 0.02
"""Between attempts to connect that the node refuses."""
RECEIVE_BUFFER_BYTES = 64 << 10
"""A small one, so that the kernel of the attacker holds little of what the node sends."""


class Line:
    """One connection that reads only when it is told to."""

    def __init__(self, sock: socket.socket, options: argparse.Namespace) -> None:
        self.options = options
        self.sent_bytes = 0
        self.closed = False
        """Whether the node has ended the connection."""
        self.renewals = self.refused = 0
        """Connections after the first one, and how many attempts at one failed."""
        self._sock = sock
        self._channel = Channel(sock)
        self._decoder = frame.Decoder()
        self._frames: list[frame.Frame] = []
        self._next_id = 1

    @classmethod
    async def connect(cls, options: argparse.Namespace) -> "Line":
        """Connect from the address `source`, and say nothing."""
        host, port = options.address.rsplit(":", 1)
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.setblocking(False)
        try:
            if options.source:
                sock.bind((options.source, 0))
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        except BaseException:
            sock.close()
            raise
        return cls(sock, options)

    @classmethod
    async def secured(cls, options: argparse.Namespace) -> "Line":
        """Connect, and shake hands of TLS where the options name files for that."""
        line = await cls.connect(options)
        wanted = context(options)
        try:
            if wanted is not None:
                await line._channel.secure(wanted, options.address.rsplit(":", 1)[0])
        except BaseException:
            line.close()
            raise
        return line

    @classmethod
    async def open(cls, options: argparse.Namespace) -> "Line":
        """Connect and shake hands as a client."""
        line = await cls.secured(options)
        try:
            await line.greet(token=token_of(options))
        except BaseException:
            line.close()
            raise
        return line

    async def greet(self, role: wire.Role = "client", **claims: Any) -> Body:
        """Say hello and return the welcome. Raises ConnectionError for a refusal."""
        hello = wire.Hello(role=role, nonce=os.urandom(wire.nonce_bytes), **claims)
        await self.write(frame.encode(0, frames.HELLO, hello.to_body()))
        welcome = await self.read()
        if welcome.kind != frames.WELCOME:
            raise ConnectionError(f"no welcome: {welcome.body}")
        return welcome.body

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
            await self._channel.sendall(data)
        except OSError:
            self.closed = True
            raise ConnectionError("the node has ended the connection") from None
        self.sent_bytes += len(data)
        await asyncio.sleep(0)  # a socket that takes everything would let nothing else run

    async def read(self) -> frame.Frame:
        """Read one frame."""
        while not self._frames:
            data = await self.receive()
            if not data:
                raise ConnectionError("the node has ended the connection")
            for event in self._decoder.feed(data):
                if isinstance(event, frame.Broken):
                    raise event.error
                self._frames.append(event)
        return self._frames.pop(0)

    async def receive(self) -> bytes:
        """Read some bytes; b"" at the end."""
        try:
            data = await self._channel.recv()
        except OSError:
            data = b""
        self.closed = not data
        return data

    async def until_closed(self) -> None:
        """Wait until the node ends the connection, without reading anything of it."""
        while not self.closed:
            await asyncio.sleep(0.2)
            # 1 is TCP_ESTABLISHED. A reset shows here although nothing is read.
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            self.closed = struct.unpack("B", info)[0] != 1

    async def renew(self, begin: "Begin") -> None:
        """Go on over a new connection; wait for as long as the node lets none in."""
        self.close()
        while True:
            try:
                self._become(await begin(self.options))
            except (OSError, CorruptData):
                self.refused += 1
                await asyncio.sleep(_AGAIN_S)
            else:
                self.renewals += 1
                return

    def _become(self, other: "Line") -> None:
        self.sent_bytes += other.sent_bytes
        self._sock, self._channel, self.closed = other._sock, other._channel, other.closed
        self._decoder, self._frames = other._decoder, other._frames

    def close(self) -> None:
        """End the connection."""
        self._sock.close()


Attack = Callable[[Line, argparse.Namespace], Awaitable[None]]
Begin = Callable[[argparse.Namespace], Awaitable[Line]]


def arguments() -> argparse.ArgumentParser:
    """The options that every attack has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True, help="host:port of the node")
    parser.add_argument("--log", default="attacked", help="a log that exists")
    parser.add_argument("--key", default="k", help="a key of the log with many entries")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="the program ends after them")
    parser.add_argument("--source", default="", help="the local address to connect from")
    parser.add_argument("--ca", default="", help="speak TLS with nodes whose certificate is of it")
    parser.add_argument("--cert", default="", help="the certificate to show")
    parser.add_argument("--key-file", dest="private", default="", help="the key of --cert")
    parser.add_argument("--token", default="", help="a file with the token to show")
    return parser


def token_of(options: argparse.Namespace) -> str | None:
    """The token that the options name."""
    return Path(options.token).read_text().strip() if options.token else None


async def range_of(line: Line, log: str, key: bytes = b"") -> Body:
    """The range and generation of the log's range with the key, as requests name them."""
    metadata = await line.ask(METADATA, {"log": log})
    starts = [row["start"] for row in metadata["ranges"]]
    found = metadata["ranges"][starts.index(max(start for start in starts if start <= key))]
    return {"range": found["id"], "generation": found["generation"]}


def main(attack: Attack, parser: argparse.ArgumentParser, begin: Begin = Line.open) -> None:
    """Run the attack on every connection at once and print the result."""
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
            line = await begin(options)
        except (OSError, CorruptData):
            refused += 1
            return
        lines.append(line)
        with contextlib.suppress(ConnectionError, CorruptData):
            await attack(line, options)

    tasks = [asyncio.create_task(one()) for _ in range(options.connections)]
    await asyncio.wait(tasks, timeout=options.seconds)
    result = {
        "connections": len(lines),
        "refused": refused,
        "sent_bytes": sum(line.sent_bytes for line in lines),
        "closed": sum(line.closed for line in lines),
        "again": sum(line.renewals for line in lines),
        "refused_again": sum(line.refused for line in lines),
    }
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for line in lines:
        line.close()
    return result
