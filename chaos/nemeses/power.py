"""Power cuts: a node dies, and loses all or some of what its disk had not synced.

`part-kill` and `pause-kill` target writes that a bare majority acknowledged. A minority misses the
writes, and then one of the other nodes loses power. If the writes were not synced before the
acknowledgement, the minority and this node could elect a leader without them.
"""

import asyncio
import random
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from ..powerfs.backing import Lost
from ..powerfs.needs import missing
from .package import Begun, How, Target
from .partition import Partition, between
from .victims import Draw, in_words, leaders_of, pick

WHO: Final = ("one", "minority", "leaders", "all", "all")
_MEMBERS_MIN: Final = 3
_MISSED_S: Final = (1.0, 3.0)
"""How long the minority misses writes before the other node dies."""


def lost_words(lost: Collection[Lost]) -> str:
    """Describe the losses of a cut."""
    files, names = sum(each.files for each in lost), sum(each.names for each in lost)
    return f"{files} files were not synced, {names} names are as before"


class Power:
    """Cuts the power of some nodes, all at once."""

    name = "power"

    def __init__(self) -> None:
        self._draw = Draw(WHO)
        self._down: list[int] = []

    def missing(self) -> str | None:
        """Return what installs FUSE, if it is missing."""
        return missing()

    async def begin(self, target: Target) -> Begun | None:
        """Cut the power of one node, a minority, the leaders or all."""
        who = self._draw(target.rng)
        self._down = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        lost = await cut(target, self._down)
        return f"power cut of {in_words(who)}: {lost_words(lost)}", self._down.copy()

    async def end(self, target: Target) -> None:
        """Start the nodes again."""
        for number in self._down:
            await target.nodes[number].start()
        self._down = []


async def cut(target: Target, numbers: Sequence[int]) -> list[Lost]:
    """Cut all of them, each by a seed of its own. Raises Unavailable after all have ended."""
    drawn = [(number, target.rng.getrandbits(32)) for number in numbers]
    ended = await asyncio.gather(
        *(target.nodes[number].lose_power(seed) for number, seed in drawn), return_exceptions=True
    )
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    return [one for one in ended if isinstance(one, Lost)]


def aim(
    rng: random.Random, numbers: Sequence[int], leaders: Collection[int], *, at_leader: bool
) -> tuple[int, list[int]]:
    """Choose the node that loses power and the nodes that miss writes before. At least 3 nodes.

    With `at_leader`, the first is a leader if one is known. The others are a minority of the rest,
    as large as possible.
    """
    known = sorted(set(leaders) & set(numbers))
    victim = rng.choice(known if at_leader and known else numbers)
    others = [number for number in numbers if number != victim]
    return victim, sorted(rng.sample(others, (len(numbers) - 1) // 2))


class Away(Protocol):
    """A way to keep a minority from the other nodes."""

    async def send(self, target: Target, numbers: Sequence[int]) -> str:
        """Make the nodes miss everything from now on; return a description."""
        ...

    async def bring_back(self, target: Target) -> None:
        """Bring the nodes back; do nothing when none is away."""


class _CutOff:
    def __init__(self) -> None:
        self._partition = Partition()

    async def send(self, target: Target, numbers: Sequence[int]) -> str:
        how: How = target.rng.choice(("refuse", "drop"))
        pairs = between(numbers, set(target.nodes.numbers) - set(numbers))
        await self._partition.cut(target, [(how, pairs)])
        return "cut off"

    async def bring_back(self, target: Target) -> None:
        await self._partition.end(target)


class _StandStill:
    def __init__(self) -> None:
        self._paused: list[int] = []

    async def send(self, target: Target, numbers: Sequence[int]) -> str:
        self._paused = list(numbers)
        for number in numbers:
            target.nodes[number].pause()
        return "stand still"

    async def bring_back(self, target: Target) -> None:
        for number in self._paused:
            target.nodes[number].resume()
        self._paused = []


class _MissAndLose:
    """A minority is away, then another node loses power; every second time it is a leader."""

    name: str

    def __init__(self, away: Away) -> None:
        self._away = away
        self._down: int | None = None
        self._at_leader = False

    def missing(self) -> str | None:
        """Return what installs FUSE, if it is missing."""
        return missing()

    async def begin(self, target: Target) -> Begun | None:
        """Do both; None with fewer than 3 nodes."""
        numbers = target.nodes.numbers
        if len(numbers) < _MEMBERS_MIN:
            return None
        self._at_leader = not self._at_leader
        leaders = await leaders_of(target)
        victim, minority = aim(target.rng, numbers, leaders, at_leader=self._at_leader)
        how = await self._away.send(target, minority)
        await asyncio.sleep(target.rng.uniform(*_MISSED_S))
        self._down = victim
        lost = await cut(target, [victim])
        told = ", ".join(map(str, minority))
        what = f"nodes {told} {how}, then a power cut of node {victim}: {lost_words(lost)}"
        return what, sorted([*minority, victim])

    async def end(self, target: Target) -> None:
        """Bring the minority back, and start the node."""
        await self._away.bring_back(target)
        if self._down is not None:
            await target.nodes[self._down].start()
            self._down = None


class PartKill(_MissAndLose):
    """The minority is cut off the network; clients still reach it."""

    name = "part-kill"

    def __init__(self) -> None:
        super().__init__(_CutOff())


class PauseKill(_MissAndLose):
    """The minority is paused."""

    name = "pause-kill"

    def __init__(self) -> None:
        super().__init__(_StandStill())
