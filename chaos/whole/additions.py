"""What a seed adds to its test, apart from workload and faults: tokens, TLS, HTTP and the like."""

import random
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Final

_NODES_MIN: Final = 3
"""A cluster keeps this number of nodes to the end."""
_RESTORES: Final = 0.15
_TIER: Final = 0.08
_LOCAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Additions:
    """The additions of a run. Each is drawn by itself."""

    tokens: bool = False
    """Clients and nodes prove who they are; guests come with tokens that end during the run."""
    tls: bool = False
    """All ports speak TLS."""
    http: bool = False
    """Readers ask the HTTP pages of all nodes, one of them without reading the answers."""
    together: bool = False
    """The nodes found the cluster together; otherwise they join one by one."""
    late: bool = False
    """The last of four or five nodes joins while clients and faults are at work."""
    removal: bool = False
    """Logs with retention and compaction, and enough bytes to make and merge files."""
    rot: bool = False
    """A byte of a segment file changes on one node."""
    idle: bool = False
    """The cluster rests for a while after the faults, so that rare periodic work is done."""
    loss: bool = False
    """After the faults, the nodes beyond three are lost for good."""
    verified: bool = False
    """At the end all nodes are killed, and `lognode verify` checks their directories."""
    restores: bool = False
    """Backups are restored into new logs, which are split meanwhile."""
    tier: bool = False
    """The nodes upload their segments to an object store, from which logs are restored."""
    local: bool = False
    """A log keeps few bytes on the local disks, with a tier; the run takes longer."""

    @classmethod
    def of(cls, seed: int, nodes: int) -> "Additions":
        """Draw the additions of a seed whose cluster has so many nodes."""
        rng = random.Random(f"{seed}/additions")

        def has(share: float) -> bool:
            return rng.random() < share

        tier = random.Random(f"{seed}/tiered").random() < _TIER
        together, removal = has(0.25), has(0.15)
        has_spare_nodes = nodes > _NODES_MIN and not together
        return cls(
            tokens=has(0.15), tls=has(0.1), http=has(0.2), together=together,
            late=has(0.5) and has_spare_nodes, removal=removal, rot=has(0.5) and removal,
            idle=has(0.05), loss=has(0.5) and has_spare_nodes, verified=has(0.15),
            # Drawn apart: the other draws of a seed stay as they were before there were restores.
            restores=random.Random(f"{seed}/restored").random() < _RESTORES,
            tier=tier, local=tier and random.Random(f"{seed}/local").random() < _LOCAL,
        )  # fmt: skip

    def also(self, names: Collection[str]) -> "Additions":
        """Return these additions and those with the names, and what they need."""
        found = replace(self, **dict.fromkeys(names, True))
        return replace(found, tier=found.tier or found.local)

    def __str__(self) -> str:
        return "+".join(each.name for each in fields(self) if getattr(self, each.name)) or "none"


NAMES: Final = tuple(each.name for each in fields(Additions))
NONE: Final = Additions()
"""A run with workload and faults only."""
