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
_TELL_KEYS = frozenset({"start", "end", "hot_key", "reason"})


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
    without what tells keys of logs that it may not read: bounds of ranges, hot keys, reasons."""
    shown = dict(status)
    if not rights.may_everywhere(Permission.DESCRIBE):
        ranges = _ranges_with(rights, Permission.DESCRIBE, metadata)
        logs = {metadata.ranges[range_id].log_id for range_id in ranges}
        for name in _OF_RANGES:
            shown[name] = [row for row in status[name] if ranges.issuperset(_about(row))]
        shown["logs"] = [row for row in status["logs"] if row["id"] in logs]
    if not rights.may_everywhere(Permission.READ):
        readable = _ranges_with(rights, Permission.READ, metadata)
        for name in _OF_RANGES:
            shown[name] = [
                row if readable.issuperset(_about(row)) else _without_keys(row)
                for row in shown[name]
            ]
    return shown


def _ranges_with(rights: Rights, permission: Permission, metadata: Metadata) -> set[int]:
    """The ranges of the logs for all of which the principal has the permission."""
    logs = {r.log_id for r in metadata.logs.values() if rights.may(permission, r.name)}
    return {range_id for range_id, r in metadata.ranges.items() if r.log_id in logs}


def _logs_seen(rights: Rights, metadata: Metadata) -> set[int]:
    return {record.log_id for record in metadata.logs.values() if rights.sees(record.name)}


def _about(row: Body) -> list[int]:
    """The ranges that the row is about."""
    return list(row["ranges"]) if "ranges" in row else [row["range" if "range" in row else "id"]]


def _without_keys(row: Body) -> Body:
    """The row without what tells a key."""
    shown = {name: value for name, value in row.items() if name not in _TELL_KEYS}
    last = row.get("last_operation")
    return shown if last is None else {**shown, "last_operation": {**last, "reason": None}}
