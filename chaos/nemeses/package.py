"""What a package of faults is, and what it may lay hands on."""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ...client.client import AsyncClient
from ..nodes import Nodes
from .damage import Damage

Pair = tuple[int, int]
"""Requests of the first node to the second; 0 is the clients."""
How = Literal["refuse", "drop", "requests", "answers"]
"""Of a cut: connections are refused, or both streams lose all bytes, or one of them does."""
Stream = Literal["downstream", "upstream"]
Begun = tuple[str, list[int]]
"""What was done, in words, and the numbers of the nodes that it was done to."""


class Links(Protocol):
    """The connections between nodes, and from clients to nodes, as far as faults go."""

    async def cut(self, pairs: Collection[Pair], how: How) -> None:
        """Nothing passes, or nothing one way."""

    async def toxic(
        self,
        pairs: Collection[Pair],
        kind: str,
        *,
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        **attributes: Any,
    ) -> None:
        """Toxiproxy's toxic of this kind, with its attributes, on each of the pairs."""

    async def heal(self, pairs: Collection[Pair] | None = None) -> None:
        """As if nothing had been done to these pairs; None: to any."""


class Crashing(Protocol):
    """The clients of a test."""

    async def crash(self) -> str:
        """Cut one off in the middle of what it does; says which."""
        ...


@dataclass
class Target:
    """A running cluster and all that packages need to break it."""

    nodes: Nodes
    links: Links
    client: AsyncClient
    log: str
    """The log whose ranges, leaders and keys are aimed at."""
    rng: random.Random
    clients: Crashing
    damage: Damage = field(default_factory=Damage)
    """What packages that damage disks know of each other."""


class Package(Protocol):
    """Faults of one kind. Begins one at a time, and ends it before the next."""

    name: str

    def missing(self) -> str | None:
        """What this machine lacks for it, and what installs that; None: nothing."""

    async def begin(self, target: Target) -> Begun | None:
        """One random fault; None when there is nothing to do now.

        Raises LognodeError when the cluster refused. Cancelled or failed, `end` must follow.
        """

    async def end(self, target: Target) -> None:
        """Heal exactly what `begin` did; nothing when it did nothing or has ended already.

        Nodes are started, not waited for: another fault may still keep them from serving.
        """
