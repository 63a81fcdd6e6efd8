"""A simulated machine dies as a real one does."""

import pytest

from lognode.chaos.sim.options import Options
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import World
from lognode.node.directory import meta_keys
from lognode.statemachine.range_state import Base


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


@pytest.mark.parametrize("rotten", [False, True])
def test_S2_x15_a_log_that_has_lost_its_end_is_damage_in_the_simulator_too(rotten: bool) -> None:
    """The simulator reset the log to what meta had applied, and let the member vote on."""
    world = World(1, Options())
    for host in world.hosts.values():
        world.network.add(host)
    for host in world.hosts.values():
        host.start()
    host = world.hosts[1]
    assert host.replicas is not None
    while not host.replicas.ranges():
        assert world.scheduler.step(world.clock.now + 1.0)
    (replica,) = host.replicas.ranges()
    host.kill()
    base = Base(replica.log.last_index + 3, 1)
    key = meta_keys.replica_key(replica.gid)
    host.durable.meta.commit({key: meta_keys.replica_row(replica.descriptor, base)})
    host.rotten = rotten
    if not rotten:  # no crash does this: the rules would be wrong
        with pytest.raises(Violation, match="takes what a crash left for damage"):
            host.start()
        return
    host.start()
    assert "its log ends at entry" in host.replicas.damaged[replica.gid]
    assert host.durable.row(key)["damaged"]
    assert replica.gid not in host.replicas.groups
