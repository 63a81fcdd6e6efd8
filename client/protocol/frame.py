"""The frame codec: bytes in, messages out; no sockets, no clock.

A frame is `length: u32, crc32c: u32, payload`, big-endian. Length and checksum are those of the
payload, which is one msgpack array `[request_id, kind, body]`; `protocol` has the numbers of the
kinds. `Decoder.feed` returns the messages that the bytes completed. A violation of the protocol
ends the stream with one `Broken` event, after which nothing is decoded: after a bad frame the start
of the next frame is unknown.

The decoder checks the length before it keeps a byte of the payload. It bounds the memory and the
depth of containers, and so refuses a payload that is small on the wire and large in memory
(millions of empty arrays, an array that claims more elements than it has). It unpacks a long
payload in steps of at most a few milliseconds (see `packed`), one for each call of `next`.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

import google_crc32c
import msgpack

from . import http_instead, limits, name_of, packed
from .errors import InvalidArgument, LimitExceeded, LognodeError, RemoteProtocolError
from .frames import KIND_MAX
from .packed import Census

HEADER: Final = struct.Struct(">II")


class Frame(NamedTuple):
    """One message. `size` is the length on the wire with the header. `weight` is the approximate
    memory of the message, in bytes."""

    request_id: int
    kind: int
    body: dict[Any, Any]
    size: int
    weight: int


class Broken(NamedTuple):
    """The stream violates the protocol; answer with `error` and close."""

    error: LognodeError


Event = Frame | Broken


class Piecewise(ABC):
    """A field that packs itself."""

    @abstractmethod
    def pieces(self) -> list[bytes]:
        """Return the field in msgpack, in pieces."""


class Spliced(dict[str, Any]):
    """A body some of whose fields are `Piecewise`."""


def encode(request_id: int, kind: int, body: Any) -> bytes:
    """Return the frame of one message.

    Raises LimitExceeded when the frame is too large, InvalidArgument for an integer over 64 bits
    and for a text that is not valid Unicode.
    """
    try:
        if type(body) is Spliced:
            return _joined(kind, _pieces(request_id, kind, body))
        payload: bytes = msgpack.packb((request_id, kind, body))
    except OverflowError:
        raise InvalidArgument(
            f"a number in {name_of(kind)} has more than 64 bits; give a smaller number",
            what=name_of(kind),
        ) from None
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a text in {name_of(kind)} is not valid Unicode: {error.object!r:.100}; remove "
            "its lone surrogates", what=name_of(kind),
        ) from None  # fmt: skip
    _check_size(kind, len(payload))
    return HEADER.pack(len(payload), google_crc32c.value(payload)) + payload


def _pieces(request_id: int, kind: int, body: Mapping[str, Any]) -> list[bytes]:
    """Return the payload of a message in pieces, in the bytes of msgpack."""
    packer = msgpack.Packer()
    found = [packer.pack_array_header(3), packer.pack(request_id), packer.pack(kind)]
    found.append(packer.pack_map_header(len(body)))
    for name, value in body.items():
        found.append(packer.pack(name))
        found += value.pieces() if isinstance(value, Piecewise) else [packer.pack(value)]
    return found


def _joined(kind: int, pieces: list[bytes]) -> bytes:
    """Return a frame of these pieces, each copied once: a large page has most of its cost in
    copies to fresh memory."""
    size = sum(map(len, pieces))
    _check_size(kind, size)
    checksum = reduce(google_crc32c.extend, pieces, 0)
    return b"".join([HEADER.pack(size, checksum), *pieces])


def _check_size(kind: int, size: int) -> None:
    if size > limits.frame_bytes_max:
        raise LimitExceeded(
            f"the {name_of(kind)} frame has {size} bytes; at most {limits.frame_bytes_max} are "
            "allowed",
            limit="frame_bytes_max", value=size, allowed=limits.frame_bytes_max,
        )  # fmt: skip


class Decoder:
    """Incremental decoder for one direction of one connection.

    `put` takes bytes, and `next` returns their messages one by one. The owner calls `trust` when
    the other side has proved its identity. Before that, frames must be small.
    """

    def __init__(
        self,
        *,
        frame_bytes_max: int = limits.frame_bytes_max,
        memory_max: int = limits.frame_memory_max,
    ) -> None:
        self.broken = False
        self.in_steps = False
        """Whether `next` did one step of a long message and returned None: call it again."""
        self._frame_bytes_max = frame_bytes_max
        self._memory_max = memory_max
        self._data = b""
        self._at = 0
        """Bytes of the data that are consumed."""
        self._header = b""
        """An incomplete header."""
        self._wanted: tuple[int, int] | None = None
        """Length and checksum of an incomplete payload."""
        self._buffer = bytearray()
        """The incomplete payload."""
        self._checksum = 0
        """The checksum of the incomplete payload."""
        self._steps: Generator[None, None, Frame] | None = None
        """The steps of the long message that is being unpacked."""

    @classmethod
    def of_stranger(cls) -> "Decoder":
        """Return the decoder of a connection before the handshake."""
        return cls(
            frame_bytes_max=limits.handshake_bytes_max,
            memory_max=limits.handshake_memory_max,
        )

    def trust(self) -> None:
        """Accept large frames: the other side has proved its identity."""
        self._frame_bytes_max = limits.frame_bytes_max
        self._memory_max = limits.frame_memory_max

    @property
    def buffered(self) -> int:
        """Bytes of the incomplete frame that have arrived."""
        header = len(self._header) if self._wanted is None else HEADER.size
        return header + len(self._buffer)

    @property
    def pending(self) -> bool:
        """Whether `next` has something to do before more bytes are put."""
        return self.in_steps or self._at < len(self._data)

    @property
    def incomplete(self) -> int:
        """The length of the frame that has begun, once its header is here; else 0."""
        return 0 if self._wanted is None else HEADER.size + self._wanted[0]

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes of the stream and return all messages that they complete."""
        self.put(data)
        events: list[Event] = []
        while (event := self.next()) is not None or self.in_steps:
            if event is not None:
                events.append(event)
        return events

    def put(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self.broken:
            return
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0

    def next(self) -> Event | None:
        """Return the next message. None: more bytes, or while `in_steps` more calls, are needed."""
        if self._steps is not None:
            return self._step()
        data, at = self._data, self._at
        if self._header or self._wanted is not None or len(data) - at < HEADER.size:
            return self._complete()
        length, checksum = HEADER.unpack_from(data, at)
        begin = at + HEADER.size
        if begin + length > len(data):
            return self._complete()
        if length > self._frame_bytes_max:
            return self._too_long(length, checksum)
        self._at = begin + length
        payload = data[begin : self._at]
        return self._open(payload, checksum == google_crc32c.value(payload))

    def _complete(self) -> Event | None:
        """Add bytes to the incomplete frame. Return its message when the frame is complete."""
        if self._wanted is None:
            self._header += self._taken(HEADER.size - len(self._header))
            if len(self._header) < HEADER.size:
                return None
            self._wanted, self._header = HEADER.unpack(self._header), b""
        length, checksum = self._wanted
        if length > self._frame_bytes_max:
            return self._too_long(length, checksum)
        piece = self._taken(length - len(self._buffer))
        self._buffer += piece
        self._checksum = google_crc32c.extend(self._checksum, piece)
        if len(self._buffer) < length:
            return None
        payload, is_sound = self._buffer, checksum == self._checksum
        self._wanted, self._buffer, self._checksum = None, bytearray(), 0
        return self._open(memoryview(payload), is_sound)

    def _taken(self, count: int) -> bytes:
        """Return the next bytes of the data, at most `count`."""
        found = self._data[self._at : self._at + count]
        self._at += len(found)
        return found

    def _open(self, payload: bytes | memoryview, is_sound: bool) -> Event | None:
        if not is_sound:
            return self._break("a frame has a wrong checksum")
        size, census = len(payload), Census(self._memory_max)
        try:
            if size > packed.direct_bytes_max:
                if size <= packed.step_bytes_max:
                    packed.check_whole(payload)
                elif not _is_short(payload):
                    self._steps = _frame_steps(payload, census)
                    return self._step()
            message = packed.unpack_checked(payload, census, limits.frame_array_max)
            return _frame(message, size, census)
        except ValueError as error:
            return self._break(_reason(error))

    def _step(self) -> Event | None:
        """Do one step of the long message. Return the message after the last step."""
        self.in_steps = False
        if self._steps is None:
            return None
        try:
            next(self._steps)
        except StopIteration as done:
            self._steps = None
            found: Frame = done.value
            return found
        except ValueError as error:
            self._steps = None
            return self._break(_reason(error))
        self.in_steps = True
        return None

    def _too_long(self, length: int, checksum: int) -> Broken:
        too_long = f"a frame has {length} bytes; at most {self._frame_bytes_max} are allowed here"
        broken = self._break(too_long)
        if self._frame_bytes_max == limits.handshake_bytes_max:  # the other side may be anybody
            is_http = http_instead.recognised(HEADER.pack(length, checksum))
            return broken if is_http is None else Broken(is_http)
        return broken

    def _break(self, reason: str) -> Broken:
        self.broken = True
        self._data, self._at, self._header = b"", 0, b""
        self._wanted, self._buffer = None, bytearray()
        return Broken(RemoteProtocolError(reason))


_SHORT_VALUES: Final = 64
"""A payload of at most this many values, and one more for each KiB, is unpacked at once."""
_SHORT_MAX: Final = 1_024
_TOO_DEEP: Final = f"a frame is nested deeper than {limits.frame_nesting_max} levels"


class _NoMessageError(ValueError):
    """The payload is a msgpack value, but not a message."""


def _is_short(payload: bytes | memoryview) -> bool:
    return packed.is_short(payload, min(_SHORT_VALUES + len(payload) // limits.KIB, _SHORT_MAX))


def _frame_steps(payload: bytes | memoryview, census: Census) -> Generator[None, None, Frame]:
    """Unpack and check a message in steps. Raises ValueError."""
    message = yield from packed.unpack_steps(payload, census, array_max=limits.frame_array_max)
    if census.containers > limits.frame_nesting_max:
        yield from _depth_steps(message)
    return _frame(message, len(payload), census, deep=False)


def _depth_steps(message: Any) -> Generator[None, None, None]:
    too_deep = yield from packed.depth_steps(message, limits.frame_nesting_max)
    if too_deep:
        raise _NoMessageError(_TOO_DEEP)


def _frame(message: Any, size: int, census: Census, *, deep: bool = True) -> Frame:
    """Check the message and return it. `deep`: check the depth as well. Raises ValueError."""
    if type(message) is not list or len(message) < 3:
        raise _NoMessageError("a frame is not a message")
    request_id, kind, body = message[:3]
    if type(request_id) is not int or request_id < 0:
        raise _NoMessageError("the request id of a frame is not an integer of 0 or more")
    if type(kind) is not int or not 0 < kind <= KIND_MAX:
        raise _NoMessageError(f"the kind of a frame is not an integer of 1 to {KIND_MAX}")
    if type(body) is not dict:
        raise _NoMessageError("the body of a frame is not a map")
    # A payload has at least as many containers as levels, so few containers need no walk.
    if deep and census.containers > limits.frame_nesting_max:
        for _ in _depth_steps(message):
            pass
    size += HEADER.size
    return Frame(request_id, kind, body, size, size + census.memory)


def _reason(error: ValueError) -> str:
    if isinstance(error, _NoMessageError):
        return str(error)
    if isinstance(error, msgpack.StackError):
        return _TOO_DEEP
    if "max_ext_len" in str(error):
        return "a frame has an extension type; lognode uses no extension types"
    return f"a frame does not unpack: {error}"
