"""Processes that die (SIGKILL) or are paused (SIGSTOP), and come back on the same directory."""

import asyncio

from .package import Begun, Target
from .victims import Draw, in_words, leaders_of, pick


class Kill:
    """kill -9: the process loses what it had not written; data in the kernel is kept."""

    name = "kill"

    def __init__(self) -> None:
        self._draw = Draw()
        self._killed: list[int] = []

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Kill one node, a minority, a majority, all or the leaders, at once."""
        who = self._draw(target.rng)
        self._killed = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        await asyncio.gather(*(target.nodes[number].kill() for number in self._killed))
        return f"kill of {in_words(who)}", self._killed.copy()

    async def end(self, target: Target) -> None:
        """Start the nodes again."""
        for number in self._killed:
            await target.nodes[number].start()
        self._killed = []


class Pause:
    """Pauses processes: their connections stay open, and their clocks go on."""

    name = "pause"

    def __init__(self) -> None:
        self._draw = Draw()
        self._paused: list[int] = []

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Pause one node, a minority, a majority, all or the leaders, at once."""
        who = self._draw(target.rng)
        self._paused = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        for number in self._paused:
            target.nodes[number].pause()
        return f"pause of {in_words(who)}", self._paused.copy()

    async def end(self, target: Target) -> None:
        """Resume the nodes."""
        for number in self._paused:
            target.nodes[number].resume()
        self._paused = []
