"""Requests to append that are larger than the node keeps: the batches are taken one after another.

Kafka takes requests of 100 MiB, and some clients put a batch of each partition into one request.
Such a request needs the memory of one batch at a time, for which the bounds of all other requests
hold. A batch that is handed over may be appended even if the rest of the request never arrives; the
client does not know then, as with every answer that is lost.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final

from ...client.protocol import limits
from . import codes
from .answers import Appended
from .api import PRODUCE, Head, head_of
from .producing import Settled
from .requests import Produce, Produced
from .room import FREE, Room
from .wire import ELEMENTS_MAX, Malformed, Reader

LARGE_BYTES_MAX: Final = 100 * limits.MIB
"""As `socket.request.max.bytes` of Kafka."""
NAMES_MAX: Final = limits.MIB
"""Bytes of the names of topics in a large request: the answer repeats them."""
_PART_S: Final = 30.0
"""How long a batch or a field may take to arrive."""
_SKIPPED_AT_ONCE: Final = 8 * limits.KIB
_HEAD: Final = struct.Struct(">hhih")
"""API, version, number, and the length of the client's name."""
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_PARTITION_AND_SIZE: Final = struct.Struct(">ii")
_NULL: Final = -1

Read = Callable[[int], Awaitable[bytes]]
Begin = Callable[[Produce], Awaitable[Settled]]


class LargeProduce:
    """A request of `size` bytes, which `read` returns in order. `batch_bytes_max`: the largest
    batch that is read; the bytes of a batch are held of `room` for the host. All calls raise
    Malformed, TimeoutError, and the errors of `read`."""

    def __init__(
        self, read: Read, size: int, *, room: Room, host: str, batch_bytes_max: int
    ) -> None:
        self._read = read
        self._left = size
        self._size = size
        self._room = room
        self._host = host
        self._batch_bytes_max = batch_bytes_max
        self._version = 0
        self._elements_left = ELEMENTS_MAX
        self._names_left = NAMES_MAX

    async def head(self) -> Head:
        """Return the head of the request, which is taken first."""
        begin = await self._take(_HEAD.size)
        *_, length = _HEAD.unpack(begin)
        head = head_of(Reader(begin + await self._take(max(0, length))))
        if head.api != PRODUCE:
            raise Malformed(
                f"a request has {self._size} bytes; only requests to append may have over "
                f"{self._batch_bytes_max}"
            )
        return head

    async def batches(self, begin: Begin) -> tuple[int, list[Settled]]:
        """Take what follows the head, and hand each batch to `begin`. Return `acks`, and what waits
        for the outcome of each batch."""
        transactional = await self._text() is not None
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack(await self._take(_ACKS_AND_TIMEOUT.size))
        named: set[tuple[str, int]] = set()
        begun: list[Settled] = []
        for _ in range(await self._count()):
            topic = await self._text()
            if topic is None:
                raise Malformed("a text is null")
            for _ in range(await self._count()):
                partition, size = _PARTITION_AND_SIZE.unpack(
                    await self._take(_PARTITION_AND_SIZE.size)
                )
                named.add((topic, partition))
                if len(named) == len(begun):
                    raise Malformed("the request names a partition twice")
                if size > self._batch_bytes_max:
                    await self._skip(size)
                    begun.append(_refused(Appended(topic, partition, codes.MESSAGE_TOO_LARGE)))
                    continue
                size = 0 if size == _NULL else size
                async with self._room.held(size, self._host) if size > FREE else nullcontext():
                    each = Produced(topic, partition, await self._take(size))
                    begun.append(await begin(Produce(transactional, acks, timeout_ms, [each])))
                    del each
        if self._left:
            raise Malformed(f"a request has {self._left} bytes behind its end")
        return acks, begun

    async def _take(self, size: int) -> bytes:
        if not 0 <= size <= self._left:
            raise Malformed(f"a field has {size} bytes, and the request ends early")
        self._left -= size
        async with asyncio.timeout(_PART_S):
            return await self._read(size)

    async def _skip(self, size: int) -> None:
        if size > self._left:
            raise Malformed(f"a field has {size} bytes, and the request ends early")
        while size:
            part = min(size, _SKIPPED_AT_ONCE)
            await self._take(part)
            size -= part

    async def _text(self) -> str | None:
        length = int.from_bytes(await self._take(2), "big", signed=True)
        if length == _NULL:
            return None
        self._names_left -= length
        if self._names_left < 0:
            raise Malformed(
                f"the names of topics in a request have over {NAMES_MAX} bytes. Send several "
                "requests"
            )
        try:
            return (await self._take(length)).decode()
        except UnicodeDecodeError:
            raise Malformed("a text is not UTF-8") from None

    async def _count(self) -> int:
        count = int.from_bytes(await self._take(4), "big", signed=True)
        if count == _NULL:
            return 0
        self._elements_left -= count
        if count < 0 or self._elements_left < 0:
            raise Malformed(
                f"a request names over {ELEMENTS_MAX} topics and partitions. Send several requests"
            )
        return count


def _refused(row: Appended) -> Settled:
    async def settled() -> list[Appended]:
        return [row]

    return settled
