"""A node that dies at each of its requests to the object store of its tier.

A node of the whole mode seals segments, uploads them in parts, publishes manifests, splits and
merges ranges, and sweeps. The node dies before a request takes effect, after the effect and before
the answer, or by a loss of power at that moment; then it starts again. At the end the store must
have everything, each restore must have given the oldest entries, and nothing may be left over.
"""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
from dying_tier_node import HOWS, DyingNode, How, no_remains, places_of, repeated, tried

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.founding import found, join
from lognode.chaos.whole.stage import Stage, stage
from lognode.chaos.whole.tiered import LOG, Tiered
from lognode.chaos.whole.trace import Trace
from lognode.client.client import AsyncClient

__all__ = ["no_remains"]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_ADDITIONS = Additions(tier=True)
_STEPS = 12
"""How many of the requests CI tries; by hand all are tried."""


async def _scenario(set_up: Stage, side: Tiered) -> None:
    machines = set_up.machines
    await found(machines, _ADDITIONS)
    async with AsyncClient(machines.servers, timeout=20.0) as client:
        await join(machines, machines.numbers, client, _ADDITIONS)
        await side.prepare(client)
        admin = client.admin
        changes: list[tuple[Any, str]] = [(None, ""), (admin.split, "k2"), (admin.merge, "k4")]
        for change, key in changes:
            for _ in range(2):
                await side.fill(client)
                await asyncio.sleep(1.0)
                await side.look()
            if change is not None:
                await repeated(partial(change, LOG, at=key))
        await side.finish(client)


def run(at: int, how: How) -> tuple[list[str], Tiered]:
    with stage(7, 1, Trace(None), _ADDITIONS) as set_up:
        tier = set_up.machines.tier
        assert tier is not None
        dying = DyingNode(set_up, at, how)
        side = Tiered(set_up.machines, tier, random.Random(3), is_spread=False)
        set_up.loop.run(_scenario(set_up, side))
        assert not set_up.machines.bugs
        assert set_up.machines[1].starts == 1 + (0 < at <= len(dying.kinds))
    assert [each.message for each in side.anomalies] == [], f"{how} request {at}"
    assert len(side.looks) > 4
    assert sum(map(len, side.looks[-1].values())) > 100
    return dying.kinds, side


@pytest.fixture(scope="module")
def kinds() -> list[str]:
    """What the requests of a node do that does not die."""
    return run(0, "before")[0]


def test_the_scenario_has_all_kinds_of_steps(kinds: list[str]) -> None:
    counts = Counter(kinds)
    for kind in ("put part", "put manifest", "get manifest", "list manifests", "list files",
                 "delete part", "delete manifest"):  # fmt: skip
        assert counts[kind] >= 3, counts


def _chosen(kinds: list[str]) -> list[int]:
    """Each kind of step in the middle, and each that changes something also first and last."""
    places = places_of(kinds)
    puts = places["put manifest"], places["put part"], places["delete part"]
    chosen = {some[len(some) * third // 3] for some in puts for third in range(3)}
    chosen |= {some[len(some) // 2] for some in places.values()}
    return sorted(chosen)[:_STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_node_that_dies_at_a_request_loses_nothing_and_leaves_nothing(
    kinds: list[str], how: How
) -> None:
    for at in tried(kinds, _chosen(kinds), how):
        run(at, how)
