"""What nemeses are tested against: links that only note what they are told, and real nodes."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import lognode
from lognode.chaos.nemeses import Target
from lognode.chaos.nodes import Nodes

LOG = "orders"


class NotedLinks:
    """Connections as they are, without proxies; `now` is what is wrong with them by the notes."""

    def __init__(self) -> None:
        self.now: dict[tuple[int, int], list[str]] = {}
        self._nodes: dict[int, str] = {}
        self._peers: dict[int, str] = {}

    async def start(
        self, nodes: Mapping[int, str], peers: Mapping[int, str] | None = None,
        side_doors: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        self._nodes, self._peers = dict(nodes), dict(peers or nodes)
        self._side_doors = dict(side_doors or {})

    def address(self, pair: tuple[int, int]) -> str:
        return (self._peers if pair[0] else self._nodes)[pair[1]]

    def side_door(self, number: int) -> str:
        return self._side_doors[number]

    async def cut(self, pairs: Collection[tuple[int, int]], how: str) -> None:
        for pair in pairs:
            self.now.setdefault(pair, []).append(how)

    async def toxic(
        self, pairs: Collection[tuple[int, int]], kind: str, *, stream: str = "downstream",
        toxicity: float = 1.0, **attributes: Any,
    ) -> None:  # fmt: skip
        for pair in pairs:
            self.now.setdefault(pair, []).append(f"{kind} {stream}")

    async def heal(self, pairs: Collection[tuple[int, int]] | None = None) -> None:
        for pair in list(self.now) if pairs is None else pairs:
            self.now.pop(pair, None)


class CountedCrashes:
    """Dummy clients; counts how many crashed."""

    def __init__(self) -> None:
        self.count = 0

    async def crash(self) -> str:
        self.count += 1
        return "crash of a client"


@asynccontextmanager
async def real_nodes(
    root: Path, seed: int, links: Any = None, *, count: int = 3, mounted: bool = False
) -> AsyncIterator[Target]:
    """Real nodes with a log of two ranges and some entries, healthy before it begins.

    `mounted`: their disks can lose power, and be slow."""
    links = links or NotedLinks()
    nodes = Nodes(root, count, links, mounted=mounted)
    try:
        await nodes.start()
        async with lognode.AsyncClient(nodes.servers, timeout=30) as client:
            log = await client.create_log(LOG, split_at=["m"])
            for key in (b"a", b"b", b"c", b"x", b"y", b"z"):
                await log.append(key, b"first")
            target = Target(nodes, links, client, LOG, random.Random(seed), CountedCrashes())
            await healthy(target)
            yield target
    finally:
        for node in nodes:
            node.resume()
        await nodes.stop()


async def until(condition: Callable[[], Awaitable[object]], what: str, timeout_s: float) -> None:
    """Return when it holds. Raises AssertionError."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.02)


async def healthy(target: Target, timeout_s: float = 60.0) -> None:
    """Return when all nodes serve and the cluster is healthy. Raises AssertionError."""

    async def is_so() -> bool:
        try:
            health = await target.client.health(nodes=len(target.nodes), timeout=1.0)
        except lognode.LognodeError:
            return False
        return bool(health["ok"])

    for node in target.nodes:
        await node.wait_ready()
    await until(is_so, "a healthy cluster", timeout_s)
