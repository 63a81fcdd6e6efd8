"""Runs of the SDK against a scripted cluster, and faults with given probabilities."""

import asyncio
from collections.abc import Awaitable, Callable

from fake_cluster import FakeCluster, FakeNode, Fault, fake_cluster

from lognode import AsyncClient, AsyncLog
from lognode.client.accepting.request import Request

Test = Callable[[FakeCluster, AsyncClient, AsyncLog], Awaitable[None]]


def run(test: Test, *, split_at: tuple[bytes, ...] = (b"m",), timeout: float = 5.0) -> None:
    async def main() -> None:
        async with fake_cluster() as cluster:
            cluster.create("log", split_at)
            async with AsyncClient(cluster.address, timeout=timeout) as client:
                async with asyncio.timeout(20):
                    await test(cluster, client, client.log("log"))

    asyncio.run(main())


def once(do: Callable[[FakeNode, Request], None], when: str = "before", times: int = 1) -> Fault:
    left = times

    def fault(node: FakeNode, request: Request, now: str) -> None:
        nonlocal left
        if now == when and left > 0:
            left -= 1
            do(node, request)

    return fault


def raising(error: Exception) -> Callable[[FakeNode, Request], None]:
    def do(node: FakeNode, request: Request) -> None:
        raise error

    return do
