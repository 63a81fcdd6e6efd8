"""A range whose tables are larger than a frame is moved and split as any other."""

import asyncio
from pathlib import Path

import pytest
from live_nodes import LiveCluster, live

import lognode
from lognode.client.protocol import limits
from lognode.client.protocol.appends import TRIM

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

FLOORS = 20_000
"""Each with one of the longest keys: 9.8 MB. A frame has 9.4 MB."""
AT_ONCE = 16
KEYS = [b"%06d" % at + bytes(limits.key_bytes_max - 6) for at in range(FLOORS)]


async def trimmed(cluster: LiveCluster) -> None:
    """Trim so many keys of the only range, as a client does, on its leader."""
    leader = await cluster.leader()
    (replica,) = [each for each in leader.host.ranges() if each.leads]
    connection = await leader.client()
    gate = asyncio.Semaphore(AT_ONCE)

    async def some(begin: int) -> None:
        keys = [[key, FLOORS + 1] for key in KEYS[begin : begin + limits.removal_keys_max]]
        body = {"range": replica.gid.range_id, "generation": replica.gid.generation, "keys": keys}
        async with gate:
            deadline = asyncio.get_running_loop().time() + 60
            await connection.request(TRIM, body, deadline=deadline)

    await asyncio.gather(*map(some, range(0, FLOORS, limits.removal_keys_max)))
    connection.close()


def test_S2_a_range_with_a_large_base_is_moved_and_split(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            live(tmp_path, 4, balance="off") as cluster,
            lognode.AsyncClient(cluster.address, timeout=60) as client,
        ):
            await cluster.healthy(4)
            log = await client.create_log("trimmed", replicas=3)
            await log.append_many([(key, b"") for key in KEYS])
            await log.append_many([(b"a", b"1"), (b"b", b"2")])
            await trimmed(cluster)
            await cluster.settled()
            (known,) = (await log.describe())["ranges"]
            (spare,) = {1, 2, 3, 4} - {*known["members"]}
            await client.admin.move(
                known["id"], from_node=known["members"][0], to_node=spare, timeout=60
            )
            (moved,) = (await log.describe())["ranges"]
            assert spare in moved["members"]
            (replica,) = cluster.of(spare).host.ranges()
            assert len(replica.state.removal.floors) == FLOORS
            await client.admin.split("trimmed", at=b"b", timeout=60)
            assert [e.value async for e in log.scan("a")] == [b"1"]
            assert [e.value async for e in log.scan("b")] == [b"2"]

    asyncio.run(run())
