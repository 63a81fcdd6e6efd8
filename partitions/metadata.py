"""The metadata: the state machine of the controller group.

Every change is a command. A command is examined first, and a refused command changes nothing. The
result of an accepted command is checked against the invariants of docs/design/ranges.md#metadata
before the next command. `version` counts the changes. This module applies the commands of nodes,
logs, producers and the controller's own members; `generation_commands` applies the commands that
change generations of ranges. Both change the records of `metadata_state`.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..client.protocol import limits, log_names
from ..client.protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    LogExists,
    LognodeError,
    LogNotFound,
    NodeNotFound,
    OperationInProgress,
    Sealed,
    Unsupported,
    to_wire,
)
from ..client.protocol.kinds import shown
from ..client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from ..statemachine.unknown import UnknownCommandError
from . import (
    bounds,
    commands,
    generation_commands,
    groups,
    invites,
    levels,
    lifecycle,
    new_log,
    producers,
    quota,
    tokens,
    views,
)
from .command_fields import number as _number
from .command_fields import text as _text
from .generation_commands import REASON_CHARS_MAX
from .metadata_state import MetadataState
from .model import CONTROLLER_RANGE, Descriptor, LastOperation, Lineage, LogRecord, NodeRecord
from .new_log import Ahead
from .placement import group_size
from .policy import altered, of_request
from .tables import WouldChangeError

NODE_STATES = ("JOINING", "ACTIVE", "DRAINING", "DEAD", "REMOVED")

Command = dict[str, Any]
Answer = dict[str, Any]


class Metadata(MetadataState):
    """The metadata of the cluster, changed by commands only. `apply` is deterministic."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead: Ahead | None = None

    # Commands.

    def prepare(self, command: Command) -> Generator[None, None, None]:
        """Do, in steps, work that `apply` of this very command would do in one go.

        The result of `apply` is the same without it, and after any change in between.
        """
        if command["op"] == commands.CREATE_LOG:
            self._ahead = yield from new_log.steps(self, command)

    def apply(self, index: int, term: int, command: Command) -> Answer:
        """Apply a command and return its answer, `{"ok": ...}` or `{"error": ...}`.

        Raises UnknownCommandError for a command of a newer program; nothing is changed then.
        """
        if not self.sealed:
            self._check_known(index, command)
        self.changes.begin(self.version)
        answer = self._answer_or_error(index, term, command)
        if "ok" not in answer:
            self.changes.roll_back()
            return answer
        is_quiet = command["op"] in commands.QUIET or self._repeats(command)
        if not is_quiet or self._changes_what_all_have():
            self.version += 1
        self.settle()
        return answer

    def _check_known(self, index: int, command: Command) -> None:
        """Raise UnknownCommandError for a command that only a newer program can apply."""
        if command["op"] not in self.known_commands():
            raise UnknownCommandError(
                index, f"the metadata command {shown(command['op'])}", self.known_commands()
            )
        if command["op"] == commands.FINALIZE and _number(command, "level") > LEVEL_MAX:
            known = range(LEVEL_MIN, LEVEL_MAX + 1)
            raise UnknownCommandError(
                index, f"the change to feature level {shown(command['level'])}", known
            )

    @classmethod
    def known_commands(cls) -> list[str]:
        """Return the commands that this program applies."""
        return sorted([*cls._HANDLERS, *_ELSEWHERE, *generation_commands.HANDLERS])

    def _repeats(self, command: Command) -> bool:
        """Whether the current command is a known repetition of `create_log`.

        A member of a version that does not know repetitions refuses it: all versions must reach the
        same state.
        """
        return command["op"] == commands.CREATE_LOG and not command.get("exist_ok")

    def _changes_what_all_have(self) -> bool:
        """Whether the current command has changed a table that every node gets."""
        return any(self.tables[bucket.table].kind.is_public for bucket in self.changes.touched)

    def rehearse(self, index: int, term: int, command: Command) -> Answer | None:
        """Return the command's answer if the command would change nothing, else None.

        Changes nothing. The leader answers such a command at once: a repeated, refused or malformed
        command is not proposed, and the version stays. The cost is that of the command's checks
        before its first change.
        """
        self.changes.begin(self.version)
        self.changes.rehearsing = True
        try:
            return self._answer_or_error(index, term, command)
        except WouldChangeError:
            return None
        finally:
            self.changes.rehearsing = False

    def _answer_or_error(self, index: int, term: int, command: Command) -> Answer:
        try:
            return {"ok": self._answer(index, term, command)}
        except LognodeError as error:
            return {"error": to_wire(error)}
        except (KeyError, TypeError, ValueError) as error:
            bad = InvalidArgument(f"metadata command {command.get('op')!r} is malformed: {error!r}")
            return {"error": to_wire(bad)}

    def _answer(self, index: int, term: int, command: Command) -> Answer:
        op = str(command.get("op"))
        if self.sealed:
            raise Sealed("the controller's generation has ended")
        change = generation_commands.HANDLERS.get(op) or _ELSEWHERE.get(op)
        if change is not None:
            return change(self, command)
        handler = self._HANDLERS.get(op)
        if handler is None:
            raise Unsupported(f"metadata command {command.get('op')!r} is unknown")
        return handler(self, command, index, term)

    # Nodes.

    def _found(self, command: Command, *_: int) -> Answer:
        if self.cluster_id:
            if command["cluster"] == self.cluster_id:
                return {"cluster": self.cluster_id}
            raise InvalidArgument(f"this is cluster {self.cluster_id} already", what="cluster")
        if command.get("token"):  # first, since the token may be refused
            tokens.create(self, command["token"])
        levels.begin(self, command)
        self.cluster_id = command["cluster"]
        self.founders = _number(command, "founders") or 1
        if founded_ms := _number(command, "at_ms"):
            self.founded_ms = founded_ms
        node_id = command["node"]
        self.controller = replace(self.controller, members=(node_id,))
        self.next_ids["node"] = node_id
        return {"cluster": self.cluster_id}

    def _register(self, command: Command, *_: int) -> Answer:
        incarnation, boot, process = (
            _number(command, name) for name in ("incarnation", "boot", "process")
        )
        address, http, zone = (_text(command, name) for name in ("address", "http", "zone"))
        key = _text(command, "key") and lifecycle.check_key(_text(command, "key"))
        peer = "" if command.get("peer") is None else _text(command, "peer")
        node_id = None if command.get("node") is None else _number(command, "node")
        invite = ""
        levels.check_registration(self, command)
        if node_id is None:
            for known in self.nodes.values():
                if known.incarnation == incarnation:
                    invites.check_again(known, command)
                    node_id = known.node_id  # the answer to its first registration was lost
                    break
            else:
                invite = invites.admit(self, command, key)
                here = sum(known.state != "REMOVED" for known in self.nodes.values())
                if here >= limits.nodes_max:
                    raise LimitExceeded(
                        f"the cluster has {limits.nodes_max} nodes, the limit; remove a "
                        "node first",
                        limit="nodes_max", value=here + 1, allowed=limits.nodes_max,
                    )  # fmt: skip
                node_id = self.next_id("node")
        known_node = self.nodes.get(node_id)
        if known_node is None:
            if node_id > self.next_ids["node"]:
                raise NodeNotFound(f"cluster {self.cluster_id} has no node {node_id}", node=node_id)
            self.next_ids["node"] = max(self.next_ids["node"], node_id + 1)
        elif known_node.state == "REMOVED":
            raise InvalidArgument(
                f"node {node_id} was removed from the cluster; start a new node with an "
                "empty data directory", what="node",
            )  # fmt: skip
        elif known_node.incarnation != incarnation or not lifecycle.follows(
            known_node, boot, process
        ):
            raise InvalidArgument(
                f"another data directory is registered as node {node_id}, or this directory "
                "is an old copy: a copied or restored directory must not "
                "serve", what="incarnation",
            )  # fmt: skip
        key = lifecycle.key_of(known_node, key)
        self.nodes[node_id] = NodeRecord(
            node_id=node_id,
            address=address,
            http=http,
            zone=zone,
            incarnation=incarnation,
            boot=boot,
            state="DRAINING" if known_node and known_node.state == "DRAINING" else "ACTIVE",
            process=process,
            key=key,
            peer=peer,
            invite=known_node.invite if known_node else invite,
        )
        return {"cluster": self.cluster_id, "node": node_id}

    def _node_state(self, command: Command, *_: int) -> Answer:
        node = self.nodes.get(command["node"])
        if node is None:
            raise NodeNotFound(f"node {command['node']} does not exist", node=command["node"])
        if command["state"] not in NODE_STATES:
            raise InvalidArgument(
                f"the node state {command['state']!r} does not exist", what="state"
            )
        if node.state in ("DRAINING", "REMOVED"):  # an operator was faster than the heartbeats
            raise Conflict(
                f"node {node.node_id} is {node.state}, and contact with the node does not "
                "change that"
            )
        self.nodes[node.node_id] = replace(node, state=command["state"])
        return {}

    def _drain_node(self, command: Command, *_: int) -> Answer:
        """Drain a node; with `undo`, make it ACTIVE again. A repetition changes nothing."""
        node = lifecycle.known(self.nodes, _number(command, "node"))
        lifecycle.check_drainable(node)
        undo = bool(command.get("undo"))
        if not undo and node.state == "ACTIVE":
            lifecycle.check_drain(node, self.nodes, self._groups())
        state = "ACTIVE" if undo else "DRAINING"
        self.nodes[node.node_id] = replace(node, state=state)
        return self._node_now(node.node_id)

    def _remove_node(self, command: Command, *_: int) -> Answer:
        """Remove a node. A repetition changes nothing."""
        node = lifecycle.known(self.nodes, _number(command, "node"))
        if node.state != "REMOVED":
            left, dead = self.replicas_by_node()[node.node_id], bool(command.get("dead"))
            lifecycle.check_remove(node, self.nodes, self._groups(), left, dead=dead)
            self.nodes[node.node_id] = replace(node, state="REMOVED")
        return self._node_now(node.node_id)

    def _rekey_node(self, command: Command, *_: int) -> Answer:
        """Replace the key of a node. A repetition changes nothing."""
        node = lifecycle.known(self.nodes, _number(command, "node"))
        if node.state == "REMOVED":
            raise Conflict(f"node {node.node_id} was removed and never returns")
        self.nodes[node.node_id] = replace(node, key=lifecycle.check_key(_text(command, "key")))
        return self._node_now(node.node_id)

    def _node_now(self, node: int) -> Answer:
        return {
            "node": node,
            "state": self.nodes[node].state,
            "replicas": self.replicas_by_node()[node],
            # The version after this command, if it changes anything.
            "version": self.version + bool(self.changes.touched),
        }

    def _groups(self) -> Iterator[tuple[str, Descriptor]]:
        """Yield the controller and all ranges, each with its name."""
        for range_ in (self.controller, *self.ranges.values()):
            yield self.name_of(range_), range_

    # Logs and producers.

    def _create_log(self, command: Command, *_: int) -> Answer:
        name = command["name"]
        log_names.check(name)
        policy = of_request(command)
        creation, hierarchy = command.get("creation") or b"", command.get("hierarchy") or b""
        levels.check_hierarchy(self.feature_level, hierarchy)
        levels.check_kafka(self.feature_level, policy.kafka_partitions)
        levels.check_cleanup(self.feature_level, policy.cleanup)
        if policy.local_retention_bytes is not None:
            levels.check_local_retention(self.feature_level, command)
        if name in self.logs.ids:
            known = self.logs[self.logs.ids[name]]
            if creation and known.creation == creation:
                return _made(known, created=True)  # the answer to the first request was lost
            if command.get("exist_ok"):
                return _made(known, created=False)
            raise LogExists(f"log {name!r} exists already", log=name)
        if self._ahead is not None and self._ahead.fits(self, command):
            ahead, self._ahead = self._ahead, None
            count, ranges = len(ahead.ranges), iter(ahead.ranges)
        else:
            spans = new_log.spans_of(command)
            count, ranges = len(spans), None
        quota.check_logs(self.quotas, name, self.logs.ids)
        bounds.check_logs(self)
        bounds.check_ranges(self, count)
        if ranges is None:
            ranges = new_log.ranges(self, spans, new_log.homes_of(self), policy.replicas)
        active = [node.node_id for node in self.active_nodes()]
        bounds.check_replicas(self, active, count * group_size(policy.replicas, len(active)))
        log_id = self.next_id("log")
        policy = replace(policy, ranges_min=count)
        record = self.logs[log_id] = LogRecord(log_id, name, policy, creation, hierarchy)
        self.next_ids["range"] += count
        for range_ in ranges:
            self.ranges[range_.range_id] = range_
        self.check_log(log_id)
        return _made(record, created=True)

    def _alter_log(self, command: Command, *_: int) -> Answer:
        """Change the policy of a log. A repetition changes nothing."""
        record = self.log_named(command["name"])
        policy = altered(record.policy, command["changes"])
        levels.check_cleanup(self.feature_level, policy.cleanup)
        levels.check_local_retention(self.feature_level, command["changes"])
        self.logs[record.log_id] = replace(record, policy=policy)
        return {"log": record.log_id, "policy": policy.to_body()}

    def _delete_log(self, command: Command, *_: int) -> Answer:
        record, wanted = self.log_named(command["name"]), command.get("id")
        if wanted is not None and wanted != record.log_id:
            raise LogNotFound(
                f"log {record.name!r} with id {wanted} is gone; another log has the name now",
                log=record.name, id=record.log_id,
            )  # fmt: skip
        for range_ in self.ranges_of(record.log_id):
            if range_.operation:
                raise OperationInProgress(
                    f"range {range_.range_id} is in operation {range_.operation}; try again later",
                    range=range_.range_id, operation=range_.operation,
                )  # fmt: skip
        for range_ in list(self.ranges_of(record.log_id)):
            del self.ranges[range_.range_id]
            self.done.pop(range_.range_id, None)
            self.last_operations.pop(range_.range_id, None)
        views.forget_log(self, record.log_id)
        groups.forget_log(self, record.log_id)
        del self.logs[record.log_id]
        self.logs_deleted += 1
        return {}

    def _open_producer(self, command: Command, *_: int) -> Answer:
        """Open a producer as older versions did; no node proposes this command any more."""
        name = command.get("name")
        if name is None:
            return producers.open_anonymous(self, command)
        return producers.open_as_before(self, name)

    def _create_token(self, command: Command, *_: int) -> Answer:
        return tokens.create(self, command)

    def _revoke_token(self, command: Command, *_: int) -> Answer:
        return tokens.revoke(self, command)

    # Quotas.

    def _set_quota(self, command: Command, *_: int) -> Answer:
        """Set the limits of a quota. A repetition changes nothing."""
        name = command["name"]
        self.quotas[name] = quota.changed(self.quotas, name, command["limits"])
        return {"name": name, "limits": dict(self.quotas[name])}

    def _delete_quota(self, command: Command, *_: int) -> Answer:
        name = _text(command, "name")
        quota.existing(self.quotas, name)
        del self.quotas[name]
        return {}

    # The controller.

    def _seal_controller(self, command: Command, index: int, term: int) -> Answer:
        """Commit the last record of this generation, which names the members of the next one."""
        members = tuple(sorted(command["members"]))
        self.check_members(members)
        if len(members) % 2 == 0:
            raise InvalidArgument(
                "the controller must have an odd number of members", what="members"
            )
        kind, reason = _text(command, "kind"), _text(command, "reason")[:REASON_CHARS_MAX]
        last = LastOperation(0, kind, reason, "DONE", _number(command, "at_ms"))
        parent = Lineage(CONTROLLER_RANGE, self.controller.generation, index, term, 0, 0, b"")
        self.controller = replace(
            self.controller,
            generation=self.controller.generation + 1,
            members=members,
            lineage=(parent,),
        )
        if kind:  # records written before reasons were kept have no kind
            self.last_operations[CONTROLLER_RANGE] = last
        self.sealed = True
        return {"generation": self.controller.generation}

    # Unbound functions: bound methods would put every image of the metadata, with all ranges of the
    # cluster, into a reference cycle that only the garbage collector frees.
    _HANDLERS: Final[Mapping[str, Callable[["Metadata", Command, int, int], Answer]]] = {
        commands.FOUND: _found,
        commands.REGISTER: _register,
        commands.NODE_STATE: _node_state,
        commands.DRAIN_NODE: _drain_node,
        commands.REMOVE_NODE: _remove_node,
        commands.REKEY_NODE: _rekey_node,
        commands.CREATE_LOG: _create_log,
        commands.ALTER_LOG: _alter_log,
        commands.DELETE_LOG: _delete_log,
        commands.OPEN_PRODUCER: _open_producer,
        commands.SET_QUOTA: _set_quota,
        commands.DELETE_QUOTA: _delete_quota,
        commands.CREATE_TOKEN: _create_token,
        commands.REVOKE_TOKEN: _revoke_token,
        commands.SEAL_CONTROLLER: _seal_controller,
    }

    def begin_generation(self) -> None:
        """Begin the controller's next generation from this state."""
        self.sealed = False
        self.version += 1
        self.settle()


def _made(record: LogRecord, *, created: bool) -> Answer:
    """Return the answer to `create_log`."""
    answer: Answer = {"log": record.log_id, "created": created}
    if record.hierarchy:
        answer["hierarchy"] = record.hierarchy
    if record.policy.kafka_partitions is not None:
        answer["kafka_partitions"] = record.policy.kafka_partitions
    return answer


_ELSEWHERE: Final[Mapping[str, Callable[[Metadata, Command], Answer]]] = {
    commands.CREATE_INVITE: invites.create,
    commands.REVOKE_INVITE: invites.revoke,
    commands.FINALIZE: levels.finalize,
    commands.CREATE_GROUP: groups.create,
    commands.DELETE_GROUP: groups.delete,
    commands.REGISTER_VIEW: views.register,
    commands.DELETE_VIEW: views.delete,
    commands.OPEN_ANONYMOUS: producers.open_anonymous,
    commands.OPEN_NAMED: producers.open_named,
    commands.DELETE_PRODUCER: producers.delete,
    commands.EXPIRE_PRODUCERS: producers.expire,
}
