"""The faults of a run: packages of the live tests on simulated machines, and some of its own.

The live tests' kills, pauses, partitions, crashes of clients and operations on ranges are used as
they are. Loss of power, orderly stops, slow links, resets and wrong wall clocks are done here.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from ..history import Recorder
from ..nemeses import Begun, Package, Pair, Target
from ..nemeses.client import Client
from ..nemeses.package import How, Stream
from ..nemeses.partition import Partition
from ..nemeses.processes import Kill, Pause
from ..nemeses.ranges import Range
from ..nemeses.victims import Draw, in_words, leaders_of, pick
from ..nemesis import Nemesis
from .network import Network
from .nodes import Machine

_CLIENTS: Final = "clients"
_SLOW_S: Final = ((0.005, 0.02), (0.05, 0.2), (0.0, 0.5), (0.3, 1.2))
_OPERATION_S: Final = 0.7
_OPERATIONS_FROM: Final = 1_000_000
"""The numbers of operations in a history begin here, above those of all other faults."""
_OPERATIONS_MAX: Final = 6
_DOOMED_S: Final = 1.0
"""Machines that are to lose power at an operation lose it after this time at the latest."""
_FREE_BYTES: Final = (0, 64 * 1024, 100 * 1024, 1 << 20, 6 << 20)
"""The reserve of a simulated node is two WAL files, 128 KiB."""
_JUMPS_MS: Final = (-86_400_000, -3_000, 500, 120_000, 172_800_000)


class SimLinks:
    """The faults of links, as packages of live tests ask for them. 0 is the clients."""

    def __init__(self, network: Network) -> None:
        self.network = network

    async def cut(self, pairs: Collection[Pair], how: How) -> None:
        """Cut directions between machines. A cut of requests of a pair stops all that the first
        sends to the second, a cut of answers all that the second sends to the first."""
        for pair in pairs:
            near, far = map(_place, pair)
            if how == "refuse":
                self.network.refuse(near, far)
            if how in ("drop", "requests"):
                self.network.cut(near, far)
            if how in ("drop", "answers"):
                self.network.cut(far, near)

    async def toxic(
        self, pairs: Collection[Pair], kind: str, *, stream: Stream = "downstream",
        toxicity: float = 1.0, **attributes: Any,
    ) -> None:  # fmt: skip
        """Raise NotImplementedError: no package that is used here asks for toxics."""
        raise NotImplementedError(kind)

    async def heal(self, pairs: Collection[Pair] | None = None) -> None:
        """End the faults of these pairs, of both directions; None: of all."""
        if pairs is None:
            self.network.heal_all()
        for near, far in pairs or ():
            self.network.heal(_place(near), _place(far))
            self.network.heal(_place(far), _place(near))


def _place(number: int) -> str:
    return str(number) if number else _CLIENTS


class _Own:
    """A package of this folder: it needs nothing of the machine."""

    def __init__(self) -> None:
        self.draw = Draw()
        self.victims: list[int] = []

    def missing(self) -> str | None:
        """Return None: nothing is missing."""
        return None

    async def choose(self, target: Target) -> str:
        """Draw the victims; return them in words."""
        who = self.draw(target.rng)
        self.victims = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        return in_words(who)


class Power(_Own):
    """Machines lose power: the WAL loses unsynced bytes, and other machines hear nothing."""

    name = "power"

    async def begin(self, target: Target) -> Begun | None:
        """Let one machine, several or all lose power at once."""
        words = await self.choose(target)
        speaks = target.rng.random() < 0.5
        machines = [_machine(target, number) for number in self.victims]
        before = sum(machine.lost_bytes for machine in machines)
        for machine in machines:
            machine.doom(target.rng.randint(1, _OPERATIONS_MAX), speaks=speaks)
        await asyncio.sleep(target.rng.random() * _DOOMED_S)
        lost = sum(machine.lose_power(speaks=speaks) for machine in machines) - before
        return f"power loss of {words}, {lost} bytes lost", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Start the machines again."""
        for number in self.victims:
            await target.nodes[number].start()
        self.victims = []


