"""Requests to append that are larger than the node keeps: the batches are taken one after another.

Kafka takes requests of 100 MiB, and some clients put a batch of each partition into one request.
The node reads a batch once it has memory for the batch, as for a whole request of another client,
and hands the batch over before it reads the next. Few batches are under way at a time. So a large
request needs no more memory than others, and takes no longer for its bytes than as many smaller
requests. A batch that is handed over may be appended even if the rest of the request never arrives.
The client then has no answer, as after any lost connection.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final

from ...client.protocol import limits
from ..runtime.slices import SLICE_S
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
_UNDER_WAY_MAX: Final = 16
"""Batches of a request whose outcomes are not known yet."""
_WAITS_S: Final = 60.0
"""How long a request may wait for the outcomes of its batches and for memory, all together, before
its other batches are refused: a range may have no majority, and the client has gone by then."""
_SKIPPED_AT_ONCE: Final = 8 * limits.KIB
_HEAD: Final = struct.Struct(">hhih")
"""API, version, number, and the length of the client's name."""
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_PARTITION_AND_SIZE: Final = struct.Struct(">ii")
_NULL: Final = -1

Read = Callable[[int], Awaitable[bytes]]
Begin = Callable[[Produce], Awaitable[Settled]]


class LargeProduce:
    """A request of `size` bytes, which `read` returns in order.

    `batch_bytes_max`: the largest batch that is read; the bytes of a batch are held of `room` for
    the host. `within_s`: how long the client may take, all reads together. All calls raise
    Malformed, TimeoutError, and the errors of `read`.
    """

    def __init__(
        self, read: Read, size: int, *, room: Room, host: str, batch_bytes_max: int,
        within_s: float,
    ) -> None:  # fmt: skip
        self._read = read
        self._size = self._left = size
        self._room = room
        self._host = host
        self._batch_bytes_max = batch_bytes_max
        self._seconds_left = within_s
        self._elements_left = ELEMENTS_MAX
        self._names_left = NAMES_MAX
        self._waits_left_s = _WAITS_S
        self._slice_ends = 0.0
        self._under_way: deque[Settled] = deque()
        self._rows: list[Appended] = []

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

    async def appended(self, begin: Begin) -> tuple[int, list[Appended]]:
        """Take what follows the head, and hand each batch to `begin`. Return `acks`, and the
        outcome of each batch."""
        transactional = await self._text() is not None
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack(await self._take(_ACKS_AND_TIMEOUT.size))
        request = Produce(transactional, acks, timeout_ms, [])
        named: set[tuple[str, int]] = set()
        for _ in range(await self._count()):
            topic = await self._text()
            if topic is None:
                raise Malformed("a text is null")
            for _ in range(await self._count()):
                partition, size = _PARTITION_AND_SIZE.unpack(
                    await self._take(_PARTITION_AND_SIZE.size)
                )
                if (topic, partition) in named:
                    raise Malformed("the request names a partition twice")
                named.add((topic, partition))
                await self._give_way()
                await self._settle(_UNDER_WAY_MAX - 1)
                size = 0 if size == _NULL else size
                self._under_way.append(await self._begun(request, topic, partition, size, begin))
        if self._left:
            raise Malformed(f"a request has {self._left} bytes behind its end")
        await self._settle(0)
        return acks, self._rows

    async def _begun(
        self, request: Produce, topic: str, partition: int, size: int, begin: Begin
    ) -> Settled:
        """Take a batch of `size` bytes and hand it over, or pass the bytes of a refused batch."""
        refused = codes.NONE
        if size > self._batch_bytes_max:
            refused = codes.MESSAGE_TOO_LARGE
        elif self._waits_left_s <= 0:
            refused = codes.NOT_ENOUGH_REPLICAS
        if refused:
            await self._skip(size)
            return _refused(Appended(topic, partition, refused))
        async with self._room.held(size, self._host) if size > FREE else nullcontext():
            each = Produced(topic, partition, await self._take(size))
            began = time.monotonic()
            settled = await begin(request._replace(batches=[each]))
            self._waits_left_s -= time.monotonic() - began
            return settled

    async def _give_way(self) -> None:
        """Let the loop run in between: a batch may be a few bytes, which are there."""
        if time.perf_counter() > self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.perf_counter() + SLICE_S

    async def _settle(self, most: int) -> None:
        """Wait for the oldest batches under way until there are at most so many."""
        began = time.monotonic()
        while len(self._under_way) > most:
            self._rows += await self._under_way.popleft()()
        self._waits_left_s -= time.monotonic() - began

    async def _take(self, size: int) -> bytes:
        if not 0 <= size <= self._left:
            raise Malformed(f"a field has {size} bytes, and the request ends early")
        self._left -= size
        began = time.monotonic()
        async with asyncio.timeout(self._seconds_left):
            data = await self._read(size)
        self._seconds_left -= time.monotonic() - began
        return data

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
