"""Check the rows of the metadata's tables that another node sent: each field and its type.

Rows are checked before they are used, so that later readers of records can trust them. Addresses,
zones and policies are not checked: an older version may have committed bad ones, and the code that
uses them accepts that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..client.protocol import limits
from ..client.protocol.groups import BY_ENTRY
from .grants import KEY_BYTES
from .reasons import are_causes

_PHASES: Final = ("PLANNED", "SEALING", "DECIDED")
_NODE: Final[Mapping[str, type]] = {
    "node_id": int, "address": str, "http": str, "zone": str, "incarnation": int, "boot": int,
    "state": str, "process": int,
}  # fmt: skip
_NODE_MORE: Final = ("key", "peer", "invite")
_RANGE: Final[Mapping[str, type]] = {
    "id": int, "generation": int, "log": int, "start": bytes, "members": list, "lineage": list,
    "state": str, "operation": int, "met_at": list,
}  # fmt: skip
_OPERATION: Final[Mapping[str, type]] = {
    "operation_id": int, "kind": str, "inputs": list, "outputs": list, "phase": str, "reason": str,
    "installed": list,
}  # fmt: skip
_OUTPUT: Final[Mapping[str, type]] = {
    "range_id": int, "generation": int, "span": list, "members": list,
}  # fmt: skip
_TOKEN: Final[Mapping[str, type]] = {
    "id": str, "principal": str, "scopes": list, "digest": bytes, "certificate": str,
    "created_ms": int, "expires_ms": int, "quota_class": str,
}  # fmt: skip
_RULES: Final = ("retention_ms", "retention_bytes", "delete_retention_ms", "snapshot_delay_ms",
                 "split_bytes", "split_rate", "local_retention_bytes")  # fmt: skip
_LINEAGE: Final = [*[int] * 6, bytes]
_LAST: Final = [int, str, str, str, int]
_INVITE: Final = [str, bytes, int, int]
_INVITE_BY: Final = [*_INVITE, str]
_GROUP: Final = [int, int, str, bytes, bytes, list, int, str, int, str, int, bool, int]
_VIEW: Final = [int, int, str, int, str, bytes, str, int]
_NAMED: Final = [int, str, int, int, int, str]

ALWAYS: Final[Mapping[str, frozenset[str]]] = {
    "head": frozenset({"cluster", "controller", "sealed", "logs_deleted", "founders"}),
    "next_ids": frozenset({"node", "log", "range", "operation"}),
    "access": frozenset({"tokens", "version"}),
    "producer_ids": frozenset({"anonymous", "epoch", "number"}),
}
"""The keys that a table of texts has in every state."""


def is_row(table: str, row: object) -> bool:
    """Whether the row can be a row of that table, which is one of `records`."""
    return _ROWS[table](row)


def is_range(row: Any) -> bool:
    """Whether the row is a descriptor."""
    return (
        _has(row, _RANGE)
        and type(row.get("end")) in (bytes, type(None))
        and _are_ids((row["id"], row["generation"], row["log"], row["operation"]))
        and _are_ids(row["members"])
        and _are_bytes(row["met_at"])
        and all(_are(parent, _LINEAGE) for parent in row["lineage"])
        and _are_bytes(row.get("effects", []))
    )


def _are_bytes(values: Any) -> bool:
    return type(values) is list and all(type(value) is bytes for value in values)


def _is_head(row: Any) -> bool:
    if not _is_pair(row, str):
        return False
    key, value = row
    if key == "controller":
        return is_range(value)
    if key in (
        "logs_deleted",
        "founders",
        "founded_ms",
        "feature_level",
        "groups_deleted",
        "views_deleted",
    ):
        return _are_ids([value])
    return type(value) is {"cluster": str, "sealed": bool}.get(key)


def _is_node(row: Any) -> bool:
    """Whether the row is a node. The incarnation may have 64 bits."""
    return _has(row, _NODE) and all(type(row[name]) is str for name in _NODE_MORE if name in row)


def _is_log(row: Any) -> bool:
    if not (_has(row, {"log_id": int, "name": str, "policy": dict}) and _are_ids([row["log_id"]])):
        return False
    creation = row.get("creation", b"")
    if type(creation) is not bytes or len(creation) not in (0, limits.creation_bytes):
        return False
    hierarchy = row.get("hierarchy", b"")
    if type(hierarchy) is not bytes or len(hierarchy) > limits.separator_bytes_max:
        return False
    policy = row["policy"]
    partitions = policy.get("kafka_partitions")
    if partitions is not None and not (type(partitions) is int and 0 < partitions < 1 << 16):
        return False
    numbers = {type(policy.get(name)) for name in _RULES}
    return numbers <= {int, type(None)} and _has(
        policy, {"replicas": int, "cleanup": str, "ranges_min": int}
    )


def _is_operation(row: Any) -> bool:
    return (
        _has(row, _OPERATION)
        and row["phase"] in _PHASES
        and all(len(_ids(gid)) == 2 for gid in row["inputs"])
        and all(map(_is_output, row["outputs"]))
        and _are_ids(row["installed"])
        and _are_ids((row["operation_id"],))
        and are_causes(row.get("causes", []))
    )


def _is_output(row: Any) -> bool:
    if not _has(row, _OUTPUT) or len(row["span"]) != 2:
        return False
    start, end = row["span"]
    numbers = (row["range_id"], row["generation"], *row["members"])
    return type(start) is bytes and type(end) in (bytes, type(None)) and _are_ids(numbers)


def _is_access(row: Any) -> bool:
    if not _is_pair(row, str):
        return False
    key, value = row
    if key == "tokens":
        return type(value) is list and all(
            _has(each, _TOKEN)
            and type(each.get("patterns", [])) is list
            and type(each.get("scram", b"")) is bytes
            for each in value
        )
    if key == "producer_key":
        return type(value) is bytes and len(value) == KEY_BYTES
    return key == "version" and _are_ids([value])


def _is_invite(row: Any) -> bool:
    """Whether the row is an invitation. An older version did not keep who had made it."""
    return (_are(row, _INVITE) or _are(row, _INVITE_BY)) and _are_ids(row[2:4])


def _is_quota(row: Any) -> bool:
    return (
        _is_pair(row, str)
        and type(row[1]) is dict
        and all(type(name) is str for name in row[1])
        and _are_ids(row[1].values())
    )


def _is_group(row: Any) -> bool:
    """Whether the row is a group. Its log is checked with the other records."""
    is_group = _are(row, _GROUP) or (_are(row, [*_GROUP, str]) and row[13] == BY_ENTRY)
    if not is_group or len(row[5]) > limits.patterns_max:
        return False
    return _are_bytes(row[5]) and _are_ids((*row[:2], row[6], row[8], row[10], row[12]))


def _is_view(row: Any) -> bool:
    """Whether the row is a view. Its log and its group are checked with the other records."""
    return _are(row, _VIEW) and _are_ids((*row[:2], row[3], row[7]))


def _is_last(row: Any) -> bool:
    if not (_is_pair(row, int) and _are_ids([row[0]]) and type(row[1]) is list):
        return False
    last, causes = row[1][: len(_LAST)], row[1][len(_LAST) :]
    return _are(last, _LAST) and len(causes) <= 1 and all(map(are_causes, causes))


def _is_named(row: Any) -> bool:
    return _are(row, _NAMED) and _are_ids((row[0], *row[2:5]))


def _is_number(row: Any) -> bool:
    return _is_pair(row, int) and _are_ids(row)


def _is_counter(row: Any) -> bool:
    return _is_pair(row, str) and _are_ids([row[1]])


def _is_producer_counter(row: Any) -> bool:
    return _is_counter(row) or (_is_pair(row, str) and row[0] == "key" and type(row[1]) is bytes)


def _has(row: object, kinds: Mapping[str, type]) -> bool:
    return type(row) is dict and all(type(row.get(name)) is kind for name, kind in kinds.items())


def _is_pair(row: object, key: type) -> bool:
    return type(row) is list and len(row) == 2 and type(row[0]) is key


def _are(row: object, kinds: list[type]) -> bool:
    return isinstance(row, list | tuple) and list(map(type, row)) == kinds


def _ids(row: object) -> list[int] | tuple[int, ...]:
    return row if isinstance(row, list | tuple) and _are_ids(row) else ()


def _are_ids(values: Iterable[Any]) -> bool:
    found = list(values)
    if not found:
        return True
    return set(map(type, found)) == {int} and min(found) >= 0 and max(found) <= limits.number_max


_ROWS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "head": _is_head,
    "next_ids": _is_counter,
    "nodes": _is_node,
    "logs": _is_log,
    "ranges": is_range,
    "operations": _is_operation,
    "last_operations": _is_last,
    "done": _is_number,
    "access": _is_access,
    "invites": _is_invite,
    "quotas": _is_quota,
    "groups": _is_group,
    "views": _is_view,
    "producers": _is_named,
    "producer_ids": _is_producer_counter,
}
