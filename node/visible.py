"""What of an answer about the cluster a principal may see: the rows of its own logs."""

from typing import Any

from ..client.access import Access
from ..client.protocol import Operation, Permission
from ..client.protocol.cluster import METADATA, STATUS
from ..partitions.metadata import Metadata
from .rights import Rights

Body = dict[str, Any]
_OF_RANGES = ("ranges", "replicas", "damaged", "operations")
"""Parts of a status whose rows are about ranges."""


def visible(operation: Operation, access: Access, answer: Body, metadata: Metadata) -> Body:
    """Return what of the answer to an operation the principal may see."""
    if isinstance(access, Rights):
        if operation is METADATA:
            return metadata_for(access, answer, metadata)
        if operation is STATUS:
            return status_for(access, answer, metadata)
    return answer


def metadata_for(rights: Rights, answer: Body, metadata: Metadata) -> Body:
    """Return the answer to `metadata` without the logs that the principal may not know of."""
    seen = _logs_seen(rights, metadata)
    return {
        **answer,
        "logs": [row for row in answer["logs"] if row["id"] in seen],
        "ranges": [row for row in answer["ranges"] if row["log"] in seen],
    }


def status_for(rights: Rights, status: Body, metadata: Metadata) -> Body:
    """Return the status without the logs of which the principal may not see the status, and
    without the bounds of ranges whose keys it may not read."""
    if rights.may_everywhere(Permission.DESCRIBE):
        shown = dict(status)
    else:
        logs = {r.log_id for r in metadata.logs.values() if rights.may(Permission.DESCRIBE, r.name)}
        ranges = {r.range_id for r in metadata.ranges.values() if r.log_id in logs}
        shown = {
            name: [row for row in part if _is_about(row, ranges)] if name in _OF_RANGES else part
            for name, part in status.items()
        }
        shown["logs"] = [row for row in status["logs"] if row["id"] in logs]
    shown["ranges"] = [
        row if rights.may(Permission.READ, row["log"]) else _without_keys(row)
        for row in shown["ranges"]
    ]
    return shown


def _logs_seen(rights: Rights, metadata: Metadata) -> set[int]:
    return {record.log_id for record in metadata.logs.values() if rights.sees(record.name)}


def _is_about(row: Body, ranges: set[int]) -> bool:
    """Whether the row is about some of the ranges alone."""
    told = row["ranges"] if "ranges" in row else [row["range"] if "range" in row else row["id"]]
    return ranges.issuperset(told)


def _without_keys(row: Body) -> Body:
    return {name: value for name, value in row.items() if name not in ("start", "end")}
