"""Frames, errors and connections of the client that knows nothing of lognode but docs/protocol.md.

See `foreign_client`. A connection blocks, and is of one thread.
"""

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

import msgpack

HELLO, WELCOME, OK, ERROR, PUSH, END, CREDIT, CANCEL, ALIVE, PING = 1, 2, 4, 5, 6, 7, 8, 9, 10, 11
OPERATIONS = {
    "append": 32, "fence": 33, "producer_close": 34, "producer_number": 35, "trim": 36,
    "delete_keys": 37, "lease": 38, "release": 39, "latest": 48, "count": 49, "scan": 50,
    "keys": 51, "read_span": 52, "export": 53, "resolve": 54, "layout": 55, "follow": 56,
    "metadata": 64, "status": 65, "health": 66, "create_log": 67, "alter_log": 68, "delete_log": 69,
    "producer_open": 70, "range_transfer": 72, "range_split": 74, "range_merge": 75,
    "range_recovery": 76, "node_drain": 78, "ranges": 81, "producers": 82, "producer_delete": 83,
    "quota_set": 84, "quota_delete": 85, "quota_list": 86,
    "usage": 87, "token_create": 88, "token_list": 89, "token_revoke": 90,
    "node_invite": 91, "node_invites": 92, "node_uninvite": 93,
}  # fmt: skip
ONCE = {"create_log", "delete_log", "producer_delete", "range_split", "range_merge",
        "quota_delete", "token_revoke", "node_uninvite"}  # fmt: skip
"""Operations that are not repeated once their outcome is unknown."""
RETRIED = {"ROUTING", "NOT_LEADER", "GENERATION_MISMATCH", "SEALED", "OUT_OF_ORDER",
           "RANGE_NOT_FOUND", "OVERLOADED", "OPERATION_IN_PROGRESS", "UNAVAILABLE",
           "TIMEOUT"}  # fmt: skip
FRAME_BYTES, HELLO_BYTES = 9_437_184, 65_536

Body = dict[str, Any]
Seen = Callable[[str, str, Body], None]
"""Told of each message: `request`, `answer`, `push` or `frame`, the operation, and the body."""


