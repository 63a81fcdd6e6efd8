"""The end of simulated runs with a slow, dead or failing consumer: all other keys go on (G5)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.chaos.sim.consumers import _Held
from lognode.chaos.sim.hindrance import Hindrance
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.world import World, judge
from lognode.node.dispatch.batches import Batches
from lognode.node.dispatch.dispatcher import Dispatcher
from lognode.statemachine.groups.units import entry_unit

CALM = replace(Options(), faults=("kill",), consumers=3, keys=4, think_seconds=0.4)
SEEDS = {"": 0, "slow": 6, "dead": 2, "failing": 3}
"""By the kind of the hindrance, a seed that draws the kind."""


def _run(seed: int, kind: str) -> str | None:
    world = World(seed, CALM)
    assert world._hindrance.kind == kind
    return judge(world).violation


@pytest.mark.parametrize("kind", SEEDS)
def test_G5_a_hindrance_delays_only_its_own_keys(kind: str) -> None:
    assert _run(SEEDS[kind], kind) is None


def test_G5_a_range_that_a_slow_consumer_stops_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Dispatcher.take

    def take(self: Dispatcher, consumer: int, *arguments: Any) -> Batches:
        others = len(self.in_flight) - len(self._leases.keys_of(consumer))
        return Batches(self._group) if others else whole(self, consumer, *arguments)

    monkeypatch.setattr(Dispatcher, "take", take)
    violation = _run(SEEDS["slow"], "slow")
    assert violation is not None
    assert violation.startswith("G5: a consumer or a key delays other keys hindrance='slow'")


def test_a_consumer_at_the_end_of_a_run_takes_no_more_than_it_can_settle_in_a_lease() -> None:
    """Seed 13236 of commit 02fc2fc5: a consumer had 156 entries in hand, and leases ended."""
    world = World(3, replace(CALM, unordered=True, consumers=1))
    consumer = world.consumers[0]
    asked: list[str] = []
    consumer.door = SimpleNamespace(request=lambda _, body, __: asked.append(body["what"]))
    for number in range(8):
        unit = entry_unit(b"0/k0", number)
        consumer._held[unit] = _Held(unit, b"0/k0", 1, [number])
    consumer.calm_down()
    for _ in range(20):
        consumer._next()
    assert asked == ["settle"] * 20
    del consumer._held[unit]
    for _ in range(20):
        consumer._next()
    assert "take" in asked


def test_a_run_without_consumers_has_no_hindrance() -> None:
    world = World(3, replace(CALM, consumers=0))
    assert isinstance(world._hindrance, Hindrance)
    assert (world._hindrance.kind, list(world._hindrance.keys)) == ("", [])
