"""What the simulator asks of a healthy majority, and of a lease: no more than they owe."""

import random
from dataclasses import replace
from typing import Any

import pytest

from lognode.chaos.sim.clients import Client
from lognode.chaos.sim.clock import Scheduler, VirtualClock
from lognode.chaos.sim.history import History
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.removed import Lease
from lognode.chaos.sim.trace import Trace
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import World

CALM = replace(Options(), faults=(), phases=False)


def a_world(options: Options) -> World:
    world = World(1, options, None, ())
    for host in world.hosts.values():
        world.network.add(host)
        host.start()
    for client in world.clients:
        client.start()
    return world


def test_a_majority_that_nobody_asks_for_anything_is_not_blamed() -> None:
    """Seeds 16013 and 17752: the clients fell silent just as the others healed."""
    world = a_world(replace(CALM, think_seconds=1e9))
    world._require_progress(5.0)
    assert not world._answers()


def test_a_late_request_is_owed_an_answer_correspondingly_late() -> None:
    world = a_world(replace(CALM, think_seconds=1e9))
    world._run_until(1.0)
    before = world.clock.now
    for host in world.hosts.values():
        host.power_loss()
    for client in world.clients:
        client.scheduler.after(3.0, client._next)
    with pytest.raises(Violation, match="L1"):
        world._require_progress(5.0)
    assert world.clock.now == pytest.approx(before + 3.0 + 5.0, abs=0.1)


class Answers:
    """A node that answers at once: with each reply, then always with the last one."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self._replies = replies
        self.asked: list[dict[str, Any]] = []

    def request(self, node: int, body: dict[str, Any], answer: Any) -> None:
        self.asked.append(body)
        answer(self._replies[min(len(self.asked), len(self._replies)) - 1])


def a_client(options: Options, door: Answers) -> Client:
    clock = VirtualClock()
    return Client(
        client_id=1, options=options, door=door, scheduler=Scheduler(clock),
        rng=random.Random(1), trace=Trace(clock, None), history=History(),
    )  # fmt: skip


def read_leased(options: Options, **reply: Any) -> History:
    client = a_client(options, Answers({"status": "ok"}))
    lease = Lease("c1.1", 0, b"0/k0", 8)
    client._leased_read(lease, [(3, b"owed")], reply)
    return client.history


def test_x14_a_lease_that_ended_by_a_clock_owes_nothing_and_any_other_owes_all() -> None:
    """Seed 25977: a jump of two days had ended it."""
    jumps = replace(CALM, faults=("clock",))
    assert read_leased(jumps, status="gone").leased == 0
    with pytest.raises(Violation, match="x14"):
        read_leased(CALM, status="gone")
    for options in (CALM, jumps):
        assert read_leased(options, status="ok", entries=[(3, b"owed")]).leased == 1
        with pytest.raises(Violation, match="x14"):
            read_leased(options, status="ok", entries=[])


def test_a_lease_that_met_itself_after_a_merge_is_taken_under_another_name() -> None:
    """Seeds 8880, 12815 and 15544: the client asked for the same lease to the end of the run."""
    door = Answers({"status": "conflict"}, {"status": "ok"})
    client = a_client(CALM, door)
    client.history.floors.update({b"0/k%d" % number: 8 for number in range(CALM.keys)})
    client._take_lease(0)
    commands = [body["command"][1] for body in door.asked]
    assert [command[0] for command in commands] == ["c1.1", "c1.1", "c1.2"]
