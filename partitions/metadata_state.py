"""The state of the metadata: its records, their look-up and checks, and its image.

This module decides nothing. Commands change the state, by the rules of `metadata` and, for the
generations of ranges, of `generation_commands`; readers of an image only read it. An image travels
and is stored in buckets, see `buckets`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

from ..client.protocol.errors import (
    CorruptData,
    InvalidArgument,
    LogNotFound,
    NodeNotFound,
    RangeNotFound,
)
from ..client.protocol.invariants import invariant
from ..client.protocol.levels import LEVEL_MIN
from . import lifecycle, quota
from .groups import GroupRecord
from .invites import INVITES, Invite
from .model import (
    CONTROLLER_RANGE,
    Descriptor,
    LastOperation,
    LogRecord,
    NodeRecord,
    Operation,
    Span,
)
from .producers import PRODUCER_IDS, Named
from .records import (
    ACCESS,
    DONE,
    HEAD,
    LAST_OPERATIONS,
    NEXT_IDS,
    NODES,
    OPERATIONS,
    QUOTAS,
    Groups,
    Logs,
    Producers,
    Ranges,
    Views,
)
from .tables import Changes, Table
from .tokens import TokenRecord
from .views import ViewRecord

_BUCKETS_MIN: Final = 1 << 14
"""With fewer buckets than this, empty buckets are not looked for."""


class MetadataState:
    """All records of the metadata. Reading the attributes costs nothing."""

    def __init__(self) -> None:
        self.version = 0
        self.changes = Changes()
        self.head: Table[str, Any] = Table(HEAD, self.changes)
        self.next_ids: Table[str, int] = Table(NEXT_IDS, self.changes)
        self.nodes: Table[int, NodeRecord] = Table(NODES, self.changes)
        self.logs = Logs(self.changes)
        self.ranges = Ranges(self.changes)
        self.operations: Table[int, Operation] = Table(OPERATIONS, self.changes)
        self.last_operations: Table[int, LastOperation] = Table(LAST_OPERATIONS, self.changes)
        """The last operation that ended on each range; range 0 is the controller's."""
        self.done: Table[int, int] = Table(DONE, self.changes)
        """For each existing range, the highest generation whose replicas may be deleted; see
        `is_done`."""
        self.producers = Producers(self.changes)
        self.producer_ids: Table[str, Any] = Table(PRODUCER_IDS, self.changes)
        self.access: Table[str, Any] = Table(ACCESS, self.changes)
        self.invites: Table[str, Invite] = Table(INVITES, self.changes)
        self.quotas: Table[str, quota.Limits] = Table(QUOTAS, self.changes)
        """The limits of classes of principals and of tenants, by name."""
        self.groups = Groups(self.changes)
        self.views = Views(self.changes)
        self.tables: dict[str, Table[Any, Any]] = {
            table.kind.name: table
            for table in (self.head, self.next_ids, self.nodes, self.logs, self.ranges,
                          self.operations, self.last_operations, self.done, self.producers,
                          self.producer_ids, self.access, self.invites, self.quotas, self.groups,
                          self.views)
        }  # fmt: skip
        self._buckets_max = _BUCKETS_MIN
        self.cluster_id = ""
        self.tokens = {}
        self.tokens_version = 0
        self.controller = Descriptor(CONTROLLER_RANGE, 1, 0, Span(b"", None), ())
        self.sealed = False
        self.logs_deleted = 0
        self.founders = 1
        for kind in ("node", "log", "range", "operation"):
            self.next_ids[kind] = 1
        for counter in ("anonymous", "epoch", "number"):
            self.producer_ids[counter] = 1
        self.settle()

    # Single records.

    @property
    def cluster_id(self) -> str:
        """The cluster's id, "" before it is founded."""
        found: str = self.head["cluster"]
        return found

    @cluster_id.setter
    def cluster_id(self, value: str) -> None:
        self.head["cluster"] = value

    @property
    def controller(self) -> Descriptor:
        """The controller's own descriptor."""
        found: Descriptor = self.head["controller"]
        return found

    @controller.setter
    def controller(self, value: Descriptor) -> None:
        self.head["controller"] = value

    @property
    def sealed(self) -> bool:
        """Whether the controller's generation has ended.

        `controller` then describes its successor.
        """
        found: bool = self.head["sealed"]
        return found

    @sealed.setter
    def sealed(self, value: bool) -> None:
        self.head["sealed"] = value

    @property
    def founders(self) -> int:
        """The number of nodes that founded the cluster together; later nodes need an invitation."""
        found: int = self.head["founders"]
        return found

    @founders.setter
    def founders(self, value: int) -> None:
        self.head["founders"] = value

    @property
    def founded_ms(self) -> int:
        """When the cluster was founded, in milliseconds since 1970.

        It is 0 if the version that founded the cluster did not keep the time.
        """
        found: int = self.head.get("founded_ms", 0)
        return found

    @founded_ms.setter
    def founded_ms(self, value: int) -> None:
        self.head["founded_ms"] = value

    @property
    def feature_level(self) -> int:
        """The feature level of the cluster. Images at the first level do not have it."""
        found: int = self.head.get("feature_level", LEVEL_MIN)
        return found

    @feature_level.setter
    def feature_level(self, value: int) -> None:
        self.head["feature_level"] = value

    @property
    def logs_deleted(self) -> int:
        """The number of deleted logs, so that no log disappears without a trace."""
        found: int = self.head["logs_deleted"]
        return found

    @logs_deleted.setter
    def logs_deleted(self, value: int) -> None:
        self.head["logs_deleted"] = value

    @property
    def groups_deleted(self) -> int:
        """The number of deleted groups. Images without groups do not have it."""
        found: int = self.head.get("groups_deleted", 0)
        return found

    @groups_deleted.setter
    def groups_deleted(self, value: int) -> None:
        self.head["groups_deleted"] = value

    @property
    def views_deleted(self) -> int:
        """The number of deleted views. Images without views do not have it."""
        found: int = self.head.get("views_deleted", 0)
        return found

    @views_deleted.setter
    def views_deleted(self, value: int) -> None:
        self.head["views_deleted"] = value

    @property
    def tokens(self) -> Mapping[str, TokenRecord]:
        """The tokens by id. A change replaces the whole map."""
        found: Mapping[str, TokenRecord] = self.access["tokens"]
        return found

    @tokens.setter
    def tokens(self, value: Mapping[str, TokenRecord]) -> None:
        self.access["tokens"] = value

    @property
    def tokens_version(self) -> int:
        """The version of the metadata in which the tokens last changed.

        It is 0 if there never was a token.
        """
        found: int = self.access["version"]
        return found

    @tokens_version.setter
    def tokens_version(self, value: int) -> None:
        self.access["version"] = value

    @property
    def producer_key(self) -> bytes:
        """The key of the grants of producer ids; b"" until the first grant."""
        found: bytes = self.access.get("producer_key", b"")
        return found

    @producer_key.setter
    def producer_key(self, value: bytes) -> None:
        self.access["producer_key"] = value

    # Reading.

    @property
    def has_auth(self) -> bool:
        """Whether clients need a token or a certificate; never becomes False again."""
        return self.tokens_version > 0

    def log_named(self, name: str) -> LogRecord:
        """Return the log of that name. Raises LogNotFound."""
        log_id = self.logs.ids.get(name)
        if log_id is None:
            raise LogNotFound(
                f"log {name!r} does not exist; `lognode log list` shows all logs", log=name
            )
        return self.logs[log_id]

    def ranges_of(self, log_id: int) -> list[Descriptor]:
        """Return the log's ranges in key order. The list belongs to the index: do not change it."""
        return self.ranges.of_log(log_id)

    def descriptor(self, range_id: int) -> Descriptor:
        """Return the range's newest generation; range 0 is the controller's.

        Raises RangeNotFound.
        """
        if range_id == CONTROLLER_RANGE:
            return self.controller
        return self.range_(range_id)

    def descendants(self, range_id: int) -> list[Descriptor]:
        """Return the range, if it still exists, and then the ranges that have it as a parent."""
        children = [r for r in self.ranges.children(range_id) if r.range_id != range_id]
        own = self.ranges.get(range_id)
        return children if own is None else [own, *children]

    def active_nodes(self) -> list[NodeRecord]:
        """Return the nodes that may get replicas."""
        return [node for node in self.nodes.values() if node.state == "ACTIVE"]

    def gone_nodes(self) -> set[int]:
        """Return the nodes that are DEAD or REMOVED.

        The other members of a range are its live members.
        """
        return {n.node_id for n in self.nodes.values() if n.state in ("DEAD", "REMOVED")}

    def replicas_by_node(self) -> "Counter[int]":
        """Count the replicas that each node has or is to get, including the controller's."""
        return lifecycle.replicas(self.controller, self.ranges, self.operations.values())

    def name_of(self, range_: Descriptor) -> str:
        """Return the name of a range for people."""
        if range_.range_id == CONTROLLER_RANGE:
            return "the controller"
        return f"range {range_.range_id} of log {self.logs[range_.log_id].name}"

    def is_done(self, range_id: int, generation: int) -> bool:
        """Whether that generation's replicas may be deleted.

        The absence of a range lets no member delete anything: a positive record is needed (x2.17).
        For an existing range the record is `done`. For a range that is gone, the record is its id:
        an image whose next id is higher knew the range, ids are never given twice, and an operation
        holds the ids of its ranges until it has ended.
        """
        if range_id in self.ranges:
            return self.done.get(range_id, 0) >= generation
        return 0 < range_id < self.next_ids["range"] and not any(
            range_id in operation.range_ids for operation in self.operations.values()
        )

    # For commands.

    def range_at(self, log_id: int, key: bytes) -> Descriptor:
        """Return the range of the log that has the key."""
        ranges = self.ranges_of(log_id)
        return ranges[bisect_right(ranges, key, key=lambda range_: range_.span.start) - 1]

    def range_(self, range_id: int) -> Descriptor:
        """Return the range's newest generation, as `descriptor` does, but not the controller's."""
        range_ = self.ranges.get(range_id)
        if range_ is None:
            raise RangeNotFound(
                f"range {range_id} does not exist; `lognode range list` shows all ranges",
                range=range_id,
            )
        return range_

    def operation(self, operation_id: int, phase: str) -> Operation:
        """Return the operation if it is in that phase. Raises InvalidArgument otherwise."""
        operation = self.operations.get(operation_id)
        if operation is None:
            raise InvalidArgument(f"operation {operation_id} does not exist", what="operation")
        if operation.phase != phase:
            raise InvalidArgument(
                f"operation {operation_id} is in phase {operation.phase}, not {phase}", what="phase"
            )
        return operation

    def check_members(self, members: tuple[int, ...]) -> None:
        """Raise InvalidArgument or NodeNotFound unless these are one or more distinct nodes."""
        if not members or len(set(members)) != len(members):
            raise InvalidArgument(f"members {members} are not distinct nodes", what="members")
        for member in members:
            if member not in self.nodes:
                raise NodeNotFound(f"node {member} does not exist", node=member)

    def check_log(self, log_id: int) -> None:
        """Check the invariant that the ranges of a log cover its key space exactly once."""
        spans = [range_.span for range_ in self.ranges_of(log_id)]
        borders = [b"", *(span.end for span in spans)]
        fits = [span.start for span in spans] == borders[:-1]
        invariant(fits, "the ranges of a log leave a gap or overlap", log=log_id)
        invariant(borders[-1] is None, "the last range of a log has an end", log=log_id)

    def next_id(self, kind: str) -> int:
        """Return a number that no other node, log, range, operation or producer ever has."""
        value = self.next_ids[kind]
        self.next_ids[kind] = value + 1
        return value

    def begin_at(self, version: int) -> None:
        """Note that this is the state of that version, and that no earlier version is known."""
        self.version = self.changes.floor = version

    def settle(self) -> None:
        """Count the last changes into this version.

        When there are many empty buckets they are forgotten: ids are never given twice.
        """
        self.changes.settle(self.version)
        if len(self.changes.order) > self._buckets_max:
            for bucket in list(self.changes.order):
                if not self.tables[bucket.table].keys_of(bucket.number):
                    self.changes.forget(bucket)
            self._buckets_max = max(_BUCKETS_MIN, 2 * len(self.changes.order))

    # Images.

    def image(self) -> dict[str, Any]:
        """Return the whole state as msgpack values: for each table, its records by key."""
        return {
            "version": self.version,
            "cluster": self.cluster_id,
            "nodes": [node.to_image() for _, node in sorted(self.nodes.items())],
            "logs": [record.to_image() for _, record in sorted(self.logs.items())],
            "ranges": [range_.to_wire() for _, range_ in sorted(self.ranges.items())],
            "operations": [each.to_image() for _, each in sorted(self.operations.items())],
            "last_operations": {
                range_id: last.to_image() for range_id, last in sorted(self.last_operations.items())
            },
            "named": [list(named) for _, named in sorted(self.producers.items())],
            "producer_ids": dict(self.producer_ids),
            "founders": self.founders,
            "founded_ms": self.founded_ms,
            "invites": [list(invite) for _, invite in sorted(self.invites.items())],
            "quotas": {name: dict(found) for name, found in sorted(self.quotas.items())},
            "done": dict(sorted(self.done.items())),
            "next_ids": dict(self.next_ids),
            "controller": self.controller.to_wire(),
            "sealed": self.sealed,
            **({"feature_level": self.feature_level} if self.feature_level > LEVEL_MIN else {}),
            **self._groups_image(),
            **self._access_image(),
        }

    def _groups_image(self) -> dict[str, Any]:
        """Return groups and views; before the first of them as older versions wrote it."""
        if not self.next_ids.keys() & {"group", "view"}:
            return {}
        image = {"groups": [record.to_image() for _, record in sorted(self.groups.items())]}
        if "view" in self.next_ids:
            image["views"] = [record.to_image() for _, record in sorted(self.views.items())]
        return image

    def _access_image(self) -> dict[str, Any]:
        """Return the tables of access; without tokens they look as older versions wrote them."""
        if not self.has_auth:
            return {}
        tokens = [record.to_image() for record in self.tokens.values()]
        key = {"producer_key": self.producer_key} if self.producer_key else {}
        return {"tokens_version": self.tokens_version, "tokens": tokens, **key}

    @classmethod
    def from_image(cls, image: dict[str, Any]) -> Self:
        """Undo `image`, also for images of older versions. Raises CorruptData."""
        metadata = cls()
        try:
            metadata._read_image(image)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            InvalidArgument,
        ) as error:
            raise CorruptData(f"a metadata image is not valid: {error!r}") from None
        metadata.settle()
        metadata.begin_at(metadata.version)
        return metadata

    def _read_image(self, image: dict[str, Any]) -> None:
        self.version = image["version"]
        self.cluster_id = image["cluster"]
        self.controller = Descriptor.from_wire(image["controller"])
        self.sealed = image["sealed"]
        for node in image["nodes"]:
            self.nodes[node["node_id"]] = NodeRecord(**node)
        for log in image["logs"]:
            self.logs[log["log_id"]] = LogRecord.from_image(log)
        for range_ in image["ranges"]:
            self.ranges[range_["id"]] = Descriptor.from_wire(range_)
        for operation in image["operations"]:
            self.operations[operation["operation_id"]] = Operation.from_image(operation)
        for range_id, last in image.get("last_operations", {}).items():
            self.last_operations[range_id] = LastOperation.from_image(last)
        # A range that a merge took keeps its record until the operation ends. Other ranges that are
        # gone have a record only in images of older versions.
        held = {range_id for each in self.operations.values() for range_id in each.range_ids}
        for range_id, generation in image["done"].items():
            if range_id in self.ranges or range_id in held:
                self.done[range_id] = generation
        for kind, value in image["next_ids"].items():
            if kind != "producer":
                self.next_ids[kind] = value
        self.logs_deleted = max(0, self.next_ids["log"] - 1 - len(self.logs))
        self.founders = image.get("founders", 1)
        if image.get("founded_ms"):
            self.founded_ms = image["founded_ms"]
        if image.get("feature_level"):
            self.feature_level = image["feature_level"]
        for told in image.get("groups", ()):
            record = GroupRecord.from_image(told)
            self.groups[record.group_id] = record
        if "group" in self.next_ids:
            gone = self.next_ids["group"] - 1 - len(self.groups)
            if gone:
                self.groups_deleted = gone
        for told in image.get("views", ()):
            view = ViewRecord.from_image(told)
            self.views[view.view_id] = view
        if "view" in self.next_ids:
            gone = self.next_ids["view"] - 1 - len(self.views)
            if gone:
                self.views_deleted = gone
        for told in image.get("invites", ()):
            self.invites[told[0]] = Invite(*told)
        self._read_producers(image)
        for name, found in quota.of_image(image.get("quotas", {})).items():
            self.quotas[name] = found
        self.tokens_version = image.get("tokens_version", 0)
        self.tokens = {body["id"]: TokenRecord.from_image(body) for body in image.get("tokens", ())}
        if "producer_key" in image:
            self.producer_key = image["producer_key"]

    def _read_producers(self, image: dict[str, Any]) -> None:
        for counter, value in image.get("producer_ids", {}).items():
            self.producer_ids[counter] = value
        for told in image.get("named", ()):
            named = Named(*told)
            self.producers[named.number] = named
        if "producers" in image:  # written by a version before these records
            self.producer_ids["anonymous"] = image["next_ids"]["producer"]
            by_id = sorted(image["producers"].items(), key=lambda each: each[1][0])
            for number, (name, (producer_id, epoch)) in enumerate(by_id, 1):
                self.producers[number] = Named(number, name, producer_id, epoch, 0, "")
                self.producer_ids["number"] = number + 1
                self.producer_ids["epoch"] = max(self.producer_ids["epoch"], epoch + 1)
