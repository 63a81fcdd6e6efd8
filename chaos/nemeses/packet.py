"""Bad networks: bytes pass, but late, slowly, in pieces, or until the connection breaks."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .package import Begun, Pair, Stream, Target
from .victims import leaders_of, pick

CLIENTS: Final = 0


@dataclass(frozen=True, slots=True)
class Toxic:
    """A toxic of Toxiproxy, with its attributes in its units (ms, KB/s, bytes, and µs)."""

    kind: str
    attributes: dict[str, Any]
    stream: Stream
    toxicity: float = 1.0
    """The share of affected connections."""


def around(victims: Collection[int], numbers: Sequence[int]) -> list[Pair]:
    """Return all pairs with one of the victims, including those of clients."""
    return sorted(
        (a, b)
        for a in (CLIENTS, *numbers)
        for b in numbers
        if a != b and (a in victims or b in victims)
    )


def draw(rng: random.Random) -> tuple[str, list[Toxic]]:
    """Draw a description and toxics.

    A toxic that breaks connections also breaks later ones, by chance.
    """

    def both(kind: str, **attributes: int) -> list[Toxic]:
        return [Toxic(kind, attributes, "upstream"), Toxic(kind, attributes, "downstream")]

    kind = rng.choice(("latency", "bandwidth", "slicer", "slow_close", "limit_data", "reset_peer"))
    if kind == "latency":
        latency = rng.choice((5, 20, 100, 300))
        jitter = rng.choice((0, latency // 2, latency))
        return f"latency of {latency} ms ± {jitter} ms", both(kind, latency=latency, jitter=jitter)
    if kind == "bandwidth":
        rate = rng.choice((4, 32, 256))
        return f"bandwidth of {rate} KB/s", both(kind, rate=rate)
    if kind == "slicer":
        size = rng.choice((16, 64, 512))
        delay_us = rng.choice((10, 100, 1000))
        what = f"slices of about {size} bytes, {delay_us} µs apart"
        return what, both(kind, average_size=size, size_variation=size // 2, delay=delay_us)
    if kind == "slow_close":
        delay = rng.choice((500, 2000))
        return f"connections that close {delay} ms late", both(kind, delay=delay)
    if kind == "limit_data":
        size = rng.randrange(200, 100_000)
        what = f"connections cut after {size} bytes"
        return what, [Toxic(kind, {"bytes": size}, rng.choice(("upstream", "downstream")))]
    # A reset affects only connections that are opened later: the limit ends the existing ones.
    timeout = rng.choice((0, 100, 1000))
    return f"connections reset after {timeout} ms", [
        Toxic("limit_data", {"bytes": rng.randrange(200, 20_000)}, "upstream"),
        Toxic(kind, {"timeout": timeout}, "downstream", toxicity=0.5),
    ]


class Packet:
    """Puts toxics on the links of some nodes, to each other and to clients."""

    name = "packet"

    def __init__(self) -> None:
        self._poisoned: list[Pair] = []

    def missing(self) -> str | None:
        """Return None: an embedded proxy comes with the suite."""
        return None

    async def begin(self, target: Target) -> Begun | None:
        """Poison the links of one node, of all, or of the leaders."""
        who = target.rng.choice(("one", "all", "leaders"))
        victims = pick(target.rng, who, target.nodes.numbers, await leaders_of(target))
        what, toxics = draw(target.rng)
        await self.poison(target, victims, toxics)
        return what, victims

    async def poison(
        self, target: Target, victims: Collection[int], toxics: Sequence[Toxic]
    ) -> None:
        """Put these toxics on all links of the victims; `end` must follow."""
        self._poisoned = around(victims, target.nodes.numbers)
        for toxic in toxics:
            await target.links.toxic(
                self._poisoned, toxic.kind, stream=toxic.stream, toxicity=toxic.toxicity,
                **toxic.attributes,
            )  # fmt: skip

    async def end(self, target: Target) -> None:
        """Heal the links."""
        if self._poisoned:
            await target.links.heal(self._poisoned)
            self._poisoned = []
