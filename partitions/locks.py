"""Whether an operation may begin: one at a time on each range, and few in total."""

from collections.abc import Collection

from ..client.protocol.errors import LimitExceeded, OperationInProgress
from .model import Descriptor

OPERATIONS_MAX = 4
"""The most operations under way at once, planned or requested."""


def check_free(range_: Descriptor) -> None:
    """Raise OperationInProgress when another operation has the range."""
    if range_.operation:
        raise OperationInProgress(
            f"range {range_.range_id} is in operation {range_.operation}; wait for its end, "
            "which `lognode status` shows", range=range_.range_id, operation=range_.operation,
        )  # fmt: skip


def check_room(operations: Collection[int]) -> None:
    """Raise LimitExceeded when no further operation may begin now."""
    if len(operations) >= OPERATIONS_MAX:
        raise LimitExceeded(
            f"{len(operations)} operations are in progress; {OPERATIONS_MAX} are allowed. Wait "
            "until an operation ends, which `lognode status` shows",
            limit="operations_max", value=len(operations) + 1, allowed=OPERATIONS_MAX,
        )  # fmt: skip
