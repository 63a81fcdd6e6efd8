"""A base on its way, fetched by two duties at once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from storage_node import StorageNode, descriptor, numbered_batch

from lognode.node.base_transfer import BaseFetcher, BaseServer
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

G1 = GroupId(1, 1)


class Wire:
    """A connection to a node in this process; every piece of a file takes a turn of the loop."""

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        self.asked: list[str] = []

    async def request(self, op: str, body: dict[str, Any], *, deadline: float) -> dict[str, Any]:
        self.asked.append(op)
        await asyncio.sleep(0)
        return self._server.describe(body) if op == "base" else self._server.piece(body)


def run(root: Path, test: Callable[[StorageNode, StorageNode, Wire], Awaitable[None]]) -> None:
    """On a node that holds a segment of range 1, and one that holds nothing."""

    async def main() -> None:
        giver, taker = StorageNode(root / "giver"), StorageNode(root / "taker")
        await giver.start()
        await taker.start()
        try:
            replica = await giver.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await giver.leading(replica)
            await replica.append(numbered_batch(1, [b"a", b"b"]))
            await giver.flusher.flush(replica)
            await test(giver, taker, Wire(BaseServer(giver.host)))
        finally:
            giver.stop()
            taker.stop()

    asyncio.run(main())


def fetcher(node: StorageNode, wire: Wire) -> BaseFetcher:
    return BaseFetcher(
        host=node.host, store=node.store, tmp=node.directory.tmp, sync=node.sync,
        connection=lambda _: wire,  # type: ignore[arg-type, return-value]
    )  # fmt: skip


def test_two_fetches_of_one_file_at_once_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    """Copying ahead was still under way when the seal came: both moved the same file into place,
    the second found nothing, took that for a failed disk, and the node stopped."""

    async def test(giver: StorageNode, taker: StorageNode, wire: Wire) -> None:
        taking = fetcher(taker, wire)
        bases = await asyncio.gather(
            taking.fetch(1, G1, pin="copy ahead"), taking.fetch(1, G1, pin="prepare")
        )
        assert taker.failure is None
        assert bases[0] == bases[1]
        assert all(taker.store.has(info.content_id) for info in bases[0].manifest)
        assert wire.asked.count("file") == len(bases[0].manifest) == 1

    run(tmp_path, test)
