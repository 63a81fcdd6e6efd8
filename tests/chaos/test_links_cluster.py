"""Three nodes wired through links by their dial maps: cut followers and leaders."""

import asyncio
from pathlib import Path

import pytest
from fault_proxies import program
from linked_cluster import cluster

from lognode.chaos.links import How
from lognode.chaos.proxyserver import Program

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]


@pytest.fixture(params=["embedded", "toxiproxy"])
def server(request: pytest.FixtureRequest) -> Program:
    found: Program = program(request.param)
    return found


def test_cut_followers_and_leaders(tmp_path: Path, server: Program) -> None:
    """One cluster for all cuts, since its start takes longest."""

    async def body() -> None:
        async with cluster(tmp_path, server) as made:
            hows: tuple[How, ...] = ("drop", "refuse")
            for how in hows:
                leader = await made.leader()
                follower = next(number for number in made.nodes.numbers if number != leader)
                await made.links.cut(made.around(follower), how)
                assert await made.append(20) < 3, f"{how}: a follower is not missed"
                assert await made.leader() == leader
                await made.heal()

                leader = await made.leader()
                await made.links.cut([*made.around(leader), (0, leader)], how)
                await made.append(20)
                assert await made.leader(other_than=leader) != leader
                await made.heal()
            assert await made.client.log("it").count(b"k") == 85

    asyncio.run(body())
