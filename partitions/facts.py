"""What members report of operations, kept by the controller's leader: soft, told again and again.

Nothing here decides anything by itself. A new controller leader starts with nothing and hears it
all within a heartbeat.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..client.protocol.errors import InvalidArgument
from .lineage import Gid
from .model import Lineage
from .planner import Damage, Large
from .shrinking import Small

COPIED, SEALED, PREPARED, INSTALLED = "copied", "sealed", "prepared", "installed"
"""Kinds of reports: the files that exist are here; so is, durably, the end of the generation, of
this member's own making or fetched from one; the next generation has begun."""

Leader = Callable[[int, int], int | None]
"""Who leads a generation of a range, as far as is known."""

Report = dict[str, Any]
"""`operation`, `kind`, and of a generation's end its `lineage` and `effects`."""


@dataclass(slots=True)
class OperationFacts:
    """Of one operation: who copied ahead, the seal, who holds the sealed state durably."""

    planned_at: float = 0.0
    copied: set[int] = field(default_factory=set)
    sealed_at: float = 0.0
    """When the first report of a sealed state came."""
    sealed: dict[int, dict[Gid, Lineage]] = field(default_factory=dict)
    """Node to the ends of generations as its own replicas came to them, durably."""
    prepared: dict[int, dict[Gid, Lineage]] = field(default_factory=dict)
    """Node to the ends of generations as it holds them durably, of whatever making."""
    effects: dict[int, dict[Gid, bytes]] = field(default_factory=dict)
    """Node to the hashes of what the entries of these generations did, as its state has them."""
    decided_at: float | None = None
    """When this leader first saw it decided."""
    installed: set[int] = field(default_factory=set)


def _unknown(_: int, __: int) -> None:
    return None


class Facts:
    """Facts by operation. Times are those of one monotonic clock, the caller's."""

    def __init__(self, leader: Leader = _unknown) -> None:
        self.leader = leader
        self.operations: dict[int, OperationFacts] = {}
        self.heard: dict[int, float] = {}
        """Node to the time of its last heartbeat."""
        self.damaged: dict[int, list[Damage]] = {}
        """Node to what it says of its replicas."""
        self.large: dict[int, list[Large]] = {}
        """Node to ranges that it leads and finds too large, or too busy."""
        self.small: dict[int, list[Small]] = {}
        """Node to ranges that it leads and finds small enough to be merged."""
        self.gathered: set[int] = set()
        """Ranges that moved to be merged: that they did is no reason to let them rest."""
        self.repaired: dict[int, float] = {}
        """Range to when its last repair or split was planned, or the last move of it off a node."""
        self.changed: dict[int, float] = {}
        """Range to when it was last seen in an operation."""
        self.kept: dict[int, tuple[int, float]] = {}
        """Range to the node that is to go on leading it, as long as it does, and until when."""
        self.short: Collection[int] = ()
        """Nodes that say that little disk is left there."""
        self.drains: dict[int, float] = {}
        """DRAINING node to when this leader first saw that it is."""
        self.stored: dict[int, Mapping[str, int]] = {}
        """Node to the bytes of each tenant with a quota of them, in the ranges that it leads."""
        self.leads_left: dict[int, int] = {}
        """DRAINING node to how many leads it has still to hand over, as it says."""

    def of(self, operation_id: int, now: float) -> OperationFacts:
        """The facts of an operation; empty at first."""
        facts = self.operations.get(operation_id)
        if facts is None:
            facts = self.operations[operation_id] = OperationFacts(planned_at=now)
        return facts

    def take(
        self, node: int, report: Report, now: float, under_way: Container[int] | None = None
    ) -> None:
        """Take one report of a member. Raises InvalidArgument for a malformed report.

        A report of an operation that is not `under_way`, where that is given, is left out: nothing
        would ever remove it. A member reports again until the operation has moved on.
        """
        operation, kind = report.get("operation"), report.get("kind")
        if type(operation) is not int or operation < 0:
            raise InvalidArgument(f"report of operation {operation!r}", what="operation")
        if kind not in (COPIED, SEALED, PREPARED, INSTALLED):
            raise InvalidArgument(f"report of unknown kind {kind!r}", what="kind")
        lineage = _lineage(report.get("lineage")) if kind in (SEALED, PREPARED) else None
        if under_way is not None and operation not in under_way:
            return
        facts = self.of(operation, now)
        if kind == COPIED:
            facts.copied.add(node)
        elif lineage is not None:
            if not facts.prepared:
                facts.sealed_at = now
            gid = lineage.range_id, lineage.generation
            facts.prepared.setdefault(node, {})[gid] = lineage
            facts.effects.setdefault(node, {})[gid] = report.get("effects") or b""
            if kind == SEALED:
                facts.sealed.setdefault(node, {})[gid] = lineage
        else:
            facts.installed.add(node)

    def follow_drains(self, draining: set[int], now: float) -> None:
        """These nodes are DRAINING, and no others."""
        self.drains = {node: self.drains.get(node, now) for node in draining}
        self.leads_left = {n: left for n, left in self.leads_left.items() if n in draining}

    def changed_within(self, now: float, within_s: float) -> frozenset[int]:
        """Ranges that were in an operation lately."""
        return frozenset(r for r, at in self.changed.items() if now - at < within_s)

    def forget_gone(self, ranges: Collection[int]) -> None:
        """There are these ranges only."""
        self.changed = {r: at for r, at in self.changed.items() if r in ranges}
        self.gathered &= set(ranges)

    def keep(self, range_id: int, node: int, until: float) -> None:
        """Who leads the range, while it does, is to go on until then."""
        self.kept[range_id] = node, until

    def keepers(self, now: float) -> dict[int, int]:
        """Per range the node that is to go on leading it; what is over is forgotten."""
        self.kept = {r: (node, until) for r, (node, until) in self.kept.items() if now < until}
        return {range_id: node for range_id, (node, _) in self.kept.items()}

    def alive(self, now: float, within_s: float) -> set[int]:
        """Nodes heard from lately."""
        return {node for node, at in self.heard.items() if now - at <= within_s}

    def stored_in_all(self, now: float, within_s: float) -> dict[str, int]:
        """The bytes of each tenant. What a node led that is not heard of others lead by now."""
        sums: Counter[str] = Counter()
        for node in self.alive(now, within_s):
            sums.update(self.stored.get(node, {}))
        return dict(sums)

    def forget_except(self, operations: set[int]) -> None:
        """Operations that are done need no facts."""
        for operation_id in set(self.operations) - operations:
            del self.operations[operation_id]


def _lineage(told: object) -> Lineage:
    if not isinstance(told, list) or list(map(type, told)) != [*[int] * 6, bytes]:
        raise InvalidArgument("a lineage that is none", what="lineage")
    return Lineage(*told)
