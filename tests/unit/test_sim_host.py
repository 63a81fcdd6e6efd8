"""A simulated machine dies as a real one does."""

import random
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from lognode.chaos.sim.disk import SimDisk
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.rounds import Rounds
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import World
from lognode.node.directory import meta_keys
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
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


@pytest.mark.parametrize("written", [False, True])
def test_steps_behind_a_sync_wait_for_a_round_that_is_synced(written: bool) -> None:
    """A round without anything that must be synced was written, not synced, and called durable."""
    host, due = Mock(sync_mean_s=0.01, rng=random.Random(1)), list[Callable[[], None]]()
    host.later.side_effect = lambda _, action: due.append(action)
    disk = SimDisk(host.rng)
    wal = Wal.open(disk, entropy=host.rng.randbytes, file_bytes=1 << 20)
    rounds = Rounds(host, wal, collected=Mock(), synced=Mock())
    log = wal.create_group(GroupId(1, 1))
    rounds.run_now()
    log.write_state(must_sync=False)
    number = wal.open_round
    rounds.begin()  # puts the item off
    if written:
        while wal.dirty or wal.open_round == number:
            due.pop(0)()
            rounds.begin()
        while rounds._writing is not None:
            due.pop(0)()
        assert wal.synced_round < number
    done = Mock()
    rounds.when_durable(done)
    while not done.called:
        due.pop(0)()
    assert wal.synced_round >= number
    assert wal.all_synced


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
