"""L1, S7: a follow on a leader that is cut off says so, and goes on at another member."""

import asyncio
import time
from pathlib import Path

import pytest
from fault_proxies import program
from linked_cluster import Cluster, cluster

import lognode

pytestmark = pytest.mark.cluster

ENTRIES = 40
FALLBACK_MS = 2_250
"""A follower's bound is the longer by so much."""


class Follower:
    """Reads a feed in a task, and keeps what came."""

    def __init__(self, feed: lognode.AsyncFeed) -> None:
        self.feed = feed
        self.values: list[bytes] = []
        self.told: list[tuple[float, bool, int | None]] = []
        """Of each batch: when it came, `caught_up`, `staleness_ms`."""

    async def run(self) -> None:
        async for batch in self.feed:
            self.values += [entry.value for entry in batch]
            self.told.append((time.monotonic(), batch.caught_up, batch.staleness_ms))

    async def sees(self, what: str, *, after: float = 0.0, caught_up: bool) -> float:
        """Seconds from `after` to the first such batch since then."""
        async with asyncio.timeout(30):
            while True:
                for at, caught, _ in self.told:
                    if at >= after and caught == caught_up:
                        return at - after
                await asyncio.sleep(0.02)
        raise AssertionError(what)


def feed_of(made: Cluster, how: str) -> lognode.AsyncFeed:
    log = made.client.log("it")
    return log.follow(keys=[b"k"]) if how == "keys" else log.follow(start="latest")


@pytest.mark.parametrize("how", ["keys", pytest.param("span", marks=pytest.mark.by_hand)])
def test_L1_S7_a_follow_leaves_a_leader_that_is_cut_off_from_its_peers(
    tmp_path: Path, how: str
) -> None:
    """Its client still reaches the old leader, and all appends go to the new one."""

    async def body() -> None:
        async with cluster(tmp_path, program("toxiproxy")) as made:
            log = made.client.log("it")
            async with feed_of(made, how) as feed:
                follower = Follower(feed)
                reading = asyncio.create_task(follower.run())
                await follower.sees("it has all", caught_up=True)
                leader = await made.leader()
                began = time.monotonic()
                await made.links.cut(made.around(leader), "drop")
                cut = time.monotonic()
                lost_s = await follower.sees("it is cut off", after=began, caught_up=False)
                # 0.75 s after the last answer; the rest is for a machine with other work.
                assert lost_s < 1.5 + (cut - began) + 1.0, f"{lost_s:.2f} s"
                for n in range(ENTRIES):
                    await log.append(b"k", b"%d" % n)
                await made.leader(other_than=leader)
                wanted = [b"%d" % n for n in range(ENTRIES)]
                async with asyncio.timeout(20):
                    while follower.values[-ENTRIES:] != wanted:
                        assert not reading.done()
                        await asyncio.sleep(0.02)
                await follower.sees("it has all again", after=began + lost_s, caught_up=True)
                for _, caught_up, staleness_ms in follower.told:
                    if caught_up:
                        assert staleness_ms is not None
                        assert staleness_ms < 750 + FALLBACK_MS + 1_000
                reading.cancel()

    asyncio.run(body())
