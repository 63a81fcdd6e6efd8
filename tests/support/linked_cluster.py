"""Three real nodes wired through proxies by their dial maps, so that a test can cut them off."""

import asyncio
import contextlib
import json
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from lognode import AsyncClient
from lognode.chaos.links import Links, Pair
from lognode.chaos.nodes import Nodes
from lognode.chaos.proxyserver import Program
from lognode.client.protocol.errors import LognodeError


@dataclass
class Cluster:
    """Three nodes, a log on all of them, and a client, all through links."""

    links: Links
    nodes: Nodes
    client: AsyncClient

    async def leader(self, other_than: int = 0) -> int:
        """Of the log's range, as two nodes say: a node that is cut off knows no leader, or an old
        one."""
        async with asyncio.timeout(30):
            while True:
                said = await asyncio.gather(*map(self._leader_by, self.nodes.numbers))
                for leader, times in Counter(said).items():
                    if leader not in (0, None, other_than) and times >= 2:
                        return leader
                await asyncio.sleep(0.05)

    async def _leader_by(self, number: int) -> int | None:
        """What the node's status says; the status page does not pass through a link."""
        url = f"http://{self.nodes[number].http}/status.json"
        with contextlib.suppress(OSError):
            status = json.loads(await asyncio.to_thread(_fetch, url))
            for one in status["ranges"]:
                if one["log"] == "it":
                    return int(one["leader"] or 0)
        return None

    async def append(self, count: int, timeout: float = 20.0) -> float:
        """So many acknowledged entries; returns the longest wait for one, in seconds."""
        log, longest = self.client.log("it"), 0.0
        for _ in range(count):
            began = time.monotonic()
            await log.append(b"k", b"v", timeout=timeout)
            longest = max(longest, time.monotonic() - began)
        return longest

    async def heal(self) -> None:
        """And wait until all is well again."""
        await self.links.heal()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(LognodeError):
                    if (await self.client.health(nodes=3, timeout=1.0))["ok"]:
                        return
                await asyncio.sleep(0.05)

    def around(self, number: int) -> list[Pair]:
        """All links between this node and the others, in both directions."""
        others = [other for other in self.nodes.numbers if other != number]
        return [pair for other in others for pair in ((number, other), (other, number))]


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        page: bytes = answer.read()
    return page


@contextlib.asynccontextmanager
async def cluster(root: Path, server: Program) -> AsyncIterator[Cluster]:
    links = Links(server)
    nodes = Nodes(root, 3, links)
    try:
        await nodes.start(("--balance", "off"))
        async with AsyncClient(nodes.servers, timeout=20.0) as client:
            made = Cluster(links, nodes, client)
            await client.create_log("it")
            await made.heal()
            await made.append(5)
            yield made
    finally:
        await nodes.stop()
        await links.close()
