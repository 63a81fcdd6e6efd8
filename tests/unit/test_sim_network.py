"""The simulated network keeps to what the promises of progress presume."""

import random
from typing import Any

from lognode.chaos.sim.clock import Scheduler, VirtualClock
from lognode.chaos.sim.network import Network
from lognode.chaos.sim.trace import Trace


class _Node:
    """Remembers what arrived, and when."""

    alive = True

    def __init__(self, node_id: int, clock: VirtualClock) -> None:
        self.node_id = node_id
        self.received: list[tuple[float, Any]] = []
        self._clock = clock

    def link_up(self, peer: int, epoch: int) -> None: ...
    def link_down(self, peer: int) -> None: ...

    def receive(self, sender: int, payload: Any) -> None:
        self.received.append((self._clock.elapsed, payload))


def test_no_message_is_late_by_seconds_once_all_faults_have_ended_L1() -> None:
    # Seed 17359: what a leader had sent before it died kept arriving one by one, seconds after
    # everything had healed, and its followers, who took it for alive, refused every pre-vote.
    clock = VirtualClock()
    scheduler = Scheduler(clock)
    network = Network(scheduler, random.Random(1), Trace(clock))
    nodes = [_Node(number, clock) for number in (1, 2)]
    for node in nodes:
        network.add(node)
    for node in nodes:
        network.process_started(node.node_id)
    while scheduler.step(clock.now + 1.0) and not network._links[1, 2].up:
        pass
    network.conditions.late = 1.0
    for number in range(200):
        network.send(1, 2, number)
    network.conditions.late = 0.0
    before = clock.elapsed
    network.heal()
    while scheduler.step(clock.now + 10.0):
        pass
    assert sorted(payload for _, payload in nodes[1].received) == list(range(200))
    assert max(at for at, _ in nodes[1].received) - before < 0.05
