"""A node that dies at each of its requests to the object store of its tier.

A node of the whole mode seals segments, uploads them in parts, publishes manifests, splits and
merges ranges, and sweeps. The node dies before a request takes effect, after the effect and before
the answer, or by a loss of power at that moment; then it starts again. At the end the store must
have everything, each restore must have given the oldest entries, and nothing may be left over.
"""

import asyncio
import contextlib
import gc
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from lognode.chaos.whole.additions import Additions
from lognode.chaos.whole.far_store import Request
from lognode.chaos.whole.founding import found, join
from lognode.chaos.whole.stage import Stage, stage
from lognode.chaos.whole.tiered import LOG, Tiered
from lognode.chaos.whole.trace import Trace
from lognode.client.client import AsyncClient
from lognode.client.protocol.errors import LognodeError
from lognode.node.tier import names

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

How = Literal["before", "after", "power"]
HOWS: tuple[How, ...] = ("before", "after", "power")
_ADDITIONS = Additions(tier=True)
_AGAIN_S = 0.3
_STEPS = 12
"""How many of the requests CI tries; by hand all are tried."""


@pytest.fixture(autouse=True)
def _no_remains() -> Iterator[None]:
    """Close the coroutines of ended nodes before other tests of this process run."""
    yield
    gc.collect()
    gc.collect()


def kind_of(request: Request) -> str:
    """Say what a request does."""
    if names.part_of(request.name) is not None:
        return f"{request.kind} part"
    return f"{request.kind} manifest" if names.manifest_of(request.name) else request.kind


class Dying:
    """A node that dies at its request `at`, the first is 1."""

    def __init__(self, set_up: Stage, at: int, how: How) -> None:
        self.kinds: list[str] = []
        """What each request did, in order."""
        self._set_up = set_up
        self._at = at
        self._how = how
        tier = set_up.machines.tier
        assert tier is not None
        tier.calm()
        tier.arrives, tier.is_done = self._arrives, self._done

    def _arrives(self, request: Request) -> bool:
        self.kinds.append(kind_of(request))
        if len(self.kinds) != self._at or self._how == "after":
            return True
        self._die()
        return False

    def _done(self, request: Request) -> None:
        if len(self.kinds) == self._at and self._how == "after":
            self._die()

    def _die(self) -> None:
        machine, loop = self._set_up.machines[1], self._set_up.loop
        if self._how == "power":
            machine.lose_power(speaks=False)
        else:
            assert machine.process is not None
            loop.end(machine.process)
        loop.call_later(_AGAIN_S, machine.begin, context=loop.world.context)


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
                await _repeated(change, key)
        await side.finish(client)


async def _repeated(change: Any, key: str) -> None:
    """Make a change of ranges, whose answer a death may have taken."""
    for _ in range(3):
        with contextlib.suppress(LognodeError):
            await change(LOG, at=key)
            return
        await asyncio.sleep(1.0)


def run(at: int, how: How) -> tuple[list[str], Tiered]:
    with stage(7, 1, Trace(None), _ADDITIONS) as set_up:
        tier = set_up.machines.tier
        assert tier is not None
        dying = Dying(set_up, at, how)
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
    for kind in ("put part", "put manifest", "get manifest", "list", "delete part",
                 "delete manifest"):  # fmt: skip
        assert counts[kind] >= 3, counts


def _chosen(kinds: list[str]) -> list[int]:
    """Each kind of step, in its first, middle and last occurrence; by hand all requests."""
    if os.environ.get("LOGNODE_TIER_KILLS") == "all":
        return list(range(1, len(kinds) + 1))
    places: dict[str, list[int]] = {}
    for at, kind in enumerate(kinds, 1):
        places.setdefault(kind, []).append(at)
    puts = places["put manifest"], places["put part"], places["delete part"]
    chosen = {some[len(some) * third // 3] for some in puts for third in range(3)}
    chosen |= {some[len(some) // 2] for some in places.values()}
    return sorted(chosen)[:_STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_node_that_dies_at_a_request_loses_nothing_and_leaves_nothing(
    kinds: list[str], how: How
) -> None:
    chosen = _chosen(kinds)
    if os.environ.get("LOGNODE_TIER_KILLS") != "all":
        chosen = chosen[HOWS.index(how) :: len(HOWS)]
    for at in chosen:
        run(at, how)
