"""Partitions: who cannot reach whom. A grudge is drawn as pairs first, then cut.

The shapes are Jepsen's: a bridge node that both halves reach while they do not reach each other,
and a ring in which each node reaches a majority and no two nodes the same one.
"""

import itertools
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .package import Begun, How, Pair, Target
from .victims import leaders_of

Numbers = Sequence[int]


@dataclass(frozen=True, slots=True)
class Grudge:
    """What is cut, and in words why: `nodes` are those of the smaller side."""

    what: str
    nodes: tuple[int, ...]
    cuts: tuple[tuple[How, frozenset[Pair]], ...]


def between(*groups: Collection[int]) -> frozenset[Pair]:
    """Both directions of every pair of nodes of different groups."""
    return frozenset(
        (a, b)
        for some, others in itertools.permutations(groups, 2)
        for a, b in itertools.product(some, others)
    )


def apart(numbers: Numbers, victims: Collection[int]) -> frozenset[Pair]:
    """Each of the victims from everyone else, from each other too."""
    return between(*([one] for one in victims), set(numbers) - set(victims))


def ring(order: Numbers) -> frozenset[Pair]:
    """Each node reaches the nodes nearest to it in a circle, just enough for a majority."""
    count = len(order)
    others = count // 2  # beside itself
    reach = (others + 1) // 2  # to each side; an even number of others is split evenly
    return frozenset(
        (order[a], order[b])
        for a, b in itertools.permutations(range(count), 2)
        if min((a - b) % count, (b - a) % count) > reach
    )


def one(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """A single node from all others."""
    return _apart_from_rest(numbers, [rng.choice(numbers)])


def majority(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """A minority, as large as it can be, from the majority."""
    return _apart_from_rest(numbers, rng.sample(numbers, max(1, (len(numbers) - 1) // 2)))


def halves(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Of an even number no half has a majority."""
    return _apart_from_rest(numbers, rng.sample(numbers, max(1, len(numbers) // 2)))


def majorities_ring(
    rng: random.Random, numbers: Numbers, _: Numbers
) -> tuple[Numbers, frozenset[Pair]]:
    """Every node sees a majority, no two see the same; of three or four nodes nothing is cut."""
    return numbers, ring(rng.sample(numbers, len(numbers)))


def bridge(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Two halves that do not reach each other, and one node that both reach."""
    middle, *rest = rng.sample(numbers, len(numbers))
    half = len(rest) // 2
    return [middle], between(rest[:half], rest[half:])


def primaries(
    rng: random.Random, numbers: Numbers, leaders: Numbers
) -> tuple[Numbers, frozenset[Pair]]:
    """Every leader from everyone else."""
    victims = sorted(set(leaders) & set(numbers)) or [rng.choice(numbers)]
    return victims, apart(numbers, victims)


def _apart_from_rest(numbers: Numbers, side: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    return sorted(side), between(side, set(numbers) - set(side))


Shape = Callable[[random.Random, Numbers, Numbers], tuple[Numbers, frozenset[Pair]]]
SHAPES: Final[dict[str, Shape]] = {
    "partition of one node": one,
    "partition of a minority": majority,
    "partition into halves": halves,
    "partition into a ring of majorities": majorities_ring,
    "partition with a bridge": bridge,
    "partition of the leaders": primaries,
}
ONE_WAY: Final = ("requests", "answers", "leaves", "arrives")


def one_way(
    victim: int, numbers: Numbers, which: Literal["requests", "answers", "leaves", "arrives"]
) -> Grudge:
    """Bytes pass one way only: requests of the victim are lost, or answers to them, or all that
    leaves it, or all that should arrive."""
    others = [number for number in numbers if number != victim]
    out = frozenset((victim, other) for other in others)
    back = frozenset((other, victim) for other in others)
    words: dict[str, tuple[str, tuple[tuple[How, frozenset[Pair]], ...]]] = {
        "requests": ("one-way partition: requests of", (("requests", out),)),
        "answers": ("one-way partition: answers to", (("answers", out),)),
        "leaves": (
            "one-way partition: whatever leaves", (("requests", out), ("answers", back)),
        ),
        "arrives": (
            "one-way partition: whatever is sent to", (("requests", back), ("answers", out)),
        ),
    }  # fmt: skip
    what, cuts = words[which]
    return Grudge(f"{what} node {victim} lost", (victim,), cuts)


def draw(rng: random.Random, numbers: Numbers, leaders: Numbers) -> Grudge:
    """Any of them; two-way cuts refuse connections or lose bytes in silence. At least 2 nodes."""
    drawn = rng.choice([*SHAPES, *ONE_WAY])
    if drawn not in SHAPES:
        return one_way(rng.choice(numbers), numbers, drawn)  # type: ignore[arg-type]
    nodes, pairs = SHAPES[drawn](rng, numbers, leaders)
    if not pairs:  # too few nodes for a ring or a bridge
        drawn = "partition of one node"
        nodes, pairs = one(rng, numbers, leaders)
    how: How = rng.choice(("refuse", "drop"))
    words = "connections refused" if how == "refuse" else "bytes lost"
    return Grudge(f"{drawn}, {words}", tuple(nodes), ((how, pairs),))


class Partition:
    """Cuts links between nodes; clients still reach all of them."""

    name = "partition"

    def __init__(self) -> None:
        self._cut: set[Pair] = set()

    def missing(self) -> str | None:
        """Nothing: an embedded proxy comes with the suite."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """One grudge; None in a cluster of one node."""
        if len(target.nodes) < 2:
            return None
        grudge = draw(target.rng, target.nodes.numbers, await leaders_of(target))
        await self.cut(target, grudge.cuts)
        return grudge.what, list(grudge.nodes)

    async def cut(self, target: Target, cuts: Iterable[tuple[How, Collection[Pair]]]) -> None:
        """These; healed by `end`."""
        for how, pairs in cuts:
            self._cut.update(pairs)
            await target.links.cut(sorted(pairs), how)

    async def end(self, target: Target) -> None:
        """What it cut is whole again."""
        if self._cut:
            await target.links.heal(sorted(self._cut))
            self._cut.clear()
