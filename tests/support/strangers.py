"""Raw connections to a node, for tests of what must not hurt it."""

import random
import socket
import struct
from pathlib import Path

import google_crc32c

from lognode import testing
from lognode.client.protocol import frames, wire
from lognode.client.protocol.frame import Broken, Decoder, Frame, encode
from lognode.client.protocol.wire import Hello, Welcome

HEADER = struct.Struct(">II")


class Stranger:
    """A raw connection to a node: any bytes out, frames in."""

    def __init__(self, node: testing.LocalNode, role: wire.Role = "client") -> None:
        """`role`: of the port that is dialled."""
        address = node.address if role == "client" else node.peer
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=15)
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        while not self._frames:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                return None  # bytes of ours were still unread when the node closed
            if not data:
                return None
            for event in self._decoder.feed(data):
                assert not isinstance(event, Broken)
                self._frames.append(event)
        return self._frames.pop(0)

    def greet(self, hello: Hello) -> Welcome:
        """The first half of the handshake."""
        self.send(encode(0, frames.HELLO, hello.to_body()))
        frame = self.frame()
        assert frame is not None
        assert frame.kind == frames.WELCOME, frame
        return Welcome.from_body(frame.body)

    def refused(self) -> str:
        """The reason, in one line, after which the connection ends."""
        frame = self.frame()
        assert frame is not None, "closed without a reason"
        assert (frame.request_id, frame.kind) == (0, frames.ERROR), frame
        assert self.frame() is None
        message = str(frame.body["message"])
        assert "\n" not in message
        return message


def hello(role: wire.Role = "client", cluster: str | None = None, node: int | None = None) -> Hello:
    return Hello(role=role, nonce=random.randbytes(wire.nonce_bytes), cluster=cluster, node=node)


def framed(payload: bytes) -> bytes:
    """A frame with the right length and checksum around any payload."""
    return HEADER.pack(len(payload), google_crc32c.value(payload)) + payload


def peak_bytes(node: testing.LocalNode) -> int:
    """The most memory that the process ever had resident."""
    for line in Path(f"/proc/{node.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("a process without memory")
