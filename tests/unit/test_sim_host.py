"""A simulated machine dies as a real one does."""

import pytest

from lognode.chaos.sim.options import Options
from lognode.chaos.sim.world import World


@pytest.mark.parametrize("seed", range(8))
def test_a_process_dies_with_a_round_under_way_on_a_full_disk(seed: int) -> None:
    # Seed 24700: a part of the round is written as the process dies, and did not fit.
    world = World(seed, Options(wal_file_bytes=4096))
    for host in world.hosts.values():
        world.network.add(host)
    for host in world.hosts.values():
        host.start()
    for client in world.clients:
        client.start()
    host = world.hosts[1]

    def writing() -> bool:
        round_ = host._rounds and host._rounds._writing
        return bool(round_ and round_.rotation)

    while not writing():
        assert world.scheduler.step(world.clock.now + 1.0)
    host.fill_disk(full=True)
    host.kill()
    assert not host.alive
    host.fill_disk(full=False)
    host.start()
    assert host.alive
