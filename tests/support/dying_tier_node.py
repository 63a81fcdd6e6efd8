"""A node of the whole simulator that dies at one step of its work with the store of its tier.

A step is a request to the store, or what a test counts besides. The node dies before the step,
after its effect and before its answer, or by a loss of power; then it starts again.
"""

import contextlib
import gc
import os
from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Literal

import pytest

from lognode.chaos.whole.far_store import Request
from lognode.chaos.whole.stage import Stage
from lognode.client.protocol.errors import LognodeError
from lognode.node.tier import names

How = Literal["before", "after", "power"]
HOWS: Final[tuple[How, ...]] = ("before", "after", "power")
_AGAIN_S: Final = 0.3
_TRIES: Final = 3
_ALL: Final = os.environ.get("LOGNODE_TIER_KILLS") == "all"
"""Whether the node dies at each step, and not only at those that a test chooses."""


@pytest.fixture(autouse=True)
def no_remains() -> Iterator[None]:
    """Close the coroutines of ended nodes before other tests of this process run."""
    yield
    gc.collect()
    gc.collect()


def kind_of(request: Request) -> str:
    """Say what a request does: to a part, to a manifest, or to objects of which folder."""
    if names.part_of(request.name) is not None:
        return f"{request.kind} part"
    if names.manifest_of(request.name) is not None:
        return f"{request.kind} manifest"
    return f"{request.kind} {request.name.partition('/')[0] or '/'}"


class DyingNode:
    """A node that dies at its step `at`, the first is 1. Steps count while `counts` is set."""

    def __init__(self, set_up: Stage, at: int, how: How, *, counts: bool = True) -> None:
        self.kinds: list[str] = []
        """What each step did, in order."""
        self.counts = counts
        self.at = at
        self.how = how
        self._set_up = set_up
        tier = set_up.machines.tier
        assert tier is not None
        tier.calm()
        tier.arrives, tier.is_done = self._arrives, self._done

    def _arrives(self, request: Request) -> bool:
        if not self.counts:
            return True
        self.kinds.append(kind_of(request))
        if len(self.kinds) != self.at or self.how == "after":
            return True
        self.die()
        return False

    def _done(self, request: Request) -> None:
        if self.counts and len(self.kinds) == self.at and self.how == "after":
            self.die()

    def die(self) -> None:
        """End the node, which starts again soon."""
        machine, loop = self._set_up.machines[1], self._set_up.loop
        if self.how == "power":
            machine.lose_power(speaks=False)
        else:
            assert machine.process is not None
            loop.end(machine.process)
        loop.call_later(_AGAIN_S, machine.begin, context=loop.world.context)


async def repeated(call: Callable[[], Awaitable[Any]]) -> None:
    """Make a change, whose answer a death may have taken."""
    for _ in range(_TRIES):
        with contextlib.suppress(LognodeError):
            await call()
            return
        await sleep(1.0)


def places_of(kinds: Sequence[str]) -> dict[str, list[int]]:
    """Return the steps of each kind, ascending; the first step is 1."""
    places: dict[str, list[int]] = {}
    for at, kind in enumerate(kinds, 1):
        places.setdefault(kind, []).append(at)
    return places


def tried(kinds: Sequence[str], chosen: Sequence[int], how: How) -> Sequence[int]:
    """Return the steps at which the node dies: all of them by hand, else a third of the chosen."""
    return range(1, len(kinds) + 1) if _ALL else chosen[HOWS.index(how) :: len(HOWS)]
