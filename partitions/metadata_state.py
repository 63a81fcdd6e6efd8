"""What the metadata holds: its records, how they are looked up and checked, and its image.

Nothing here decides anything: commands change it, by the rules of `metadata` and, where they change
a range's generation, of `generation_commands`; whoever has an image reads it.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any, Self

from ..client.errors import (
    CorruptData,
    InvalidArgument,
    LogNotFound,
    NodeNotFound,
    RangeNotFound,
)
from ..client.invariants import invariant
from . import lifecycle, quota
from .model import (
    CONTROLLER_RANGE,
    Descriptor,
    LastOperation,
    LogRecord,
    NodeRecord,
    Operation,
    Span,
)
from .policy import Policy
from .tokens import TokenRecord


class MetadataState:
    """All records. Reading the attributes is free."""

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id = ""
        self.nodes: dict[int, NodeRecord] = {}
        self.logs: dict[int, LogRecord] = {}
        self.ranges: dict[int, Descriptor] = {}
        self.operations: dict[int, Operation] = {}
        self.last_operations: dict[int, LastOperation] = {}
        """Per range, 0 being the controller's, what ended last on it."""
        self.producers: dict[str, tuple[int, int]] = {}
        self.quotas: dict[str, quota.Limits] = {}
        """The limits of classes of principals and of tenants, by name."""
        self.done: dict[int, int] = {}
        """Per range, the highest generation whose replicas may go: the positive record that a
        member needs before it deletes anything (executions 2.17)."""
        self.next_ids = {"node": 1, "log": 1, "range": 1, "operation": 1, "producer": 1}
        self.tokens: dict[str, TokenRecord] = {}
        """By id. A change puts another map in its place."""
        self.tokens_version = 0
        """The version of the metadata in which the tokens last changed; 0: there never was one."""
        self.controller = Descriptor(CONTROLLER_RANGE, 1, 0, Span(b"", None), ())
        self.sealed = False
        """The controller's generation has ended; its successor is in `controller`."""

    # Reading.

    @property
    def has_auth(self) -> bool:
        """Whether clients need a token or certificate; for ever once it is true."""
        return self.tokens_version > 0

    def log_named(self, name: str) -> LogRecord:
        """The log of that name. Raises LogNotFound."""
        for record in self.logs.values():
            if record.name == name:
                return record
        raise LogNotFound(f"no log named {name!r}; `lognode log list` shows all", log=name)

    def ranges_of(self, log_id: int) -> list[Descriptor]:
        """The log's ranges in key order."""
        found = [range_ for range_ in self.ranges.values() if range_.log_id == log_id]
        return sorted(found, key=lambda range_: range_.span.start)

    def descriptor(self, range_id: int) -> Descriptor:
        """The range's newest generation, 0 being the controller's. Raises RangeNotFound."""
        if range_id == CONTROLLER_RANGE:
            return self.controller
        return self.range_(range_id)

    def descendants(self, range_id: int) -> list[Descriptor]:
        """The range, if it still is one, and then those of which it is a parent."""
        found = [
            range_
            for range_ in self.ranges.values()
            if range_.range_id == range_id
            or any(parent.range_id == range_id for parent in range_.lineage)
        ]
        return sorted(found, key=lambda range_: range_.range_id != range_id)

    def active_nodes(self) -> list[NodeRecord]:
        """Nodes that may get replicas."""
        return [node for node in self.nodes.values() if node.state == "ACTIVE"]

    def gone_nodes(self) -> set[int]:
        """Nodes that are DEAD or REMOVED. The other members of a range are its live members."""
        return {n.node_id for n in self.nodes.values() if n.state in ("DEAD", "REMOVED")}

    def replicas_by_node(self) -> "Counter[int]":
        """How many replicas each node has or is to get, the controller's counted."""
        return lifecycle.replicas(self.controller, self.ranges, self.operations.values())

    def name_of(self, range_: Descriptor) -> str:
        """What people call it."""
        if range_.range_id == CONTROLLER_RANGE:
            return "the controller"
        return f"range {range_.range_id} of log {self.logs[range_.log_id].name}"

    def is_done(self, range_id: int, generation: int) -> bool:
        """Whether that generation's replicas may be deleted."""
        return self.done.get(range_id, 0) >= generation

    # For those who change it.

    def range_at(self, log_id: int, key: bytes) -> Descriptor:
        """The range of the log that has the key."""
        return next(range_ for range_ in self.ranges_of(log_id) if key in range_.span)

    def range_(self, range_id: int) -> Descriptor:
        """As `descriptor`, and none for the controller."""
        range_ = self.ranges.get(range_id)
        if range_ is None:
            raise RangeNotFound(
                f"no range {range_id}; `lognode range list` shows all", range=range_id
            )
        return range_

    def operation(self, operation_id: int, phase: str) -> Operation:
        """The operation, which is in that phase. Raises InvalidArgument."""
        operation = self.operations.get(operation_id)
        if operation is None:
            raise InvalidArgument(f"no operation {operation_id}", what="operation")
        if operation.phase != phase:
            raise InvalidArgument(
                f"operation {operation_id} is {operation.phase}, not {phase}", what="phase"
            )
        return operation

    def check_members(self, members: tuple[int, ...]) -> None:
        """Raise InvalidArgument or NodeNotFound for what are not distinct nodes, one at least."""
        if not members or len(set(members)) != len(members):
            raise InvalidArgument(f"members {members} are not distinct nodes", what="members")
        for member in members:
            if member not in self.nodes:
                raise NodeNotFound(f"no node {member}", node=member)

    def check_log(self, log_id: int) -> None:
        """Invariant: the ranges of a log cover its key space exactly once."""
        at: bytes | None = b""
        for range_ in self.ranges_of(log_id):
            invariant(range_.span.start == at, "a log's ranges leave a gap or overlap", log=log_id)
            at = range_.span.end
        invariant(at is None, "a log's last range has an end", log=log_id)

    def next_id(self, kind: str) -> int:
        """A number that no other node, log, range, operation or producer had or gets."""
        value = self.next_ids[kind]
        self.next_ids[kind] = value + 1
        return value

    # Images.

    def image(self) -> dict[str, Any]:
        """All of it as msgpack values: what a checkpoint stores and a new member gets."""
        return {
            "version": self.version,
            "cluster": self.cluster_id,
            "nodes": [node.to_image() for node in self.nodes.values()],
            "logs": [asdict(record) for record in self.logs.values()],
            "ranges": [range_.to_wire() for range_ in self.ranges.values()],
            "operations": [asdict(operation) for operation in self.operations.values()],
            "last_operations": {
                range_id: list(last) for range_id, last in self.last_operations.items()
            },
            "producers": {name: list(value) for name, value in self.producers.items()},
            "quotas": {name: dict(limits) for name, limits in self.quotas.items()},
            "done": dict(self.done),
            "next_ids": dict(self.next_ids),
            "controller": self.controller.to_wire(),
            "sealed": self.sealed,
            **self._access_image(),
        }

    def _access_image(self) -> dict[str, Any]:
        """Without tokens as nodes of before had it."""
        if not self.has_auth:
            return {}
        tokens = [record.to_image() for record in self.tokens.values()]
        return {"tokens_version": self.tokens_version, "tokens": tokens}

    @classmethod
    def from_image(cls, image: dict[str, Any]) -> Self:
        """Undo `image`. Raises CorruptData."""
        metadata = cls()
        try:
            metadata.version = image["version"]
            metadata.cluster_id = image["cluster"]
            metadata.nodes = {n["node_id"]: NodeRecord(**n) for n in image["nodes"]}
            metadata.logs = {
                r["log_id"]: LogRecord(r["log_id"], r["name"], Policy(**r["policy"]))
                for r in image["logs"]
            }
            metadata.ranges = {r["id"]: Descriptor.from_wire(r) for r in image["ranges"]}
            metadata.operations = {
                body["operation_id"]: Operation.from_image(body) for body in image["operations"]
            }
            metadata.last_operations = {
                range_id: LastOperation(*last)
                for range_id, last in image.get("last_operations", {}).items()
            }
            metadata.producers = {
                name: (value[0], value[1]) for name, value in image["producers"].items()
            }
            metadata.quotas = quota.of_image(image.get("quotas", {}))
            metadata.done = dict(image["done"])
            metadata.next_ids = dict(image["next_ids"])
            metadata.controller = Descriptor.from_wire(image["controller"])
            metadata.sealed = image["sealed"]
            metadata.tokens_version = image.get("tokens_version", 0)
            metadata.tokens = {
                body["id"]: TokenRecord.from_image(body) for body in image.get("tokens", ())
            }
        except (AttributeError, LookupError, TypeError, ValueError, InvalidArgument) as error:
            raise CorruptData(f"a metadata image that is none: {error!r}") from None
        return metadata
