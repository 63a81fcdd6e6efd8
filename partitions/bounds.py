"""How large the metadata may become, and how many replicas a node gets: both are kept in memory."""

from collections.abc import Collection

from ..client.protocol import limits
from ..client.protocol.errors import LimitExceeded
from . import placement
from .metadata_state import MetadataState


def check_logs(state: MetadataState) -> None:
    """Raise LimitExceeded if the cluster can have no further log."""
    count = len(state.logs) + 1
    if count > limits.logs_max:
        raise LimitExceeded(
            f"the cluster would have {count} logs; the limit is {limits.logs_max}. Delete "
            "logs that are not in use, or put more keys into one log",
            limit="logs_max", value=count, allowed=limits.logs_max,
        )  # fmt: skip


def check_ranges(state: MetadataState, more: int) -> None:
    """Raise LimitExceeded if the cluster cannot have `more` further ranges."""
    coming = sum(
        output.range_id not in state.ranges
        for operation in state.operations.values()
        for output in operation.outputs
    )
    count = len(state.ranges) + coming + more
    if count > limits.ranges_max:
        raise LimitExceeded(
            f"the cluster would have {count} ranges; the limit is {limits.ranges_max}. "
            "Create logs with fewer ranges, or merge ranges",
            limit="ranges_max", value=count, allowed=limits.ranges_max,
        )  # fmt: skip


def check_replicas(state: MetadataState, nodes: Collection[int], more: int) -> None:
    """Raise LimitExceeded if these nodes cannot take `more` further replicas, spread evenly.

    Repairs and moves are not checked.
    """
    load = placement.load_of(state.ranges, state.operations.values())
    held = [load[node] for node in nodes]
    count = max(*held, -(-(sum(held) + more) // len(held)), 0)
    if count > limits.replicas_per_node_max:
        raise LimitExceeded(
            f"a node would have {count} replicas; the limit is "
            f"{limits.replicas_per_node_max}. Add nodes, or create logs with fewer ranges "
            "or replicas",
            limit="replicas_per_node_max", value=count, allowed=limits.replicas_per_node_max,
        )  # fmt: skip
