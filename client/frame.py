"""The frame codec: bytes in, messages out; no sockets, no clock.

A frame is `length: u32, crc32c: u32, payload`, big-endian, both over the payload, which is one
msgpack array `[request_id, kind, body]`. `Decoder.feed` returns what the bytes completed; what is
not the protocol ends the stream with one `Broken` event, after which nothing is decoded: past a
bad frame no byte can be trusted to be a frame's first.

The length is checked before a byte of the payload is kept. A payload small on the wire but large
in memory (millions of empty arrays, a column that claims more elements than it has) is refused by
bounds on the number, size and depth of containers.
"""

import struct
from typing import Any, Final, NamedTuple

import google_crc32c
import msgpack

from . import limits
from .errors import InvalidArgument, LimitExceeded, LognodeError, RemoteProtocolError

HEADER: Final = struct.Struct(">II")
kind_chars_max: Final = 64


class Frame(NamedTuple):
    """One message. `size` is its length on the wire, header included."""

    request_id: int
    kind: str
    body: dict[Any, Any]
    size: int


class Broken(NamedTuple):
    """The stream is not the protocol (any more); answer with `error` and close."""

    error: LognodeError


Event = Frame | Broken


def encode(request_id: int, kind: str, body: Any) -> bytes:
    """The frame of one message.

    Raises LimitExceeded when it is larger than a frame may be, InvalidArgument for an integer that
    has no 64 bits and for a text that is not valid Unicode.
    """
    try:
        payload: bytes = msgpack.packb((request_id, kind, body))
    except OverflowError:
        raise InvalidArgument(
            f"a number in a request {kind!r} is out of range: it has more than 64 bits", what=kind
        ) from None
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a text in a request {kind!r} is not valid Unicode: {error.object!r:.100}; "
            "take its lone surrogates out", what=kind,
        ) from None  # fmt: skip
    size = len(payload)
    if size > limits.frame_bytes_max:
        raise LimitExceeded(
            f"{kind} of {size} bytes; a frame has at most {limits.frame_bytes_max}",
            limit="frame_bytes_max", value=size, allowed=limits.frame_bytes_max,
        )  # fmt: skip
    return HEADER.pack(size, google_crc32c.value(payload)) + payload


class Decoder:
    """Incremental decoder of one direction of one connection.

    `frame_bytes_max` may be raised once the other side has proved who it is; until then a small
    one keeps strangers from making this side buffer.
    """

    def __init__(self, *, frame_bytes_max: int = limits.frame_bytes_max) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.broken = False
        self._buffer = bytearray()
        self._wanted = HEADER.size

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the stream; return the frames that they complete."""
        if self.broken:
            return []
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return []
            data = bytes(buffer)
            buffer.clear()
        events: list[Event] = []
        at, end = 0, len(data)
        while True:
            self._wanted = HEADER.size
            if end - at < HEADER.size:
                break
            length, checksum = HEADER.unpack_from(data, at)
            if length > self.frame_bytes_max:
                self._break(events, f"frame of {length} bytes; at most "
                            f"{self.frame_bytes_max} are allowed here")  # fmt: skip
                return events
            self._wanted += length
            if end - at < self._wanted:
                break
            payload = data[at + HEADER.size : at + self._wanted]
            at += self._wanted
            if google_crc32c.value(payload) != checksum:
                self._break(events, "frame with a wrong checksum")
                return events
            try:
                events.append(_unpack(payload))
            except _BadPayloadError as error:
                self._break(events, str(error))
                return events
        buffer += memoryview(data)[at:]
        return events

    def _break(self, events: list[Event], reason: str) -> None:
        self.broken = True
        events.append(Broken(RemoteProtocolError(reason)))


_TOO_DEEP: Final = f"frame nested deeper than {limits.frame_nesting_max}"


class _BadPayloadError(Exception):
    """A payload that is not a message; the text says why."""


class _Containers:
    """Counts the arrays and maps of a payload while it is unpacked, in C but for this call."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, container: Any) -> Any:
        self.count += 1
        if self.count > limits.frame_containers_max:
            raise _BadPayloadError(f"frame with over {limits.frame_containers_max} arrays and maps")
        return container


def _refuse_extension(code: int, _data: bytes) -> Any:
    raise _BadPayloadError(f"frame with an extension type {code}")


def _unpack(payload: bytes) -> Frame:
    containers = _Containers()
    try:
        message = msgpack.unpackb(
            payload,
            strict_map_key=False,
            list_hook=containers,
            object_hook=containers,
            ext_hook=_refuse_extension,
            max_array_len=limits.frame_array_max,
            max_map_len=limits.frame_array_max,
        )
    except _BadPayloadError:
        raise
    except msgpack.StackError:
        raise _BadPayloadError(_TOO_DEEP) from None
    except Exception as error:  # msgpack raises half a dozen unrelated classes
        raise _BadPayloadError(f"frame that does not unpack: {type(error).__name__}") from None
    if type(message) is not list or len(message) < 3:
        raise _BadPayloadError("frame that is not a message")
    request_id, kind, body = message[:3]
    if type(request_id) is not int or request_id < 0:
        raise _BadPayloadError("frame whose request id is not an integer from 0 up")
    if type(kind) is not str or not 0 < len(kind) <= kind_chars_max:
        raise _BadPayloadError("frame without the name of an operation")
    if type(body) is not dict:
        raise _BadPayloadError("frame whose body is not a map")
    # As many containers as levels at most: only a frame with more of them needs the walk.
    if containers.count > limits.frame_nesting_max and _too_deep(message):
        raise _BadPayloadError(_TOO_DEEP)
    return Frame(request_id, kind, body, len(payload) + HEADER.size)


def _too_deep(message: list[Any]) -> bool:
    level: list[Any] = [message]
    for _ in range(limits.frame_nesting_max):
        below: list[Any] = []
        for container in level:
            elements = container.values() if type(container) is dict else container
            kinds = set(map(type, elements))
            if list in kinds or dict in kinds:
                below += [e for e in elements if type(e) is list or type(e) is dict]
        if not below:
            return False
        level = below
    return True
