"""The SDK runs in uvloop, which many programs install for all of their loops."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError

pytestmark = pytest.mark.cluster
TIMEOUT_S = 30.0
MANY = 5_000


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 1) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


def add_one(value: bytes | None) -> bytes:
    return b"%d" % (int(value or b"0") + 1)


def test_the_sdk_appends_updates_reads_and_follows_in_uvloop(
    cluster: testing.LocalCluster,
) -> None:
    async def main() -> None:
        async with lognode.AsyncClient(cluster.servers, timeout=TIMEOUT_S) as client:
            log = await client.create_log("orders", ranges=4)
            await asyncio.gather(*(log.append(b"k%d" % n, b"v") for n in range(100)))
            acks = await log.append_many([(b"key%d" % n, b"v") for n in range(MANY)])
            assert len(acks) == MANY
            await asyncio.gather(*(log.update(b"counter", add_one) for _ in range(50)))
            found: list[bytes | None] = []
            async with asyncio.timeout(TIMEOUT_S):
                async for batch in log.follow(keys=[b"counter"], start="earliest"):
                    found += [entry.value for entry in batch]
                    if len(found) >= 50:
                        break
            assert found == [b"%d" % n for n in range(1, 51)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_calls_whose_time_is_over_end_with_an_outcome_in_uvloop(
    cluster: testing.LocalCluster,
) -> None:
    """The handle of uvloop for a time that has passed has no `when`: the calls waited for ever."""

    async def main() -> None:
        async with lognode.AsyncClient(cluster.servers, timeout=TIMEOUT_S) as client:
            log = await client.create_log("late", ranges=1)
            await log.append(b"k", b"0")
            async with asyncio.timeout(TIMEOUT_S):
                ends = await asyncio.gather(
                    *(log.append(b"k", b"0", timeout=1e-5) for _ in range(20)),
                    *(log.update(b"k", add_one, timeout=1e-5) for _ in range(20)),
                    return_exceptions=True,
                )
            wrong = [end for end in ends if not isinstance(end, LognodeError | tuple)]
            assert not wrong

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
