"""Check metadata that another node sent, before it is used.

`received_rows` has already checked the types of the rows. Together the rows have to be a possible
state: records that refer to each other, ranges that cover their logs. And the state has to follow
from what this node knows: all states belong to one history, in which nothing vanishes without a
record. A deleted log is counted (`logs_deleted`); a deleted range of an existing log leaves its
keys to other ranges; ids are never given twice.

Where only some buckets have changed, only the old and new records of these buckets are checked.
"""

from collections.abc import Collection, Generator, Iterable
from typing import Any, NamedTuple

from ..client.protocol.errors import Conflict, RemoteProtocolError
from .metadata import NODE_STATES
from .metadata_state import MetadataState
from .model import Descriptor, Operation
from .received_rows import is_range
from .tables import Bucket

Steps = Generator[None, None, None]


def order(metadata: MetadataState) -> tuple[int, int]:
    """Return a key that is larger for the later of two states of one history."""
    return metadata.controller.generation, metadata.version


def descriptor(body: object) -> Descriptor:
    """Read a descriptor from another node. Raises RemoteProtocolError."""
    if not is_range(body):
        raise RemoteProtocolError("a descriptor has fields of other types")
    found: Any = body
    return Descriptor.from_wire(found)


def steps(
    metadata: MetadataState, known: MetadataState, changed: Collection[Bucket] | None = None
) -> Steps:
    """Check received metadata against `known`, the metadata of this node.

    The two differ only in the `changed` buckets; None: in any bucket. The work is done in steps.

    Raises RemoteProtocolError for a state that no cluster can have, Conflict for a state that is
    neither later nor earlier than the known one.
    """
    looked = _Looked(metadata, known, changed)
    yield from _records(looked)
    earlier, later = sorted((known, metadata), key=order)
    yield from _follows(looked, earlier, later)


class _Looked(NamedTuple):
    """The parts of two states that are checked."""

    metadata: MetadataState
    known: MetadataState
    changed: Collection[Bucket] | None

    def keys(self, name: str) -> Iterable[Any]:
        """Return the keys with a record in either state, in buckets that may differ."""
        ours, theirs = self.metadata.tables[name], self.known.tables[name]
        if self.changed is None:
            return ours.keys() | theirs.keys()
        numbers = [bucket.number for bucket in self.changed if bucket.table == name]
        return {key for table in (ours, theirs) for at in numbers for key in table.keys_of(at)}


# Records.


def _records(looked: _Looked) -> Steps:
    metadata = looked.metadata
    nodes, logs, ranges = metadata.nodes, metadata.logs, metadata.ranges
    for kind, held in (("node", nodes), ("log", logs), ("range", ranges)):
        _check(max(held, default=0) < metadata.next_ids[kind], f"next_ids of {kind}s")
    _check(metadata.next_ids["log"] - 1 == len(logs) + metadata.logs_deleted, "logs")
    _check(all(node.state in NODE_STATES for node in nodes.values()), "nodes")
    controller = metadata.controller
    _check(controller.range_id == 0, "controller")
    _check(not nodes or _are_members(controller.members, metadata), "members of the controller")
    yield
    touched = set(looked.keys("logs"))
    for range_id in looked.keys("ranges"):
        range_ = ranges.get(range_id)
        if range_ is not None:
            _check(_are_members(range_.members, metadata), "members of a range")
            touched.add(range_.log_id)
        if (before := looked.known.ranges.get(range_id)) is not None:
            touched.add(before.log_id)
        yield
    for log_id in touched:
        covered = _cover(metadata.ranges_of(log_id)) if log_id in logs else not ranges.count(log_id)
        _check(covered, "ranges of a log")
        yield
    given = metadata.next_ids.get("group", 1) - 1
    _check(max(metadata.groups, default=0) <= given, "next_ids of groups")
    _check(given == len(metadata.groups) + metadata.groups_deleted, "groups")
    _check(all(group.log_id in logs for group in metadata.groups.values()), "logs of groups")
    given = metadata.next_ids.get("view", 1) - 1
    _check(max(metadata.views, default=0) <= given, "next_ids of views")
    _check(given == len(metadata.views) + metadata.views_deleted, "views")
    for view in metadata.views.values():
        _check(view.log_id in logs, "logs of views")
        _check(not view.group_id or view.group_id in metadata.groups, "groups of views")
    yield
    for operation in metadata.operations.values():
        _check(_fits(operation, metadata), "ranges of an operation")
        yield


