"""Ask the door of a node over HTTP, and read its events, with the standard library alone."""

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The JSON of each line of the body."""
        return [json.loads(line) for line in self.body.splitlines()]


def asked(
    address: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Ask once. A body that is not bytes is sent as JSON."""
    host, port = address.rsplit(":", 1)
    if tls is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=tls)
    found = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        found.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body, found)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read())
    finally:
        connection.close()


class Event(NamedTuple):
    """A server-sent event."""

    name: str
    id: str
    data: Any


class Events:
    """A stream of events, read as browsers read it."""

    def __init__(
        self, address: str, path: str, last: str = "", headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:  # fmt: skip
        host, port = address.rsplit(":", 1)
        self.last = last
        """The id of the last whole event."""
        self.comments = 0
        self._connection = http.client.HTTPConnection(host, int(port), timeout=timeout_s)
        found = dict(headers or {})
        if last:
            found["Last-Event-ID"] = last
        self._connection.request("GET", path, headers=found)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        if self.status == 200:
            assert self._answer.headers["Content-Type"] == "text/event-stream"

    def __iter__(self) -> Iterator[Event]:
        """Yield events until the stream ends. Raises OSError and HTTPException when it is cut."""
        name, last, data = "message", self.last, []
        while line := self._answer.readline():
            text = line.decode().rstrip("\n")
            if not text:
                self.last = last
                if data:
                    yield Event(name, last, json.loads("\n".join(data)))
                name, data = "message", []
                continue
            field, _, value = text.partition(": ")
            if not field:
                self.comments += 1
            elif field == "event":
                name = value
            elif field == "id":
                last = value
            elif field == "data":
                data.append(value)
            else:
                assert field == "", f"an unknown line {text!r}"

    @property
    def problem(self) -> Any:
        """The problem of an answer that is not a stream; the connection is closed."""
        told = json.loads(self._answer.read())
        self.close()
        return told

    def close(self) -> None:
        """Cut the connection."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._answer.close()


def until(condition: Any, what: str, timeout_s: float = 20.0) -> None:
    """Return when the condition holds. Raises AssertionError."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)
