"""Partitions: which nodes cannot reach each other. A grudge is drawn as pairs first, then cut.

The shapes are Jepsen's: a bridge node that both halves reach while they do not reach each other,
and a ring in which each node reaches a different majority.
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
    """The cut pairs, and a description: `nodes` are those of the smaller side."""

    what: str
    nodes: tuple[int, ...]
    cuts: tuple[tuple[How, frozenset[Pair]], ...]


def between(*groups: Collection[int]) -> frozenset[Pair]:
    """Return both directions of every pair of nodes of different groups."""
    return frozenset(
        (a, b)
        for some, others in itertools.permutations(groups, 2)
        for a, b in itertools.product(some, others)
    )


def apart(numbers: Numbers, victims: Collection[int]) -> frozenset[Pair]:
    """Return the pairs that separate each of the victims from all other nodes."""
    return between(*([one] for one in victims), set(numbers) - set(victims))


def ring(order: Numbers) -> frozenset[Pair]:
    """Let each node reach only its nearest nodes in a circle, just enough for a majority."""
    count = len(order)
    others = count // 2  # beside itself
    reach = (others + 1) // 2  # to each side; an even number of others is split evenly
    return frozenset(
        (order[a], order[b])
        for a, b in itertools.permutations(range(count), 2)
        if min((a - b) % count, (b - a) % count) > reach
    )


def one(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Separate a single node from all others."""
    return _apart_from_rest(numbers, [rng.choice(numbers)])


def majority(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Separate a minority, as large as possible, from the majority."""
    return _apart_from_rest(numbers, rng.sample(numbers, max(1, (len(numbers) - 1) // 2)))


def halves(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Separate two halves; with an even number of nodes, neither half has a majority."""
    return _apart_from_rest(numbers, rng.sample(numbers, max(1, len(numbers) // 2)))


def majorities_ring(
    rng: random.Random, numbers: Numbers, _: Numbers
) -> tuple[Numbers, frozenset[Pair]]:
    """Let every node see a different majority; with three or four nodes nothing is cut."""
    return numbers, ring(rng.sample(numbers, len(numbers)))


def bridge(rng: random.Random, numbers: Numbers, _: Numbers) -> tuple[Numbers, frozenset[Pair]]:
    """Separate two halves, and let one node reach both."""
    middle, *rest = rng.sample(numbers, len(numbers))
    half = len(rest) // 2
    return [middle], between(rest[:half], rest[half:])


def primaries(
    rng: random.Random, numbers: Numbers, leaders: Numbers
) -> tuple[Numbers, frozenset[Pair]]:
    """Separate every leader from all other nodes."""
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
    """Let bytes pass in one direction only.

    The victim's requests are lost, or the answers to them, or all that leaves it, or all that
    should arrive.
    """
    others = [number for number in numbers if number != victim]
    out = frozenset((victim, other) for other in others)
    back = frozenset((other, victim) for other in others)
    words: dict[str, tuple[str, tuple[tuple[How, frozenset[Pair]], ...]]] = {
        "requests": ("one-way partition: requests of", (("requests", out),)),
        "answers": ("one-way partition: answers to", (("answers", out),)),
        "leaves": (
            "one-way partition: all traffic that leaves", (("requests", out), ("answers", back)),
        ),
        "arrives": (
            "one-way partition: all traffic to", (("requests", back), ("answers", out)),
        ),
    }  # fmt: skip
    what, cuts = words[which]
    return Grudge(f"{what} node {victim} lost", (victim,), cuts)


def draw(rng: random.Random, numbers: Numbers, leaders: Numbers) -> Grudge:
    """Draw any grudge; two-way cuts refuse connections or lose bytes silently. At least 2 nodes."""
    drawn = rng.choice([*SHAPES, *ONE_WAY])
    if drawn not in SHAPES:
        return one_way(rng.choice(numbers), numbers, drawn)  # type: ignore[arg-type]  # of ONE_WAY
    nodes, pairs = SHAPES[drawn](rng, numbers, leaders)
    if not pairs:  # too few nodes for a ring or a bridge
        drawn = "partition of one node"
        nodes, pairs = one(rng, numbers, leaders)
    how: How = rng.choice(("refuse", "drop"))
    words = "connections refused" if how == "refuse" else "bytes lost"
    return Grudge(f"{drawn}, {words}", tuple(nodes), ((how, pairs),))


class Partition:
    """Cuts links between nodes; clients still reach all nodes."""

    name = "partition"

    def __init__(self) -> None:
        self._cut: set[Pair] = set()

    def missing(self) -> str | None:
        """Return None: an embedded proxy comes with the suite."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Cut one grudge; None in a cluster of one node."""
        if len(target.nodes) < 2:
            return None
        grudge = draw(target.rng, target.nodes.numbers, await leaders_of(target))
        await self.cut(target, grudge.cuts)
        return grudge.what, list(grudge.nodes)

    async def cut(self, target: Target, cuts: Iterable[tuple[How, Collection[Pair]]]) -> None:
        """Cut these pairs; `end` heals them."""
        for how, pairs in cuts:
            self._cut.update(pairs)
            await target.links.cut(sorted(pairs), how)

    async def end(self, target: Target) -> None:
        """Heal the pairs that were cut."""
        if self._cut:
            await target.links.heal(sorted(self._cut))
            self._cut.clear()
