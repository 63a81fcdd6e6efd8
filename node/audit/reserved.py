"""Protect the logs that the cluster writes: clients read them, and never write or create them.

An administrator may alter the retention of such a log, and delete it: both are recorded.
"""

from collections.abc import Callable
from typing import Any, Final

from ...client.protocol import Operation, Permission, log_names
from ...client.protocol.cluster import CREATE_LOG
from ...client.protocol.errors import Unauthorized
from ...client.protocol.groups import GROUP_CREATE
from ...partitions.groups import dead_letters
from ...partitions.metadata import Metadata

LOGS: Final = log_names.OF_CLUSTER
_WRITES: Final = frozenset({Permission.APPEND, Permission.TRIM})

Body = dict[str, Any]


class Reserved:
    """Checks requests of clients. `metadata` returns the newest metadata of this node."""

    def __init__(self, metadata: Callable[[], Metadata]) -> None:
        self._metadata = metadata
        self._version = -1
        self._ranges: frozenset[int] = frozenset()

    def check(self, operation: Operation, body: Body) -> None:
        """Raise Unauthorized for a client's request that only a node may make."""
        if operation.permission in _WRITES and body.get("range") in self._of_now():
            raise Unauthorized("only the cluster writes this log; append to another log")
        if operation is CREATE_LOG and body["name"] in LOGS:
            raise Unauthorized(
                f"the log name {body['name']} is reserved for the cluster; choose another name"
            )

        if operation is GROUP_CREATE and (log := dead_letters(body["on_dead"])) in LOGS:
            raise Unauthorized(f"only the cluster writes log {log}; name another log")

    def _of_now(self) -> frozenset[int]:
        """Return the ranges of the reserved logs, by the newest metadata."""
        metadata = self._metadata()
        if metadata.version != self._version:
            own = {record.log_id for record in metadata.logs.values() if record.name in LOGS}
            self._ranges = frozenset(
                range_id for range_id, range_ in metadata.ranges.items() if range_.log_id in own
            ) if own else frozenset()  # fmt: skip
            self._version = metadata.version
        return self._ranges
