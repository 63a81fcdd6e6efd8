"""Images of the metadata that another node sent: checked before anything follows from them.

An image is taken as a whole, and every part of a node reads it. So it has to be one: fields of
their types, records that refer to each other, ranges that cover their logs. And it has to follow
from what this node knows: all images are states of one history, in which nothing vanishes without
a record that says so. Addresses, zones and policies are not looked at: an older version may have
committed bad ones, and what uses them bears that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..client import limits
from ..client.errors import Conflict, CorruptData, RemoteProtocolError
from .metadata import NODE_STATES, Metadata
from .model import Descriptor, Operation

_IDS: Final = ("node", "log", "range", "operation", "producer")
_PHASES: Final = ("PLANNED", "SEALING", "DECIDED")
_NODE: Final[Mapping[str, type]] = {
    "node_id": int, "address": str, "http": str, "zone": str, "incarnation": int, "boot": int,
    "state": str, "process": int,
}  # fmt: skip
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
_RULES: Final = ("retention_ms", "retention_bytes", "delete_retention_ms", "snapshot_delay_ms",
                 "split_bytes", "split_rate")  # fmt: skip
_LINEAGE: Final = [*[int] * 6, bytes]
_LAST: Final = [int, str, str, str, int]


def received(image: object, known: Metadata) -> Metadata:
    """The metadata of an image from another node, where `known` is what this node has.

    Raises RemoteProtocolError for what is no image, Conflict for one that is neither a later nor an
    earlier state of what is known.
    """
    if not isinstance(image, Mapping):
        raise _no_image("it is no map")
    _check_types(image)
    try:
        metadata = Metadata.from_image(dict(image))
    except CorruptData as error:
        raise _no_image(error.message) from None
    _check_records(metadata)
    earlier, later = sorted((known, metadata), key=order)
    check_follows(earlier, later)
    return metadata


def order(metadata: Metadata) -> tuple[int, int]:
    """Of two states of one history the later one has the larger."""
    return metadata.controller.generation, metadata.version


def descriptor(body: object) -> Descriptor:
    """A descriptor from another node. Raises RemoteProtocolError."""
    if not _is_range(body):
        raise RemoteProtocolError("a descriptor with fields of other types")
    found: Any = body
    return Descriptor.from_wire(found)


# Types.


def _check_types(image: Mapping[Any, Any]) -> None:
    for name, kind in (("version", int), ("cluster", str), ("sealed", bool)):
        _check(type(image.get(name)) is kind, name)
    for name in ("nodes", "logs", "ranges", "operations"):
        _check(type(image.get(name)) is list, name)
    for name in ("producers", "done", "next_ids"):
        _check(type(image.get(name)) is dict, name)
    _check(all(_has(row, _NODE) for row in image["nodes"]), "nodes")
    _check(all(map(_is_log, image["logs"])), "logs")
    _check(all(map(_is_range, image["ranges"])), "ranges")
    _check(_is_range(image.get("controller")), "controller")
    _check(all(map(_is_operation, image["operations"])), "operations")
    _check(_are_ids(image["done"]) and _are_ids(image["done"].values()), "done")
    next_ids = image["next_ids"]
    _check(set(_IDS) <= next_ids.keys() and _are_ids(next_ids.values()), "next_ids")
    last = image.get("last_operations", {})
    _check(type(last) is dict and _are_ids(last), "last_operations")
    _check(all(list(map(type, row)) == _LAST for row in _lists(last.values())), "last_operations")
    _check(0 <= image["version"] <= limits.number_max, "version")
    _check(set(map(type, image["producers"])) <= {str}, "producers")
    for row in _lists(image["producers"].values()):
        _check(list(map(type, row)) == [int, int], "producers")


def _has(row: object, kinds: Mapping[str, type]) -> bool:
    return type(row) is dict and all(type(row.get(name)) is kind for name, kind in kinds.items())


def _is_log(row: Any) -> bool:
    if not _has(row, {"log_id": int, "name": str, "policy": dict}):
        return False
    policy = row["policy"]
    numbers = {type(policy.get(name)) for name in _RULES}
    return numbers <= {int, type(None)} and _has(
        policy, {"replicas": int, "cleanup": str, "ranges_min": int}
    )


def _is_range(row: Any) -> bool:
    return (
        _has(row, _RANGE)
        and type(row.get("end")) in (bytes, type(None))
        and _are_ids((row["id"], row["generation"], row["log"], row["operation"]))
        and _are_ids(row["members"])
        and set(map(type, row["met_at"])) <= {bytes}
        and all(
            isinstance(parent, list | tuple) and list(map(type, parent)) == _LINEAGE
            for parent in row["lineage"]
        )
    )


def _is_operation(row: Any) -> bool:
    return (
        _has(row, _OPERATION)
        and row["phase"] in _PHASES
        and all(len(_ids(gid)) == 2 for gid in row["inputs"])
        and all(map(_is_output, row["outputs"]))
        and _are_ids(row["installed"])
        and _are_ids((row["operation_id"],))
    )


def _is_output(row: Any) -> bool:
    if not _has(row, _OUTPUT) or len(row["span"]) != 2:
        return False
    start, end = row["span"]
    numbers = (row["range_id"], row["generation"], *row["members"])
    return type(start) is bytes and type(end) in (bytes, type(None)) and _are_ids(numbers)


def _ids(row: object) -> list[int] | tuple[int, ...]:
    return row if isinstance(row, list | tuple) and _are_ids(row) else ()


def _are_ids(values: Iterable[Any]) -> bool:
    found = list(values)
    if not found:
        return True
    return set(map(type, found)) == {int} and min(found) >= 0 and max(found) <= limits.number_max


def _lists(rows: Iterable[Any]) -> Iterable[list[Any]]:
    return ([] if type(row) not in (list, tuple) else list(row) for row in rows)


# Records.


def _check_records(metadata: Metadata) -> None:
    nodes, logs, ranges = metadata.nodes, metadata.logs, metadata.ranges
    for kind, held in (("node", nodes), ("log", logs), ("range", ranges)):
        _check(max(held, default=0) < metadata.next_ids[kind] or not held, f"next_ids of {kind}s")
    _check(all(node.state in NODE_STATES for node in nodes.values()), "nodes")
    controller = metadata.controller
    _check(controller.range_id == 0, "controller")
    _check(not nodes or _are_members(controller.members, metadata), "members of the controller")
    spans: dict[int, list[Descriptor]] = defaultdict(list)
    for range_ in ranges.values():
        _check(_are_members(range_.members, metadata), "members of a range")
        spans[range_.log_id].append(range_)
    _check(spans.keys() == logs.keys(), "logs of the ranges")
    _check(all(map(_cover, spans.values())), "spans of a log's ranges")
    for operation in metadata.operations.values():
        _check(_fits(operation, metadata), "ranges of an operation")


def _are_members(members: tuple[int, ...], metadata: Metadata) -> bool:
    return (
        bool(members) and len(set(members)) == len(members) and metadata.nodes.keys() >= {*members}
    )


def _cover(ranges: list[Descriptor]) -> bool:
    """Whether they cover the key space exactly once."""
    at: bytes | None = b""
    for range_ in sorted(ranges, key=lambda range_: range_.span.start):
        if at is None or range_.span.start != at:
            return False
        at = range_.span.end
    return at is None


def _fits(operation: Operation, metadata: Metadata) -> bool:
    """Whether the ranges that its next step is about are there."""
    if not operation.inputs or not operation.outputs:
        return False
    if operation.phase == "DECIDED":
        there = [(output.range_id, output.generation) for output in operation.outputs]
    else:
        there = list(operation.inputs)
    held = (metadata.ranges.get(range_id) for range_id, _ in there)
    return [(r.range_id, r.generation) for r in held if r is not None] == there


# What is known already.


def check_follows(earlier: Metadata, later: Metadata) -> None:
    """Raise Conflict unless both may be states of one history.

    Ids are given once. Nodes stay for ever, removed or not. A range goes only when a record says
    that its generation is over (executions 2.17), or when an operation has taken it up.
    """
    if earlier.cluster_id not in ("", later.cluster_id):
        raise _contradicts(
            f"one is of cluster {earlier.cluster_id:.100}, the other of {later.cluster_id:.100}"
        )
    if later.version < earlier.version:
        raise _contradicts("the later generation of the controller has made fewer changes")
    for kind, number in earlier.next_ids.items():
        if later.next_ids.get(kind, 0) < number:
            raise _contradicts(f"the id of a {kind} would be given again")
    _check_nodes(earlier, later)
    for range_id, generation in earlier.done.items():
        if later.done.get(range_id, 0) < generation:
            raise _contradicts(f"range {range_id} was over at generation {generation}")
    for log_id in later.logs.keys() - earlier.logs.keys():
        if log_id < earlier.next_ids["log"]:
            raise _contradicts(f"log {log_id} was there before")
    _check_ranges(earlier, later)


def _check_nodes(earlier: Metadata, later: Metadata) -> None:
    for node_id in later.nodes.keys() - earlier.nodes.keys():
        if node_id < earlier.next_ids["node"]:
            raise _contradicts(f"node {node_id} was there before")
    for node_id, node in earlier.nodes.items():
        told = later.nodes.get(node_id)
        if told is None or told.incarnation != node.incarnation or told.boot < node.boot:
            raise _contradicts(f"node {node_id} is missing, or is another node")
        if node.state == "REMOVED" != told.state:
            raise _contradicts(f"node {node_id} was removed, and is {told.state}")


def _check_ranges(earlier: Metadata, later: Metadata) -> None:
    taken_up: dict[int, int] = {}
    for operation in later.operations.values():
        for range_id, generation in operation.inputs:
            taken_up[range_id] = max(generation, taken_up.get(range_id, 0))
    for range_id, range_ in earlier.ranges.items():
        there = later.ranges.get(range_id)
        ended = max(later.done.get(range_id, 0), taken_up.get(range_id, 0))
        if (ended if there is None else there.generation) < range_.generation:
            raise _contradicts(f"range {range_id} is missing, and nothing says that it ended")


def _contradicts(why: str) -> Conflict:
    return Conflict(f"an image of the metadata contradicts what this node knows: {why}")


def _no_image(why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"an image of the metadata that is none: {why:.300}")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise _no_image(f"its {what} are not what they should be")
