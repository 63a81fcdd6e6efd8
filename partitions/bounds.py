"""How large the metadata may become: every node holds all of it in memory."""

from ..client import limits
from ..client.errors import LimitExceeded
from .metadata_state import MetadataState


def check_logs(state: MetadataState) -> None:
    """Raise LimitExceeded where the cluster can have no further log."""
    count = len(state.logs) + 1
    if count > limits.logs_max:
        raise LimitExceeded(
            f"the cluster would have {count} logs; the limit is {limits.logs_max}. Delete logs "
            "that are done, or put more keys into one log",
            limit="logs_max", value=count, allowed=limits.logs_max,
        )  # fmt: skip


def check_ranges(state: MetadataState, more: int) -> None:
    """Raise LimitExceeded where the cluster cannot have so many ranges more."""
    coming = sum(
        output.range_id not in state.ranges
        for operation in state.operations.values()
        for output in operation.outputs
    )
    count = len(state.ranges) + coming + more
    if count > limits.ranges_max:
        raise LimitExceeded(
            f"the cluster would have {count} ranges; the limit is {limits.ranges_max}. Create logs "
            "with fewer ranges, or merge some",
            limit="ranges_max", value=count, allowed=limits.ranges_max,
        )  # fmt: skip
