"""The interface of a package of faults, and the parts of a test that it may break."""

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
"""The kind of a cut: connections are refused, or all bytes of both streams or of one are lost."""
Stream = Literal["downstream", "upstream"]
Begun = tuple[str, list[int]]
"""A description of the fault, and the numbers of the nodes that it hit."""


class Links(Protocol):
    """The faults of connections between nodes, and from clients to nodes."""

    async def cut(self, pairs: Collection[Pair], how: How) -> None:
        """Let nothing pass, or nothing in one direction."""

    async def toxic(
        self,
        pairs: Collection[Pair],
        kind: str,
        *,
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        **attributes: Any,
    ) -> None:
        """Put Toxiproxy's toxic of this kind, with its attributes, on each of the pairs."""

    async def heal(self, pairs: Collection[Pair] | None = None) -> None:
        """Remove every fault of these pairs; None: of all pairs."""


class Crashing(Protocol):
    """The clients of a test."""

    async def crash(self) -> str:
        """Cut a client off in the middle of an operation; return which."""
        ...


class Spoiled(Protocol):
    """The way to the object store of the cluster's tier."""

    def spoil(self, fault: str, share: float) -> None:
        """Let a share of the requests meet this fault."""

    def heal(self) -> None:
        """End the fault."""


@dataclass
class Target:
    """A running cluster, and all that packages need to break it."""

    nodes: Nodes
    links: Links
    client: AsyncClient
    log: str
    """The log whose ranges, leaders and keys are the targets."""
    rng: random.Random
    clients: Crashing
    damage: Damage = field(default_factory=Damage)
    """The record that packages that damage disks share."""
    more_logs: tuple[str, ...] = ()
    """Further logs whose ranges are targets of operations on ranges, in a test of Kafka clients."""
    tier: Spoiled | None = None
    """None for a cluster without a tier."""


class Package(Protocol):
    """Faults of one kind. A package begins one fault at a time, and ends it before the next."""

    name: str

    def missing(self) -> str | None:
        """Return what this machine lacks, and what installs it; None: nothing."""

    async def begin(self, target: Target) -> Begun | None:
        """Begin a random fault; None when there is nothing to do now.

        Raises LognodeError when the cluster refused. After a cancellation or failure, `end` must
        follow.
        """

    async def end(self, target: Target) -> None:
        """Heal exactly what `begin` did; do nothing if it did nothing or has ended already.

        Nodes are started but not awaited: another fault may still keep them from serving.
        """
