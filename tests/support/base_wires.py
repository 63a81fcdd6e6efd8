"""Two nodes of this process: a giver with segments of range 1, and a taker that fetches a base."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from storage_node import StorageNode, descriptor, numbered_batch

from lognode.client.connection import Connection
from lognode.client.protocol import Operation, frame, frames
from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.peers import BASE, BASE_PIECE, FILE, FILE_CHECK
from lognode.client.protocol.records import encode_batch
from lognode.node.lifecycle.base_server import BaseServer
from lognode.node.lifecycle.base_transfer import BaseFetcher
from lognode.node.metrics import Metrics
from lognode.node.runtime.rate import TokenBucket
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

G1 = GroupId(1, 1)
PIECE = 64 << 10


class Wire:
    """A connection to a node in this process; every piece of a file takes a turn of the loop.

    After `breaks_after` requests it is lost. `spoil` may change what comes.
    """

    def __init__(self, server: BaseServer, breaks_after: float = float("inf")) -> None:
        self._server = server
        self._left = breaks_after
        self.asked: list[tuple[Operation, int]] = []
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self.lost: BaseException | None = None

    async def request(
        self, op: Operation, body: dict[str, Any], *, deadline: float
    ) -> dict[str, Any]:
        self.asked.append((op, body.get("offset", 0)))
        await asyncio.sleep(0)
        self._left -= 1
        if self._left < 0:
            self.lost = Unavailable("the link broke")
            raise Unavailable("the link broke")
        if op is BASE:
            return op.check_answer(framed(await self._server.describe(2, body)))
        if op is BASE_PIECE:
            return op.check_answer(framed(await self._server.base_piece(2, body)))
        if op is FILE_CHECK:
            return await self._server.check(2, body)
        answer = await self._server.piece(2, FILE.request.check(body))
        return {"data": self.spoil(answer["data"])}

    def close(self) -> None:
        """It is not dialled again."""

    def offsets(self) -> list[int]:
        """Of the pieces that were asked for."""
        return [offset for op, offset in self.asked if op is FILE]


def framed(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer as it arrives in a frame."""
    (event,) = frame.Decoder().feed(frame.encode(1, frames.OK, answer))
    assert isinstance(event, frame.Frame), event
    return event.body


class Nodes:
    """A giver that holds segments of range 1, and a taker that holds nothing."""

    def __init__(self, giver: StorageNode, taker: StorageNode) -> None:
        self.giver = giver
        self.taker = taker
        self.sent = Metrics()
        bucket = TokenBucket(0, lambda: 0.0)
        self.server = BaseServer(giver.host, bucket, self.doubted, self.sent)

    def doubted(self, gid: GroupId, content_id: str, error: CorruptData) -> None:
        """No peer has the file."""
        self.giver.host.damage(self.giver.host.groups[gid], error)

    def fetcher(self, wire: Wire, *redialled: Wire) -> BaseFetcher:
        """`redialled` are the connections that follow when one is lost."""
        wires = iter([wire, *redialled])

        async def dial(_: int) -> Connection:
            found = next(wires, None)
            if found is None:
                raise Unavailable("nobody answers")
            return found  # type: ignore[return-value]

        clock = itertools.count(0, 3600)  # so much time passes that nobody waits
        bucket = TokenBucket(4 * PIECE, lambda: float(next(clock)))
        node = self.taker
        return BaseFetcher(
            host=node.host, store=node.store, tmp=node.directory.tmp, sync=node.files,
            connection=lambda _: wire, dial=dial,  # type: ignore[arg-type, return-value]
            bucket=bucket, metrics=Metrics(),
        )  # fmt: skip

    def holds_all(self, base: Base) -> bool:
        store = self.taker.store
        return all(store.has(info.content_id) for info in base.manifest)


def run(root: Path, test: Callable[[Nodes], Awaitable[None]], *, pieces: int = 1) -> None:
    """With a segment of about so many pieces."""

    async def main() -> None:
        giver, taker = StorageNode(root / "giver"), StorageNode(root / "taker")
        await giver.start()
        await taker.start()
        try:
            replica = await giver.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await giver.leading(replica)
            await replica.append(numbered_batch(1, [b"a", b"b"]))
            for number in range(pieces - 1):
                await replica.append(batch(number))
            await giver.flusher.flush(replica)
            await test(Nodes(giver, taker))
            assert giver.failure is None
            assert taker.failure is None
        finally:
            giver.stop()
            taker.stop()

    asyncio.run(main())


def batch(number: int) -> bytes:
    value = random.Random(number).randbytes(PIECE)
    return encode_batch([b"k%d" % number], [value], producer=0, epoch=0, low=1, numbers=1)