class Stop(_Own):
    """Nodes are stopped in order, and started again."""

    name = "stop"

    async def begin(self, target: Target) -> Begun | None:
        """Stop one node."""
        await self.choose(target)
        del self.victims[1:]
        await _machine(target, self.victims[0]).stop()
        return f"stop of node {self.victims[0]}", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Start the node again."""
        for number in self.victims:
            await target.nodes[number].start()
        self.victims = []


class Slow(_Own):
    """Links are slow, with a jitter that lets messages of two connections overtake each other."""

    name = "slow"

    async def begin(self, target: Target) -> Begun | None:
        """Slow down all links of some machines, those to clients included."""
        words = await self.choose(target)
        delay_s = target.rng.choice(_SLOW_S)
        for near, far in self._pairs(target):
            _network(target).slow(near, far, delay_s)
        return f"links of {words} take {delay_s[0]} to {delay_s[1]} s", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Make the links fast again."""
        for near, far in self._pairs(target):
            _network(target).fast(near, far)
        self.victims = []

    def _pairs(self, target: Target) -> list[tuple[str, str]]:
        places = [_CLIENTS, *map(str, target.nodes.numbers)]
        ours = set(map(str, self.victims))
        return [(a, b) for a in places for b in places if a != b and (a in ours or b in ours)]


class Reset(_Own):
    """Connections break, and new ones are possible at once."""

    name = "reset"

    async def begin(self, target: Target) -> Begun | None:
        """Reset the connections between some machines and all others."""
        words = await self.choose(target)
        places = [_CLIENTS, *map(str, target.nodes.numbers)]
        count = sum(
            _network(target).reset(place, str(victim))
            for victim in self.victims
            for place in places
        )
        return f"reset of {count} connections of {words}", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Do nothing: the connections are gone."""


class Clock(_Own):
    """Wall clocks of a minority jump; the monotonic clocks go on.

    A majority of wrong clocks decides which time the cluster has, for days to come (x11).
    """

    name = "clock"

    async def begin(self, target: Target) -> Begun | None:
        """Let the wall clocks of some machines jump."""
        who = target.rng.choice(("one", "minority"))
        self.victims, words = pick(target.rng, who, target.nodes.numbers, ()), in_words(who)
        ahead_ms = target.rng.choice(_JUMPS_MS)
        self._set(target, ahead_ms)
        return f"wall clocks of {words} jump by {ahead_ms} ms", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Set the clocks right."""
        self._set(target, 0)
        self.victims = []

    def _set(self, target: Target, ahead_ms: int) -> None:
        for number in self.victims:
            _network(target).ahead_ms[str(number)] = ahead_ms


class Full(_Own):
    """Disks of a minority are almost full. Writes still succeed: nodes stop before they fail."""

    name = "full"

    async def begin(self, target: Target) -> Begun | None:
        """Take the free space of some machines away."""
        who = target.rng.choice(("one", "minority"))
        self.victims, words = pick(target.rng, who, target.nodes.numbers, ()), in_words(who)
        free = target.rng.choice(_FREE_BYTES)
        for number in self.victims:
            _network(target).free_bytes[str(number)] = free
        return f"disks of {words} have {free} bytes left", self.victims.copy()

    async def end(self, target: Target) -> None:
        """Give the space back."""
        for number in self.victims:
            _network(target).free_bytes.pop(str(number), None)
        self.victims = []


class Operator(Nemesis):
    """A busy operator: one operation on ranges after another, beside the other faults.

    Each operation needs a majority most of the time. Drawn as one of many packages, few would
    come to their end.
    """

    def __init__(self, target: Target, recorder: Recorder) -> None:
        super().__init__(
            {Range.name: Range()}, target, recorder, interval_s=_OPERATION_S, rng=target.rng
        )
        self._numbers = itertools.count(_OPERATIONS_FROM)

    def chosen(self) -> Sequence[str]:
        """Return the one package."""
        return (Range.name,)


def _machine(target: Target, number: int) -> Machine:
    found: Any = target.nodes[number]
    assert isinstance(found, Machine)
    return found


def _network(target: Target) -> Network:
    assert isinstance(target.links, SimLinks)
    return target.links.network


PACKAGES: Final[Mapping[str, Callable[[], Package]]] = {
    "client": Client, "clock": Clock, "full": Full, "kill": Kill, "partition": Partition,
    "pause": Pause, "power": Power, "range": Range, "reset": Reset, "slow": Slow, "stop": Stop,
}  # fmt: skip
"""The packages by name (`options.FAULTS`)."""
