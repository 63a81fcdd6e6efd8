"""How large the metadata may become, and how many replicas a node gets: both are kept in memory."""

from collections.abc import Collection

from ..client.protocol import limits
from ..client.protocol.limit_checks import check_limit
from . import placement
from .metadata_state import MetadataState


def check_logs(state: MetadataState) -> None:
    """Raise LimitExceeded if the cluster can have no further log."""
    count = len(state.logs) + 1
    check_limit(
        "logs_max", limits.logs_max, count, f"the cluster would have {count} logs",
        "Delete logs that are not in use, or put more keys into one log",
    )  # fmt: skip


def check_ranges(state: MetadataState, more: int) -> None:
    """Raise LimitExceeded if the cluster cannot have `more` further ranges."""
    coming = sum(
        output.range_id not in state.ranges
        for operation in state.operations.values()
        for output in operation.outputs
    )
    count = len(state.ranges) + coming + more
    check_limit(
        "ranges_max", limits.ranges_max, count, f"the cluster would have {count} ranges",
        "Create logs with fewer ranges, or merge ranges",
    )  # fmt: skip


def check_replicas(state: MetadataState, nodes: Collection[int], more: int) -> None:
    """Raise LimitExceeded if these nodes cannot take `more` further replicas, spread evenly.

    Repairs and moves are not checked.
    """
    load = placement.load_of(state.ranges, state.operations.values())
    held = [load[node] for node in nodes]
    count = max(*held, -(-(sum(held) + more) // len(held)), 0)
    check_limit(
        "replicas_per_node_max", limits.replicas_per_node_max, count,
        f"a node would have {count} replicas",
        "Add nodes, or create logs with fewer ranges or replicas",
    )  # fmt: skip
