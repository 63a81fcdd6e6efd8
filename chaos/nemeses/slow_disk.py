"""Disks that are slow: a node's fsyncs take long, or all that it writes does, and some hang.

Nothing fails and nothing is lost: it costs time, and no promise.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..powerfs.needs import missing
from ..powerfs.pace import Slowness
from .package import Begun, Target
from .victims import Draw, in_words, leaders_of, pick

WHO: Final = ("one", "one", "minority", "leaders", "all")
TAKES_S: Final = ((0.02, 0.05), (0.05, 0.2), (0.1, 0.5))
"""The least and the most that a call takes, in one fault."""
HANGS: Final = (0.0, 0.02)
"""The probability that a call makes the disk hang, in one fault."""


def draw(rng: random.Random) -> Slowness:
    """How slow a disk becomes."""
    least_s, most_s = rng.choice(TAKES_S)
    return Slowness(least_s, most_s, writes=rng.random() < 0.5, hangs=rng.choice(HANGS))


def words(slowness: Slowness) -> str:
    """What is slow, and how much."""
    what = "fsyncs and writes" if slowness.writes else "fsyncs"
    taking = f"{what} take {slowness.least_s * 1000:.0f} to {slowness.most_s * 1000:.0f} ms"
    return f"{taking}, and some hang" if slowness.hangs else taking


class SlowDisk:
    """Makes the disks of some nodes slow."""

    name = "slow-disk"

    def __init__(self) -> None:
        self._draw = Draw(WHO)
        self._slowed: list[int] = []

    def missing(self) -> str | None:
        """Needs FUSE."""
        return missing()

    async def begin(self, target: Target) -> Begun | None:
        """Of one, a minority, the leaders or all."""
        rng = target.rng
        who = self._draw(rng)
        numbers = pick(rng, who, target.nodes.numbers, await leaders_of(target))
        slowness = draw(rng)
        self.slow(target, numbers, slowness)
        disks = "disk" if len(numbers) == 1 else "disks"
        return f"slow {disks} of {in_words(who)}: {words(slowness)}", numbers

    def slow(self, target: Target, numbers: Sequence[int], slowness: Slowness) -> None:
        """Each by a seed of its own; `end` must follow. Raises Unavailable."""
        for number in numbers:
            target.nodes[number].slow_down(replace(slowness, seed=target.rng.getrandbits(32)))
            self._slowed.append(number)

    async def end(self, target: Target) -> None:
        """They are as fast as they were; who waits for them goes on at once."""
        for number in self._slowed:
            target.nodes[number].speed_up()
        self._slowed = []
