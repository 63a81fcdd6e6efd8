"""The metadata: the controller group's state machine.

Every change is a command. A command is looked at first and refused with a reason, in which case
nothing changes; what is accepted is checked against the invariants of ranges.md section 1 before
the next one. `version` counts the changes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from ..client import limits
from ..client.errors import (
    Conflict,
    CorruptData,
    InvalidArgument,
    LimitExceeded,
    LogExists,
    LognodeError,
    LogNotFound,
    NodeNotFound,
    OperationInProgress,
    RangeNotFound,
    Sealed,
    Unsupported,
    to_wire,
)
from ..client.invariants import invariant
from . import (
    allocate,
    commands,
    joins,
    lifecycle,
    locks,
    log_names,
    moves,
    placement,
    recovery,
    splits,
)
from .command_fields import key as _key
from .command_fields import number as _number
from .command_fields import numbers as _numbers
from .command_fields import text as _text
from .model import (
    CONTROLLER_RANGE,
    Descriptor,
    LastOperation,
    Lineage,
    LogRecord,
    NodeRecord,
    Operation,
    Output,
    Span,
)
from .policy import Policy, altered, of_request
from .spans import printable, union

NODE_STATES = ("JOINING", "ACTIVE", "DRAINING", "DEAD", "REMOVED")
PRODUCER_BLOCK = 1_024
"""Ids that one anonymous request reserves."""
REASON_CHARS_MAX = 500
"""Of a reason that is kept; the rest is left out."""

Command = dict[str, Any]
Answer = dict[str, Any]


class Metadata:
    """See the module. `apply` is deterministic; reading the attributes is free."""

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
        self.done: dict[int, int] = {}
        """Per range, the highest generation whose replicas may go: the positive record that a
        member needs before it deletes anything (executions 2.17)."""
        self.next_ids = {"node": 1, "log": 1, "range": 1, "operation": 1, "producer": 1}
        self.controller = Descriptor(CONTROLLER_RANGE, 1, 0, Span(b"", None), ())
        self.sealed = False
        """The controller's generation has ended; its successor is in `controller`."""
        self._handlers: dict[str, Callable[[Command, int, int], Answer]] = {
            commands.FOUND: self._found,
            commands.REGISTER: self._register,
            commands.NODE_STATE: self._node_state,
            commands.DRAIN_NODE: self._drain_node,
            commands.REMOVE_NODE: self._remove_node,
            commands.CREATE_LOG: self._create_log,
            commands.ALTER_LOG: self._alter_log,
            commands.DELETE_LOG: self._delete_log,
            commands.OPEN_PRODUCER: self._open_producer,
            commands.PLAN: self._plan,
            commands.MOVE: self._move,
            commands.SPLIT: self._split,
            commands.RECOVER: self._recover,
            commands.MERGE: self._merge,
            commands.SEALING: self._sealing,
            commands.APART: self._apart,
            commands.DECIDE: self._decide,
            commands.INSTALLED: self._installed,
            commands.DONE: self._done,
            commands.ABORT: self._abort,
            commands.SEAL_CONTROLLER: self._seal_controller,
        }

    # Applying.

    def apply(self, index: int, term: int, command: Command) -> Answer:
        """The command's answer, `{"ok": ...}` or `{"error": ...}`."""
        handler = self._handlers.get(str(command.get("op")))
        try:
            if self.sealed:
                raise Sealed("the controller's generation has ended")
            if handler is None:
                raise Unsupported(f"metadata command {command.get('op')!r} is unknown")
            answer = handler(command, index, term)
        except LognodeError as error:
            return {"error": to_wire(error)}
        except (KeyError, TypeError, ValueError) as error:
            bad = InvalidArgument(f"metadata command {command.get('op')!r} is malformed: {error!r}")
            return {"error": to_wire(bad)}
        self.version += 1
        return {"ok": answer}

    # Reading.

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
        return self._descriptor(range_id)

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

    # Nodes.

    def _found(self, command: Command, *_: int) -> Answer:
        if self.cluster_id:
            if command["cluster"] == self.cluster_id:
                return {"cluster": self.cluster_id}
            raise InvalidArgument(f"this is cluster {self.cluster_id} already", what="cluster")
        self.cluster_id = command["cluster"]
        node_id = command["node"]
        self.controller = replace(self.controller, members=(node_id,))
        self.next_ids["node"] = node_id
        return {"cluster": self.cluster_id}

    def _register(self, command: Command, *_: int) -> Answer:
        incarnation, boot, process = (
            _number(command, name) for name in ("incarnation", "boot", "process")
        )
        address, http, zone = (_text(command, name) for name in ("address", "http", "zone"))
        node_id = None if command.get("node") is None else _number(command, "node")
        if node_id is None:
            for known in self.nodes.values():
                if known.incarnation == incarnation:
                    node_id = known.node_id  # the answer to its first registration was lost
                    break
            else:
                here = sum(known.state != "REMOVED" for known in self.nodes.values())
                if here >= limits.nodes_max:
                    raise LimitExceeded(
                        f"a cluster has at most {limits.nodes_max} nodes",
                        limit="nodes_max", value=here + 1, allowed=limits.nodes_max,
                    )  # fmt: skip
                node_id = self._next("node")
        known_node = self.nodes.get(node_id)
        if known_node is None:
            if node_id > self.next_ids["node"]:
                raise NodeNotFound(f"cluster {self.cluster_id} has no node {node_id}", node=node_id)
            self.next_ids["node"] = max(self.next_ids["node"], node_id + 1)
        elif known_node.state == "REMOVED":
            raise InvalidArgument(
                f"node {node_id} was removed from the cluster; give it an empty data directory "
                "and join it anew", what="node",
            )  # fmt: skip
        elif known_node.incarnation != incarnation or not lifecycle.follows(
            known_node, boot, process
        ):
            raise InvalidArgument(
                f"another data directory is registered as node {node_id}, or this one is an old "
                "copy of it: a copied or restored directory must not serve", what="incarnation",
            )  # fmt: skip
        self.nodes[node_id] = NodeRecord(
            node_id=node_id,
            address=address,
            http=http,
            zone=zone,
            incarnation=incarnation,
            boot=boot,
            state="DRAINING" if known_node and known_node.state == "DRAINING" else "ACTIVE",
            process=process,
        )
        return {"cluster": self.cluster_id, "node": node_id}

    def _node_state(self, command: Command, *_: int) -> Answer:
        node = self.nodes.get(command["node"])
        if node is None:
            raise NodeNotFound(f"no node {command['node']}", node=command["node"])
        if command["state"] not in NODE_STATES:
            raise InvalidArgument(f"no node state {command['state']!r}", what="state")
        if node.state in ("DRAINING", "REMOVED"):  # an operator was faster than the heartbeats
            raise Conflict(f"node {node.node_id} is {node.state}, whether it is heard or not")
        self.nodes[node.node_id] = replace(node, state=command["state"])
        return {}

    def _drain_node(self, command: Command, *_: int) -> Answer:
        """Doing it twice is doing it once; `undo` makes it ACTIVE again."""
        node = lifecycle.known(self.nodes, _number(command, "node"))
        lifecycle.check_drainable(node)
        undo = bool(command.get("undo"))
        if not undo and node.state == "ACTIVE":
            lifecycle.check_drain(node, self.nodes, self._groups())
        state = "ACTIVE" if undo else "DRAINING"
        self.nodes[node.node_id] = replace(node, state=state)
        return self._node_now(node.node_id)

    def _remove_node(self, command: Command, *_: int) -> Answer:
        """Doing it twice is doing it once."""
        node = lifecycle.known(self.nodes, _number(command, "node"))
        if node.state != "REMOVED":
            left, dead = self.replicas_by_node()[node.node_id], bool(command.get("dead"))
            lifecycle.check_remove(node, self.nodes, self._groups(), left, dead=dead)
            self.nodes[node.node_id] = replace(node, state="REMOVED")
        return self._node_now(node.node_id)

    def _node_now(self, node: int) -> Answer:
        return {
            "node": node,
            "state": self.nodes[node].state,
            "replicas": self.replicas_by_node()[node],
            "version": self.version + 1,  # once this command is applied
        }

    def _groups(self) -> Iterator[tuple[str, Descriptor]]:
        """The controller and all ranges, by name."""
        for range_ in (self.controller, *self.ranges.values()):
            yield self.name_of(range_), range_

    # Logs and producers.

    def _create_log(self, command: Command, *_: int) -> Answer:
        name = command["name"]
        log_names.check(name)
        policy = of_request(command)
        for record in self.logs.values():
            if record.name == name:
                if command.get("exist_ok"):
                    return {"log": record.log_id, "created": False}
                raise LogExists(f"log {name!r} exists already", log=name)
        split_at = command.get("split_at")
        if split_at is not None:
            spans = allocate.spans_at(split_at)
        else:
            spans = allocate.even_spans(command.get("ranges") or 1)
        homes = self._homes()
        size = group_size(policy.replicas, len(homes))
        log_id = self._next("log")
        self.logs[log_id] = LogRecord(log_id, name, replace(policy, ranges_min=len(spans)))
        for span in spans:
            range_id = self._next("range")
            members = tuple(sorted(homes.take(size)))
            self.ranges[range_id] = Descriptor(range_id, 1, log_id, span, members)
        self._check_log(log_id)
        return {"log": log_id, "created": True}

    def _alter_log(self, command: Command, *_: int) -> Answer:
        """Doing it twice is doing it once."""
        record = self.log_named(command["name"])
        policy = altered(record.policy, command["changes"])
        self.logs[record.log_id] = replace(record, policy=policy)
        return {"log": record.log_id, "policy": policy.to_body()}

    def _delete_log(self, command: Command, *_: int) -> Answer:
        record = self.log_named(command["name"])
        for range_ in self.ranges_of(record.log_id):
            if range_.operation:
                raise OperationInProgress(
                    f"range {range_.range_id} is in operation {range_.operation}; try again later",
                    range=range_.range_id, operation=range_.operation,
                )  # fmt: skip
        for range_ in self.ranges_of(record.log_id):
            self.done[range_.range_id] = range_.generation
            del self.ranges[range_.range_id]
            self.last_operations.pop(range_.range_id, None)
        del self.logs[record.log_id]
        return {}

    def _open_producer(self, command: Command, *_: int) -> Answer:
        name = command.get("name")
        if name is None:
            first = self.next_ids["producer"]
            self.next_ids["producer"] += PRODUCER_BLOCK
            return {"id": first, "count": PRODUCER_BLOCK, "epoch": 1}
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= (
            limits.producer_name_bytes_max
        ):
            raise InvalidArgument(
                f"producer name of 1 to {limits.producer_name_bytes_max} bytes, not {name!r}",
                what="name",
            )
        producer_id, epoch = self.producers.get(name) or (self._next("producer"), 0)
        self.producers[name] = (producer_id, epoch + 1)
        return {"id": producer_id, "count": 1, "epoch": epoch + 1}

    # Operations.

    def _plan(self, command: Command, *_: int) -> Answer:
        inputs = tuple((range_id, generation) for range_id, generation in command["inputs"])
        reason = _text(command, "reason")[:REASON_CHARS_MAX]
        for range_id, given in inputs:
            range_ = self._descriptor(range_id)
            locks.check_free(range_)
            if range_.generation != given:
                raise InvalidArgument(
                    f"range {range_id} is at generation {range_.generation}, not {given}",
                    what="generation",
                )
        next_generation = 1 + max(of_input for _, of_input in inputs)  # executions 1.26
        outputs = []
        for output in command["outputs"]:
            members = tuple(sorted(output["members"]))
            self._check_members(members)
            range_id = output["range"]
            span = self._descriptor(range_id).span
            outputs.append(Output(range_id, next_generation, span, members))
        return self._begin(command["kind"], inputs, tuple(outputs), reason)

    def _move(self, command: Command, *_: int) -> Answer:
        """An operator's. One that is asked for again is refused while the first is under way."""
        range_id, from_node, to_node = (_number(command, name) for name in ("range", "from", "to"))
        range_ = self.descriptor(range_id)
        members = moves.members_after(range_, self.nodes, from_node, to_node)
        locks.check_room(self.operations)
        output = Output(range_id, range_.generation + 1, range_.span, members)
        reason = f"an operator moves it from node {from_node} to node {to_node}"
        answer = self._begin("move", ((range_id, range_.generation),), (output,), reason)
        return {
            **answer,
            "generation": output.generation,
            "members": list(members),
            "version": self.version + 1,  # once this command is applied
        }

    def _split(self, command: Command, *_: int) -> Answer:
        """At a key of a log, for a reason or since an operator wants it; refused while the range
        is in another operation."""
        log_id = self.log_named(command["log"]).log_id
        at = _key(command, "at")
        range_ = self._range_of(log_id, at)
        splits.check_key(range_, at)
        locks.check_free(range_)
        locks.check_room(self.operations)
        splits.check_count(len(self.ranges_of(log_id)))
        outputs = splits.children(range_, at, self._next("range"))
        inputs = ((range_.range_id, range_.generation),)
        reason = _text(command, "reason") or f"an operator splits it at key {printable(at)}"
        return {
            **self._begin("split", inputs, outputs, reason),
            "range": range_.range_id,
            "generation": outputs[0].generation,
            "new_range": outputs[1].range_id,
            "version": self.version + 1,  # once this command is applied
        }

    def _recover(self, command: Command, *_: int) -> Answer:
        """An operator's: the range goes on from one member alone (see `recovery`). What waits for
        the others gives way."""
        range_ = self.descriptor(_number(command, "range"))
        node, damaged = _number(command, "from"), _numbers(command, "damaged")
        operation = self.operations.get(range_.operation)
        recovery.check(range_, self.nodes, operation, damaged, node)
        if operation is not None and operation.phase == "DECIDED":
            self._end(operation, 0)
        elif operation is not None:
            self._drop(operation, 0)
        output = Output(range_.range_id, range_.generation + 1, range_.span, (node,))
        inputs = ((range_.range_id, range_.generation),)
        reason = f"an operator goes on from node {node} alone"
        return {
            **self._begin(recovery.KIND, inputs, (output,), reason, "SEALING"),
            "generation": output.generation,
            "version": self.version + 1,  # once this command is applied
        }

    def _merge(self, command: Command, *_: int) -> Answer:
        """Two neighbours of a log, for a reason or since an operator wants it; refused while
        either is in another operation."""
        log_id = self.log_named(command["log"]).log_id
        at = _key(command, "at")
        left, right = joins.neighbours(self.ranges_of(log_id), at)
        output = joins.joined(left, right)
        locks.check_room(self.operations)
        inputs = tuple((range_.range_id, range_.generation) for range_ in (left, right))
        reason = _text(command, "reason") or (
            f"an operator merges it with range {right.range_id} at key {printable(at)}"
        )
        return {
            **self._begin("merge", inputs, (output,), reason[:REASON_CHARS_MAX]),
            "range": left.range_id,
            "generation": output.generation,
            "gone_range": right.range_id,
            "version": self.version + 1,  # once this command is applied
        }

    def _begin(
        self,
        kind: str,
        inputs: tuple[tuple[int, int], ...],
        outputs: tuple[Output, ...],
        reason: str,
        phase: str = "PLANNED",
    ) -> Answer:
        spans = [self.ranges[range_id].span for range_id, _ in inputs]
        if union(spans) != union(output.span for output in outputs):
            raise InvalidArgument("the outputs do not cover the inputs exactly", what="outputs")
        operation_id = self._next("operation")
        self.operations[operation_id] = Operation(
            operation_id, kind, inputs, outputs, phase, reason
        )
        for range_id, _ in inputs:
            self._lock(range_id, operation_id)
        return {"operation": operation_id}

    def _sealing(self, command: Command, *_: int) -> Answer:
        operation = self._operation(command["operation"], "PLANNED")
        self.operations[operation.operation_id] = replace(operation, phase="SEALING")
        return {}

    def _abort(self, command: Command, *_: int) -> Answer:
        """Only a PLANNED operation: after that the input may be sealed (executions 1.25)."""
        operation = self._operation(command["operation"], "PLANNED")
        self._drop(operation, _number(command, "at_ms"))
        return {}

    def _drop(self, operation: Operation, at_ms: int) -> None:
        del self.operations[operation.operation_id]
        for range_id, _generation in operation.inputs:
            self._lock(range_id, 0)
            self._remember(range_id, operation, "ABORTED", at_ms)

    def _apart(self, command: Command, *_: int) -> Answer:
        """An operation on several ranges becomes one on each alone: whatever is sealed of them, or
        is to be, goes on as it was in its next generation (executions 1.25)."""
        operation = self._operation(command["operation"], "SEALING")
        if len(operation.inputs) < 2:
            raise InvalidArgument("the operation has one range only", what="operation")
        del self.operations[operation.operation_id]
        reason = operation.reason + "; given up: not both were sealed and held in time"
        for gid in operation.inputs:
            range_ = self.ranges[gid[0]]
            alone = Output(range_.range_id, range_.generation + 1, range_.span, range_.members)
            number = self._begin(operation.kind, (gid,), (alone,), reason)["operation"]
            self.operations[number] = replace(self.operations[number], phase="SEALING")
        return {}

    def _decide(self, command: Command, *_: int) -> Answer:
        operation = self._operation(command["operation"], "SEALING")
        lineage = tuple(Lineage(*parent) for parent in command["lineage"])
        if [(p.range_id, p.generation) for p in lineage] != list(operation.inputs):
            raise InvalidArgument("the lineage is not that of the inputs", what="lineage")
        outputs = []
        for planned, members in zip(operation.outputs, command["members"], strict=True):
            self._check_members(tuple(members))
            outputs.append(replace(planned, members=tuple(sorted(members))))
        before = [self.ranges.pop(range_id) for range_id, _ in operation.inputs]
        log_id = before[0].log_id
        met_at = tuple(range_.span.start for range_ in before[1:])
        for output in outputs:
            self.ranges[output.range_id] = Descriptor(
                output.range_id, output.generation, log_id, output.span, output.members,
                lineage, "ACTIVE", operation.operation_id, met_at,
            )  # fmt: skip
        self._check_log(log_id)
        reason = operation.reason
        if tuple(outputs) != operation.outputs:
            reason += "; the old members go on: the new ones were not ready in time"
        self.operations[operation.operation_id] = replace(
            operation, phase="DECIDED", outputs=tuple(outputs), reason=reason
        )
        return {}

    def _installed(self, command: Command, *_: int) -> Answer:
        operation = self._operation(command["operation"], "DECIDED")
        at_ms = _number(command, "at_ms")
        installed = tuple(sorted({*operation.installed, command["node"]}))
        needed = {member for output in operation.outputs for member in output.members}
        if not needed <= set(installed):
            self.operations[operation.operation_id] = replace(operation, installed=installed)
            return {}
        self._end(operation, at_ms)
        return {"done": True}

    def _done(self, command: Command, *_: int) -> Answer:
        """The members that have not installed are not waited for: they begin later, from a base
        of the new generation (executions 2.16)."""
        operation = self._operation(command["operation"], "DECIDED")
        if not operation.is_held_by_majorities:
            raise InvalidArgument("an output is not held by most of its members", what="operation")
        self._end(operation, _number(command, "at_ms"))
        return {}

    def _end(self, operation: Operation, at_ms: int) -> None:
        del self.operations[operation.operation_id]
        for range_id, generation in operation.inputs:
            self.done[range_id] = generation
            self.last_operations.pop(range_id, None)
        for output in operation.outputs:
            self._lock(output.range_id, 0)
            self._remember(output.range_id, operation, "DONE", at_ms)

    def _remember(self, range_id: int, operation: Operation, outcome: str, at_ms: int) -> None:
        self.last_operations[range_id] = LastOperation(
            operation.operation_id, operation.kind, operation.reason, outcome, at_ms
        )

    def _seal_controller(self, command: Command, index: int, term: int) -> Answer:
        """The last record of this generation: it names the members of the next one."""
        members = tuple(sorted(command["members"]))
        self._check_members(members)
        if len(members) % 2 == 0:
            raise InvalidArgument("a controller has an odd number of members", what="members")
        kind, reason = _text(command, "kind"), _text(command, "reason")[:REASON_CHARS_MAX]
        last = LastOperation(0, kind, reason, "DONE", _number(command, "at_ms"))
        parent = Lineage(CONTROLLER_RANGE, self.controller.generation, index, term, 0, 0, b"")
        self.controller = replace(
            self.controller,
            generation=self.controller.generation + 1,
            members=members,
            lineage=(parent,),
        )
        if kind:  # records of before these reasons have none
            self.last_operations[CONTROLLER_RANGE] = last
        self.sealed = True
        return {"generation": self.controller.generation}

    # Invariants and helpers.

    def _range_of(self, log_id: int, key: bytes) -> Descriptor:
        """The range of the log that has the key."""
        return next(range_ for range_ in self.ranges_of(log_id) if key in range_.span)

    def _descriptor(self, range_id: int) -> Descriptor:
        range_ = self.ranges.get(range_id)
        if range_ is None:
            raise RangeNotFound(
                f"no range {range_id}; `lognode range list` shows all", range=range_id
            )
        return range_

    def _operation(self, operation_id: int, phase: str) -> Operation:
        operation = self.operations.get(operation_id)
        if operation is None:
            raise InvalidArgument(f"no operation {operation_id}", what="operation")
        if operation.phase != phase:
            raise InvalidArgument(
                f"operation {operation_id} is {operation.phase}, not {phase}", what="phase"
            )
        return operation

    def _lock(self, range_id: int, operation_id: int) -> None:
        self.ranges[range_id] = replace(self.ranges[range_id], operation=operation_id)

    def _check_members(self, members: tuple[int, ...]) -> None:
        if not members or len(set(members)) != len(members):
            raise InvalidArgument(f"members {members} are not distinct nodes", what="members")
        for member in members:
            if member not in self.nodes:
                raise NodeNotFound(f"no node {member}", node=member)

    def _check_log(self, log_id: int) -> None:
        """The ranges of a log cover its key space exactly once."""
        at: bytes | None = b""
        for range_ in self.ranges_of(log_id):
            invariant(range_.span.start == at, "a log's ranges leave a gap or overlap", log=log_id)
            at = range_.span.end
        invariant(at is None, "a log's last range has an end", log=log_id)

    def _homes(self) -> placement.Homes:
        """Active nodes, those with the fewest replicas first."""
        nodes = self.active_nodes()
        if not nodes:
            raise InvalidArgument("no node is ACTIVE", what="replicas")
        return placement.Homes(nodes, placement.load_of(self.ranges, self.operations.values()))

    def _next(self, kind: str) -> int:
        value = self.next_ids[kind]
        self.next_ids[kind] = value + 1
        return value

    # Images.

    def image(self) -> dict[str, Any]:
        """All of it as msgpack values: what a checkpoint stores and a new member gets."""
        return {
            "version": self.version,
            "cluster": self.cluster_id,
            "nodes": [asdict(node) for node in self.nodes.values()],
            "logs": [asdict(record) for record in self.logs.values()],
            "ranges": [range_.to_wire() for range_ in self.ranges.values()],
            "operations": [asdict(operation) for operation in self.operations.values()],
            "last_operations": {
                range_id: list(last) for range_id, last in self.last_operations.items()
            },
            "producers": {name: list(value) for name, value in self.producers.items()},
            "done": dict(self.done),
            "next_ids": dict(self.next_ids),
            "controller": self.controller.to_wire(),
            "sealed": self.sealed,
        }

    @classmethod
    def from_image(cls, image: dict[str, Any]) -> "Metadata":
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
            metadata.done = dict(image["done"])
            metadata.next_ids = dict(image["next_ids"])
            metadata.controller = Descriptor.from_wire(image["controller"])
            metadata.sealed = image["sealed"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptData(f"a metadata image that is none: {error!r}") from None
        return metadata

    def begin_generation(self) -> None:
        """The controller's next generation goes on from this state."""
        self.sealed = False
        self.version += 1


def group_size(replicas: int, nodes: int) -> int:
    """The largest odd number within both: a group of two would stop with either member."""
    size = max(1, min(replicas, nodes))
    return size if size % 2 else size - 1
