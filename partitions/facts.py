"""The reports of members on operations, which the controller's leader keeps in memory only.

Members repeat their reports. The facts decide nothing by themselves. A new controller leader starts
with no facts, and hears all of them within a heartbeat.
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
"""Kinds of reports. COPIED: the existing files are here. SEALED: this member's own replica has come
to the end of the generation, and the end is durable. PREPARED: the end was fetched from another
member, and is durable. INSTALLED: the next generation has begun."""

Leader = Callable[[int, int], int | None]
"""Returns the leader of a generation of a range, as far as it is known."""

Report = dict[str, Any]
"""`operation`, `kind`, and for the end of a generation its `lineage` and `effects`."""


@dataclass(slots=True)
class OperationFacts:
    """The facts of one operation: copies ahead, the seal, holders of the sealed state."""

    planned_at: float = 0.0
    copied: set[int] = field(default_factory=set)
    sealed_at: float = 0.0
    """When the first report of a sealed state arrived."""
    sealed: dict[int, dict[Gid, Lineage]] = field(default_factory=dict)
    """Node to the durable ends of generations that its own replicas have reached."""
    prepared: dict[int, dict[Gid, Lineage]] = field(default_factory=dict)
    """Node to the durable ends of generations that it holds, from its own replicas or fetched."""
    effects: dict[int, dict[Gid, bytes]] = field(default_factory=dict)
    """Node to the hashes of what the entries of these generations did, as its state has them."""
    decided_at: float | None = None
    """When this leader first saw the operation DECIDED."""
    installed: set[int] = field(default_factory=set)


def _unknown(_: int, __: int) -> None:
    return None


class Facts:
    """The facts of all operations. The caller passes times of one monotonic clock."""

    def __init__(self, leader: Leader = _unknown) -> None:
        self.leader = leader
        self.operations: dict[int, OperationFacts] = {}
        self.heard: dict[int, float] = {}
        """Node to the time of its last heartbeat."""
        self.damaged: dict[int, list[Damage]] = {}
        """Node to the damages of its replicas, as the node reports them."""
        self.large: dict[int, list[Large]] = {}
        """Node to the ranges that it leads and finds too large, or too busy."""
        self.small: dict[int, list[Small]] = {}
        """Node to the ranges that it leads and finds small enough to be merged."""
        self.gathered: set[int] = set()
        """Ranges that moved to prepare a merge: this move does not make them rest."""
        self.repaired: dict[int, float] = {}
        """Range to the time of its last planned repair or split, or of its last move off a node."""
        self.changed: dict[int, float] = {}
        """Range to the time when it was last seen in an operation."""
        self.kept: dict[int, tuple[int, float]] = {}
        """Range to the node that should keep leading it, and the time until which."""
        self.short: Collection[int] = ()
        """Nodes that report little free disk space."""
        self.drains: dict[int, float] = {}
        """DRAINING node to the time when this leader first saw it DRAINING."""
        self.stored: dict[int, Mapping[str, int]] = {}
        """Node to the stored bytes of each tenant with such a quota, in the ranges that the node
        leads."""
        self.leads_left: dict[int, int] = {}
        """DRAINING node to the number of leads that it still has to hand over, as it reports."""

    def of(self, operation_id: int, now: float) -> OperationFacts:
        """Return the facts of an operation; empty at first."""
        facts = self.operations.get(operation_id)
        if facts is None:
            facts = self.operations[operation_id] = OperationFacts(planned_at=now)
        return facts

    def take(
        self, node: int, report: Report, now: float, under_way: Container[int] | None = None
    ) -> None:
        """Take one report of a member. Raises InvalidArgument for a malformed report.

        If `under_way` is given, a report of any other operation is ignored: its facts would never
        be removed. A member repeats its report until the operation has moved on.
        """
        operation, kind = report.get("operation"), report.get("kind")
        if type(operation) is not int or operation < 0:
            raise InvalidArgument(
                f"the report of operation {operation!r} is not valid", what="operation"
            )
        if kind not in (COPIED, SEALED, PREPARED, INSTALLED):
            raise InvalidArgument(f"the report has the unknown kind {kind!r}", what="kind")
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

    def learn(
        self, node: int, *, damaged: list[Damage], large: list[Large], small: list[Small],
        stored: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Take what a node reports of its replicas and of the ranges that it leads."""
        self.damaged[node] = damaged
        self.large[node] = large
        self.small[node] = small
        self.stored[node] = stored

    def learn_short(self, nodes: Collection[int]) -> None:
        """Take the nodes that report little free disk space."""
        self.short = nodes

    def hear(self, node: int, now: float, leads_left: int | None = None) -> None:
        """Note a heartbeat. `leads_left`: see the field; None leaves what was known."""
        self.heard[node] = now
        if leads_left is not None:
            self.leads_left[node] = leads_left

    def follow_drains(self, draining: set[int], now: float) -> None:
        """Note the nodes that are DRAINING now."""
        self.drains = {node: self.drains.get(node, now) for node in draining}
        self.leads_left = {n: left for n, left in self.leads_left.items() if n in draining}

    def changed_within(self, now: float, within_s: float) -> frozenset[int]:
        """Return the ranges that were in an operation within this time."""
        return frozenset(r for r, at in self.changed.items() if now - at < within_s)

    def forget_gone(self, ranges: Collection[int]) -> None:
        """Forget the facts of ranges that no longer exist."""
        self.changed = {r: at for r, at in self.changed.items() if r in ranges}
        self.gathered &= set(ranges)

    def keep(self, range_id: int, node: int, until: float) -> None:
        """Note that the node, while it leads the range, should keep leading it until then."""
        self.kept[range_id] = node, until

    def keepers(self, now: float) -> dict[int, int]:
        """Return the node that should keep leading each range.

        Expired notes are forgotten.
        """
        self.kept = {r: (node, until) for r, (node, until) in self.kept.items() if now < until}
        return {range_id: node for range_id, (node, _) in self.kept.items()}

    def alive(self, now: float, within_s: float) -> set[int]:
        """Return the nodes heard from within this time."""
        return {node for node, at in self.heard.items() if now - at <= within_s}

    def stored_in_all(self, now: float, within_s: float) -> dict[str, int]:
        """Return the stored bytes of each tenant.

        Silent nodes are left out: other nodes lead their ranges by now.
        """
        sums: Counter[str] = Counter()
        for node in self.alive(now, within_s):
            sums.update(self.stored.get(node, {}))
        return dict(sums)

    def forget_except(self, operations: set[int]) -> None:
        """Forget the facts of all other operations."""
        for operation_id in set(self.operations) - operations:
            del self.operations[operation_id]


def _lineage(told: object) -> Lineage:
    if not isinstance(told, list) or list(map(type, told)) != [*[int] * 6, bytes]:
        raise InvalidArgument("the lineage of the report is not valid", what="lineage")
    return Lineage(*told)