def _crc_row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC = [_crc_row(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """The checksum of a payload."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Refused(Exception):
    """An ERROR, or what the client found out itself: `code`, `outcome` and `fields` as on the page.

    `lost`: the connection has ended, or no answer came.
    """

    def __init__(self, code: str, message: str, outcome: str, fields: Body, *, lost: bool = False):
        super().__init__(f"{code}: {message}")
        self.code, self.outcome, self.fields, self.lost = code, outcome, fields, lost

    @classmethod
    def of(cls, body: Body) -> "Refused":
        """What the body of an ERROR says."""
        return cls(body["code"], body["message"], body["outcome"], body.get("fields") or {})


def lost(why: str, outcome: str = "unknown", **fields: Any) -> Refused:
    return Refused("UNAVAILABLE", why, outcome, fields, lost=True)


class Connection:
    """One connection after its handshake. A request waits for its answer; frames of streams that
    come in between are kept for their readers."""

    def __init__(
        self, address: str, *, token: str | None, tls: ssl.SSLContext | None, cluster: str | None,
        seen: Seen,
    ) -> None:  # fmt: skip
        self.seen = seen
        self.ended: Refused | None = None
        self._names: dict[int, str] = {}
        """Requests that wait for a frame, with their operations."""
        self._frames: dict[int, list[tuple[int, Body, int]]] = {}
        self._next_id = 1
        self._buffer = bytearray()
        self._frame_bytes = HELLO_BYTES
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            self._socket = socket.create_connection((host, int(port)), 5)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise lost(f"{address}: {error}", "not_applied") from None
        try:
            self._greet(token, cluster)
        except Refused as error:
            self.close()
            error.outcome = "not_applied"  # no request has left
            raise
        self._frame_bytes = FRAME_BYTES

    def _greet(self, token: str | None, cluster: str | None) -> None:
        hello: Body = {
            "magic": "lognode", "versions": [2, 2], "role": "client", "cluster": cluster,
            "node": None, "incarnation": 0, "nonce": os.urandom(32), "compressions": ["zstd"],
        }  # fmt: skip
        if token is not None:
            hello["token"] = token
        self.seen("frame", "HELLO", hello)
        self._send(0, HELLO, hello)
        deadline = time.monotonic() + 5
        while not (frames := self._frames.pop(0, [])):
            if not self._read(deadline):
                raise lost("no welcome", "not_applied")
        (kind, body, _), *_ = frames
        if kind != WELCOME:
            raise lost(f"frame of kind {kind} in place of a welcome", "not_applied")
        self.seen("frame", "WELCOME", body)
        if body["version"] != 2 or len(body["nonce"]) != 32:
            raise lost("a welcome of another version", "not_applied")
        self.cluster, self.node = body.get("cluster"), body.get("node")

    def close(self) -> None:
        """End the connection."""
        self.ended = self.ended or lost("closed by the client")
        self._socket.close()

    def ask(self, operation: str, body: Body, deadline: float) -> Body:
        """One request and its answer. Raises Refused."""
        request_id = self.begin(operation, body)
        try:
            kind, answer, _ = self._wait(request_id, deadline)
        finally:
            self._names.pop(request_id, None)
        if kind == ERROR:
            raise Refused.of(answer)
        if kind != OK:
            raise Refused("REMOTE_PROTOCOL_ERROR", f"frame of kind {kind}", "unknown", {})
        return answer

    def begin(self, operation: str, body: Body) -> int:
        """Send a request; its id."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._names[request_id] = operation
        self.seen("request", operation, body)
        self._send(request_id, OPERATIONS[operation], body)
        return request_id

    def tell(self, operation: str, body: Body) -> None:
        """A one-way message."""
        self.seen("request", operation, body)
        self._send(0, OPERATIONS[operation], body)

    def grant(self, request_id: int, size: int) -> None:
        """Give back bytes of a stream that were read."""
        self.seen("frame", "CREDIT", {"bytes": size})
        self._send(request_id, CREDIT, {"bytes": size})

    def cancel(self, request_id: int) -> None:
        """The answer is not wanted any more."""
        if self._names.pop(request_id, None) is not None and self.ended is None:
            self._send(request_id, CANCEL, {})
        self._frames.pop(request_id, None)

    def ping(self, deadline: float) -> None:
        """Return once the other side has answered."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._names[request_id] = "ping"
        self._send(request_id, PING, {})
        kind, body, _ = self._wait(request_id, deadline)
        assert (kind, body) == (OK, {}), "a ping is answered with an empty OK"

    def take(self, request_id: int) -> list[tuple[int, Body, int]]:
        """The frames of a stream that have arrived: kind, body, and size with the header."""
        return self._frames.pop(request_id, [])

    def pump(self, seconds: float) -> None:
        """Read what arrives within a time, at most one frame. Raises Refused at the end."""
        self._read(time.monotonic() + seconds)

    def _wait(self, request_id: int, deadline: float) -> tuple[int, Body, int]:
        silent_since, pinged = time.monotonic(), False
        while not (frames := self._frames.get(request_id)):
            now = time.monotonic()
            if now > deadline:
                self.cancel(request_id)
                raise Refused("TIMEOUT", "no answer in time", "unknown", {}, lost=True)
            if now - silent_since > 2.5:
                self.close()
                raise lost("silent")
            if now - silent_since > 1 and not pinged:
                pinged, self._next_id = True, self._next_id + 1
                self._send(self._next_id - 1, PING, {})
            if self._read(min(deadline, now + 0.5)):
                silent_since, pinged = time.monotonic(), False
        return frames.pop(0)

    def _send(self, request_id: int, kind: int, body: Body) -> None:
        payload = msgpack.packb([request_id, kind, body])
        if self.ended is not None:
            raise lost("the connection has ended", "not_applied")
        try:
            self._socket.settimeout(10)
            self._socket.sendall(struct.pack(">II", len(payload), crc32c(payload)) + payload)
        except OSError as error:
            self._end(lost(f"while sending: {error}"))

    def _read(self, deadline: float) -> bool:
        """Take one frame, or wait for more bytes; whether any came. Raises Refused at the end."""
        if self._take_frame():
            return True
        if self.ended is not None:
            raise self.ended
        wait_s = max(0.0, deadline - time.monotonic())
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not pending and not select.select([self._socket], [], [], wait_s)[0]:
            return False
        try:
            self._socket.settimeout(1)
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return False  # a part of a TLS record
        except OSError as error:
            self._end(lost(str(error)))
        if not data:
            self._end(lost("closed by the other side"))
        self._buffer += data
        self._take_frame()
        return True

    def _take_frame(self) -> bool:
        if len(self._buffer) < 8:
            return False
        length, checksum = struct.unpack_from(">II", self._buffer)
        if length > self._frame_bytes:
            self._end(lost(f"a frame of {length} bytes"))
        if len(self._buffer) < 8 + length:
            return False
        payload = bytes(self._buffer[8 : 8 + length])
        del self._buffer[: 8 + length]
        if crc32c(payload) != checksum:
            self._end(lost("a checksum does not hold"))
        request_id, kind, body, *_ = msgpack.unpackb(payload, strict_map_key=False)
        self._sort(request_id, kind, body, 8 + length)
        return True

    def _sort(self, request_id: int, kind: int, body: Body, size: int) -> None:
        """Keep a frame for the caller that waits for it."""
        if kind == ERROR:
            self.seen("frame", "ERROR", body)
        if request_id == 0 and kind == ERROR:
            reason = (body.get("fields") or {}).get("reason")
            outcome = "not_applied" if reason == "idle" else "unknown"
            self.ended = Refused.of({**body, "outcome": outcome})
            self.ended.lost = True
            raise self.ended
        if request_id == 0:
            if kind == WELCOME:
                self._frames[0] = [(kind, body, size)]
        elif request_id in self._names:
            if kind in (OK, PUSH) and self._names[request_id] != "ping":
                self.seen("answer" if kind == OK else "push", self._names[request_id], body)
            self._frames.setdefault(request_id, []).append((kind, body, size))

    def _end(self, why: Refused) -> None:
        self.ended = why
        self._socket.close()
        raise why