def _are_members(members: tuple[int, ...], metadata: MetadataState) -> bool:
    return (
        bool(members) and len(set(members)) == len(members) and metadata.nodes.keys() >= {*members}
    )


def _cover(ranges: list[Descriptor]) -> bool:
    """Whether the ranges, in key order, cover the key space exactly once."""
    borders = [range_.span.end for range_ in ranges]
    return (
        bool(ranges)
        and borders[-1] is None
        and [range_.span.start for range_ in ranges] == [b"", *borders[:-1]]
    )


def _fits(operation: Operation, metadata: MetadataState) -> bool:
    """Whether the ranges that the operation's next step needs exist."""
    if not operation.inputs or not operation.outputs:
        return False
    if operation.phase == "DECIDED":
        there = [(output.range_id, output.generation) for output in operation.outputs]
    else:
        there = list(operation.inputs)
    held = (metadata.ranges.get(range_id) for range_id, _ in there)
    return [(r.range_id, r.generation) for r in held if r is not None] == there


# Comparison with the known state.


def _follows(looked: _Looked, earlier: MetadataState, later: MetadataState) -> Steps:
    """Raise Conflict unless both may be states of one history.

    Ids are given once. Nodes stay for ever, removed or not. A log that goes is counted.
    """
    if earlier.cluster_id not in ("", later.cluster_id):
        raise _contradicts(
            f"the first image is of cluster {earlier.cluster_id:.100}, the second of "
            f"{later.cluster_id:.100}"
        )
    if later.version < earlier.version:
        raise _contradicts(
            "the later generation of the controller has made fewer changes than the earlier "
            "generation"
        )
    for kind, number in earlier.next_ids.items():
        if later.next_ids.get(kind, 0) < number:
            raise _contradicts(f"the cluster would give the id of a {kind:.100} twice")
    if later.feature_level < earlier.feature_level:
        raise _contradicts(f"the cluster was at feature level {earlier.feature_level}")
    if later.logs_deleted < earlier.logs_deleted:
        raise _contradicts(f"{earlier.logs_deleted} logs were deleted")
    if later.groups_deleted < earlier.groups_deleted:
        raise _contradicts(f"{earlier.groups_deleted} consumer groups were deleted")
    if later.views_deleted < earlier.views_deleted:
        raise _contradicts(f"{earlier.views_deleted} views were deleted")
    yield
    _check_nodes(earlier, later)
    yield
    for log_id in looked.keys("logs"):
        is_new = log_id in later.logs and log_id not in earlier.logs
        if is_new and log_id < earlier.next_ids["log"]:
            raise _contradicts(f"log {log_id} existed before")
        yield
    for group_id in looked.keys("groups"):
        is_new = group_id in later.groups and group_id not in earlier.groups
        if is_new and group_id < earlier.next_ids.get("group", 1):
            raise _contradicts(f"group {group_id} existed before")
        yield
    for view_id in looked.keys("views"):
        is_new = view_id in later.views and view_id not in earlier.views
        if is_new and view_id < earlier.next_ids.get("view", 1):
            raise _contradicts(f"view {view_id} existed before")
        yield
    for range_id in looked.keys("ranges"):
        before, there = earlier.ranges.get(range_id), later.ranges.get(range_id)
        if before is not None and there is not None and there.generation < before.generation:
            raise _contradicts(f"range {range_id} was at generation {before.generation}")
        yield
    for range_id in looked.keys("done"):
        generation = earlier.done.get(range_id, 0)
        if range_id in later.ranges and later.done.get(range_id, 0) < generation:
            raise _contradicts(f"range {range_id} had ended at generation {generation}")
        yield


def _check_nodes(earlier: MetadataState, later: MetadataState) -> None:
    for node_id in later.nodes.keys() - earlier.nodes.keys():
        if node_id < earlier.next_ids["node"]:
            raise _contradicts(f"node {node_id} existed before")
    for node_id, node in earlier.nodes.items():
        told = later.nodes.get(node_id)
        if told is None or told.incarnation != node.incarnation or told.boot < node.boot:
            raise _contradicts(f"node {node_id} is missing, or is another node")
        if node.state == "REMOVED" != told.state:
            raise _contradicts(f"node {node_id} was removed, and is {told.state:.100}")


def _contradicts(why: str) -> Conflict:
    return Conflict(f"an image of the metadata contradicts what this node knows: {why}")


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise RemoteProtocolError(
            f"an image of the metadata is not valid: its {what} are malformed"
        )
