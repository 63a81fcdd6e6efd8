"""Disks that are slow: a node's fsyncs, or all its writes, take long, and some hang.

Nothing fails and nothing is lost: the faults cost time, and break no promise.
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
"""The least and the most seconds that a call takes, in one fault."""
HANGS: Final = (0.0, 0.02)
"""The probability that a call makes the disk hang, in one fault."""


def draw(rng: random.Random) -> Slowness:
    """Draw how slow a disk becomes."""
    least_s, most_s = rng.choice(TAKES_S)
    return Slowness(least_s, most_s, writes=rng.random() < 0.5, hangs=rng.choice(HANGS))


def words(slowness: Slowness) -> str:
    """Describe the slow calls, and their delays."""
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
        """Return what installs FUSE, if it is missing."""
        return missing()

    async def begin(self, target: Target) -> Begun | None:
        """Slow the disks of one node, a minority, the leaders or all."""
        rng = target.rng
        who = self._draw(rng)
        numbers = pick(rng, who, target.nodes.numbers, await leaders_of(target))
        slowness = draw(rng)
        self.slow(target, numbers, slowness)
        disks = "disk" if len(numbers) == 1 else "disks"
        return f"slow {disks} of {in_words(who)}: {words(slowness)}", numbers

    def slow(self, target: Target, numbers: Sequence[int], slowness: Slowness) -> None:
        """Slow each disk by a seed of its own; `end` must follow. Raises Unavailable."""
        for number in numbers:
            target.nodes[number].slow_down(replace(slowness, seed=target.rng.getrandbits(32)))
            self._slowed.append(number)

    async def end(self, target: Target) -> None:
        """Make the disks fast again; waiting calls go on at once."""
        for number in self._slowed:
            target.nodes[number].speed_up()
        self._slowed = []
