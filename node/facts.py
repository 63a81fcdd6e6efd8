"""What members report of operations, kept by the controller's leader: soft, told again and again.

Nothing here decides anything by itself. A new controller leader starts with nothing and hears it
all within a heartbeat.
"""

from dataclasses import dataclass, field
from typing import Any

from ..partitions.model import Lineage


@dataclass(slots=True)
class OperationFacts:
    """Of one operation: who copied ahead, the seal, who holds the sealed state durably."""

    copied: set[int] = field(default_factory=set)
    sealed: Lineage | None = None
    sealed_at: float = 0.0
    prepared: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    """Node to (final index, final term, state hash)."""
    installed: set[int] = field(default_factory=set)
    planned_at: float = 0.0


class Facts:
    """Facts by operation."""

    def __init__(self) -> None:
        self.operations: dict[int, OperationFacts] = {}
        self.heard: dict[int, float] = {}
        """Node to the time of its last heartbeat, on this node's monotonic clock."""

    def of(self, operation_id: int, now: float) -> OperationFacts:
        """The facts of an operation; empty at first."""
        facts = self.operations.get(operation_id)
        if facts is None:
            facts = self.operations[operation_id] = OperationFacts(planned_at=now)
        return facts

    def take(self, node: int, report: dict[str, Any], now: float) -> None:
        """One report of a member."""
        facts = self.of(report["operation"], now)
        kind = report["kind"]
        if kind == "copied":
            facts.copied.add(node)
        elif kind == "prepared":
            lineage = Lineage(*report["lineage"])
            if facts.sealed is None:
                facts.sealed, facts.sealed_at = lineage, now
            facts.prepared[node] = (
                lineage.final_index, lineage.final_term, lineage.state_hash,
            )  # fmt: skip
        elif kind == "installed":
            facts.installed.add(node)

    def alive(self, now: float, within_s: float) -> set[int]:
        """Nodes heard from lately."""
        return {node for node, at in self.heard.items() if now - at <= within_s}

    def forget_except(self, operations: set[int]) -> None:
        """Operations that are done need no facts."""
        for operation_id in set(self.operations) - operations:
            del self.operations[operation_id]
