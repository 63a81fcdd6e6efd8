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
    """A node that answers everything at once, the same."""

    def __init__(self, reply: dict[str, Any]) -> None:
        self._reply = reply

    def request(self, node: int, body: dict[str, Any], answer: Any) -> None:
        answer(self._reply)


def read_leased(options: Options, **reply: Any) -> History:
    clock = VirtualClock()
    client = Client(
        client_id=1, options=options, door=Answers({"status": "ok"}),
        scheduler=Scheduler(clock), rng=random.Random(1), trace=Trace(clock, None),
        history=History(),
    )  # fmt: skip
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
