"""The options of one run. Options and seed together determine the run exactly."""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ...partitions.leaving import DEAD_AFTER_S, NEVER

_CURSORS: Final = 0.35
"""Share of the runs with changes of generations in which readers keep cursors."""
REPLICAS: Final = 3
"""Members of a group in runs that change generations; the other nodes are spare."""

FAULTS: Final = {
    "partition": "groups of nodes cannot reach each other: isolate, halves, ring, bridge",
    "oneway": "one direction between two nodes is cut, noticed or not (half-open)",
    "stall": "one direction delivers nothing for a while, then everything",
    "reset": "connections break and are made again",
    "drop": "messages are lost inside live connections",
    "duplicate": "messages arrive twice",
    "late": "messages arrive seconds late, also after their connection has ended",
    "slow": "latency rises a hundredfold",
    "kill": "a node, the leader, a minority or all are killed; what was written stays",
    "power": "a node, the leader or all lose power; what was not synced is lost or torn",
    "power-all": "all nodes lose power at one moment",
    "boundary": "a node dies just before one of its next disk operations, by kill or power",
    "pause": "a node stands still while time goes on",
    "disk": "a disk becomes slow, or refuses a write or a sync",
    "full": "a disk is full for a while",
    "rot": "WAL bytes of a minority flip, files are cut short, or the whole WAL is gone; segments "
    "of the same nodes are damaged or gone",
    "checkpoint": "nodes checkpoint and cut their logs all the time, so that others need bases",
    "clock": "wall clocks jump",
    "change": "ranges change their generation: repair, move, split, merge, drained nodes, growth, "
    "a machine or most of a range's replicas lost for good",
    "client": "client requests and answers are lost, late or doubled",
}
"""Names of faults, as `--faults` takes them, and the effect of each."""

HAVING: Final = ("consumers", "cursors", "views", "removals", "changes", "recovers")
"""What only a share of the seeds draws, as `--having` takes it."""

_CONSUMED: Final = 0.25
"""Share of the seeds with consumers of a group."""
_LETTERS: Final = 0.5
"""Share of the runs with consumers and without removals in which entries become dead letters."""
_OUTPUTS: Final = 0.5
"""Share of the runs with consumers in which these append outputs."""
_UNORDERED: Final = 0.3
"""Share of the runs with consumers whose group has no order."""
_WAITED: Final = 0.5
"""Share of the runs with consumers or cursors in which clients wait for views."""


@dataclass(frozen=True, slots=True)
class Options:
    """Times in virtual seconds. `closed`: guard holes that are closed, None for all of them."""

    nodes: int = 3
    groups: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)
    seconds: float = 20.0
    fault_seconds: float = 12.0
    drain_seconds: float = 16.0
    """The time after which clients start nothing new."""
    grace_seconds: float = 20.0
    """The time after `seconds` within which the run must converge, or it violates L2."""
    clients: int = 3
    window: int = 2
    keys: int = 4
    think_seconds: float = 0.8
    lull_seconds: float = 0.0
    """Clients start nothing in every other stretch of this length, so that groups come to rest."""
    fault_every_seconds: float = 1.5
    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """Share of messages that are very late while faults last, independent of other faults."""
    client_loss: float = 0.0
    """Share of client requests and answers that are lost while faults last, likewise."""
    wal_file_bytes: int = 16 << 10
    checkpoint_entries: int = 60
    grows: bool = False
    """With changes of generations: the cluster begins with one node's ranges and controller."""
    removals: bool = False
    """Clients trim, delete, retain and compact, and replicas merge their segments."""
    cursors: bool = False
    """With changes of generations: readers keep cursors, once the feature level is raised."""
    loses: bool = False
    """With changes of generations and spare nodes: a machine is lost for good, and other nodes
    replace it."""
    recovers: bool = False
    """With changes of generations: most replicas of a range are lost for good, and an operator
    recovers the range from the remaining one."""
    churn_seconds: float = 0.0
    """With changes of generations: the interval of additional splits, merges and moves; 0: only
    those drawn as `change`."""
    repair_after_seconds: float = NEVER
    """The controller replaces the replicas of nodes that are DEAD for this long."""
    phases: bool = True
    """Some runs heal a majority first, and some end with a power loss of all nodes."""
    consumers: int = 0
    """Consumers of a group that reads all keys."""
    letters: bool = False
    """With consumers: entries that failed twice become dead letters."""
    outputs: bool = False
    """With consumers: some acknowledgements come with an output in one command."""
    unordered: bool = False
    """With consumers: the group hands out single entries, in any order."""
    views: bool = False
    """With consumers or cursors: clients wait until these have acknowledged appended entries."""
    opened: frozenset[int] = frozenset()
    """Guard holes left open: only the canary does that."""

    @property
    def changes(self) -> bool:
        """Whether a controller runs, and generations change."""
        return "change" in self.faults

    @property
    def dead_after_seconds(self) -> float:
        """Nodes that are silent for this long are DEAD: soon enough to be replaced under faults."""
        return 3.0 if self.loses else DEAD_AFTER_S

    def lasting(self, seconds: float) -> "Options":
        """Return the options for a run of `seconds`: faults for 12 of 20, clients for 16 of 20."""
        return replace(
            self, seconds=seconds, fault_seconds=seconds * 0.6, drain_seconds=seconds * 0.8
        )

    def to_json(self) -> dict[str, Any]:
        """Return all options, for a file from which a run is replayed."""
        told = asdict(self)
        return {**told, "faults": list(self.faults), "opened": sorted(self.opened)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Options":
        """Undo `to_json`. Raises TypeError, KeyError."""
        told = {**body, "faults": tuple(body["faults"]), "opened": frozenset(body["opened"])}
        return cls(**told)

    def __str__(self) -> str:
        text = (
            f"nodes={self.nodes} groups={self.groups} clients={self.clients} keys={self.keys} "
            f"window={self.window} faults={','.join(self.faults) or 'none'}"
        )
        text += " grows" if self.grows else ""
        text += " removals" if self.removals else ""
        text += " cursors" if self.cursors else ""
        text += " recovers" if self.recovers else ""
        text += f" consumers={self.consumers}" if self.consumers else ""
        text += " letters" if self.letters else ""
        text += " outputs" if self.outputs and self.consumers else ""
        text += " unordered" if self.unordered else ""
        text += " views" if self.views else ""
        text += f" churn={self.churn_seconds:g}" if self.churn_seconds else ""
        text += f" client-loss={self.client_loss:g}" if self.client_loss else ""
        text += f" loses={self.repair_after_seconds:g}" if self.loses else ""
        text += f" lulls={self.lull_seconds:g}" if self.lull_seconds else ""
        holes = ",".join(map(str, sorted(self.opened)))
        return f"{text} opened={holes}" if holes else text


def swarm(seed: int, base: Options, *, pick_faults: bool, pick_nodes: bool) -> Options:
    """Return the options of one seed: a random subset of the faults, and random sizes.

    This is swarm testing (Groce et al., 2012): a run without some faults finds errors that a run
    with all faults hides.
    """
    drawn = _drawn(seed, base, pick_faults=pick_faults, pick_nodes=pick_nodes)
    # An accepted loss takes commits too. The draw has a source of its own, as that of churn.
    fits = drawn.changes and not drawn.recovers
    cursors = fits and random.Random(f"bookmarks {seed}").random() < _CURSORS
    # A removal may take an entry before its copy, and a copy. Consumers exclude an accepted loss.
    fails = bool(drawn.consumers) and not drawn.removals
    letters = fails and random.Random(f"letters {seed}").random() < _LETTERS
    outputs = drawn.consumers > 0 and random.Random(f"outputs {seed}").random() < _OUTPUTS
    waits = (cursors or drawn.consumers > 0) and random.Random(f"views {seed}").random() < _WAITED
    unordered = drawn.consumers > 0 and random.Random(f"order {seed}").random() < _UNORDERED
    return replace(
        drawn, cursors=cursors, letters=letters, outputs=outputs, unordered=unordered, views=waits
    )


def _drawn(seed: int, base: Options, *, pick_faults: bool, pick_nodes: bool) -> Options:
    """Return the options of one seed without readers."""
    rng = random.Random(f"swarm {seed}")
    faults = base.faults
    if pick_faults:
        share = rng.choice((0.15, 0.35, 0.6))
        faults = tuple(name for name in base.faults if rng.random() < share)
    # With a single member, a damaged disk may lose data.
    grows = "change" in faults and "rot" not in faults and rng.random() < 0.3
    consuming = random.Random(f"consumers {seed}")  # its own: the other draws stay as they were
    drawn = replace(
        base,
        consumers=consuming.randint(2, 3) if consuming.random() < _CONSUMED else 0,
        nodes=(5 if rng.random() < 0.25 else 3) if pick_nodes else base.nodes,
        groups=2 if rng.random() < 0.2 else 1,
        faults=faults,
        clients=rng.randint(2, 4),
        window=rng.choice((1, 2, 4)),
        keys=rng.randint(1, 5),
        fault_every_seconds=rng.choice((0.6, 1.5, 3.0)),
        wal_file_bytes=rng.choice((8, 16, 64)) << 10,
        checkpoint_entries=rng.choice((15, 60, 10_000)),
        grows=grows,
        lull_seconds=rng.choice((2.5, 4.0)) if rng.random() < 0.3 else 0.0,
        removals=rng.random() < 0.3,
    )
    if not drawn.changes:
        return drawn
    drawn = _churning(seed, drawn)
    if grows:
        return drawn
    spare = drawn.nodes > REPLICAS
    loses = spare and rng.random() < 0.5
    if loses:
        return replace(drawn, loses=True, repair_after_seconds=rng.choice((NEVER, 0.5, 2.0)))
    # The remaining replica must not rot; and a removal may be lost like any other entry.
    sound = "rot" not in faults and not drawn.removals
    recovers = sound and rng.random() < 0.4
    # A recovered range forgets what was acknowledged too.
    return replace(drawn, recovers=recovers, consumers=0 if recovers else drawn.consumers)


def _churning(seed: int, drawn: Options) -> Options:
    """In two of five runs, let the ranges change all the time, and begin with more than one.

    A retry should meet a range that was split or merged since the first attempt. Half of these runs
    therefore lose answers all the time, too. The draws have a source of their own: the other draws
    of a seed do not depend on them.
    """
    rng = random.Random(f"churn {seed}")
    if rng.random() < 0.6:
        return drawn
    return replace(
        drawn,
        churn_seconds=rng.choice((0.6, 1.2)),
        client_loss=rng.choice((0.0, 0.3)),
        groups=2,
        keys=max(drawn.keys, 2),
    )
