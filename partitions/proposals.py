"""Which commands may be proposed to the metadata: the fields of each command, and their types.

The node that proposes a command checks the command here first. Every command in the metadata log
has therefore passed this check: the command applies, its result can be packed into an image, and
the nodes that read the image can use it. `Metadata.apply` deliberately checks less: it also replays
the commands of older versions, and all members must answer a command alike, whatever their version.

A field that is not in the record is left out, since no code could check it.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..client.protocol import cluster, limits, log_names, peers, quotas
from ..client.protocol.common import KEY, LOG_NAME, NODE
from ..client.protocol.errors import InvalidArgument, Unsupported
from ..client.protocol.groups import GROUP_CREATE, GROUP_DELETE
from ..client.protocol.invites import INVITE_ID, INVITER, NODE_INVITE, NODE_UNINVITE
from ..client.protocol.kinds import (
    Array,
    Binary,
    Integer,
    Kind,
    Row,
    Text,
    shown,
)
from ..client.protocol.levels import LEVEL_MIN
from ..client.protocol.patterns import check_separator
from ..client.protocol.record import OMIT, Optional, Record, Shape
from ..client.protocol.views import VIEW_DELETE, VIEW_REGISTER
from . import allocate, commands, groups, levels, lifecycle, policy, reasons, tokens, views
from .generation_commands import REASON_CHARS_MAX
from .metadata import NODE_STATES
from .model import NodeRecord
from .producers import KEY_BYTES

Command = dict[str, Any]

_INPUTS_MAX: Final = 2
_KIND: Final = Text(32)
_BOOT: Final = Integer(0, limits.boot_max)
_MEMBERS: Final = Array(Integer(), limits.nodes_max)
_AT: Final = Optional(Integer())
_OPERATION: Final = Record({"operation": Integer()})
_TOKEN: Final = Record(
    {**cluster.TOKEN_CREATE.request.shape, "by": Optional(INVITER, OMIT), "at_ms": _AT}
)
_OPENING: Final[Shape] = {
    "owner": Optional(Text(limits.principal_name_chars_max), ""),
    "key": Optional(Binary(KEY_BYTES, KEY_BYTES)),
}
_REASON: Final = Optional(Text(4 * REASON_CHARS_MAX, lines=True), "")


def _of_node(**more: Kind | Optional) -> Record:
    return Record({"node": NODE, **more})


_RECORDS: Final[Mapping[str, Record]] = {
    commands.FOUND: _of_node(
        cluster=Text(limits.cluster_id_bytes_max, 1), token=Optional(_TOKEN),
        founders=Optional(Integer(1, limits.nodes_max), 1),
        level=Optional(Integer(LEVEL_MIN), LEVEL_MIN), at_ms=_AT,
    ),
    commands.REGISTER: Record(
        {**peers.REGISTRATION, "node": Optional(NODE), "boot": _BOOT,
         "key": Optional(Text(128), ""), "invite": Optional(INVITE_ID),
         "digest": Optional(Binary(32, 32)), "at_ms": _AT}
    ),
    commands.NODE_STATE: _of_node(state=Text(0, among=NODE_STATES)),
    commands.DRAIN_NODE: cluster.NODE_DRAIN.request,
    commands.REMOVE_NODE: cluster.NODE_REMOVE.request,
    commands.REKEY_NODE: cluster.NODE_REKEY.request,
    commands.CREATE_LOG: cluster.CREATE_LOG.request,
    commands.ALTER_LOG: cluster.ALTER_LOG.request,
    commands.DELETE_LOG: cluster.DELETE_LOG.request,
    commands.OPEN_ANONYMOUS: Record(_OPENING),
    commands.OPEN_NAMED: Record(
        {**_OPENING, "name": Text(limits.producer_name_bytes_max, 1), "at_ms": _AT,
         "allowed": Optional(Integer(), 0)}
    ),
    commands.DELETE_PRODUCER: cluster.PRODUCER_DELETE.request,
    commands.EXPIRE_PRODUCERS: Record({
        "numbers": Array(Integer(), limits.producers_page_max), "before_ms": Integer(),
    }),
    commands.SET_QUOTA: quotas.QUOTA_SET.request,
    commands.DELETE_QUOTA: quotas.QUOTA_DELETE.request,
    commands.CREATE_TOKEN: _TOKEN,
    commands.REVOKE_TOKEN: cluster.TOKEN_REVOKE.request,
    commands.CREATE_INVITE: Record(
        {**NODE_INVITE.request.shape, "by": Optional(INVITER, ""), "at_ms": _AT}
    ),
    commands.REVOKE_INVITE: NODE_UNINVITE.request,
    commands.FINALIZE: Record({
        **cluster.FINALIZE.request.shape,
        "nodes": Optional(
            Array(Row(node=NODE, boot=_BOOT, process=Integer()), limits.nodes_max), OMIT
        ),
    }),
    commands.CREATE_GROUP: Record({**GROUP_CREATE.request.shape, "at_ms": _AT}),
    commands.DELETE_GROUP: GROUP_DELETE.request,
    commands.REGISTER_VIEW: Record({**VIEW_REGISTER.request.shape, "at_ms": _AT}),
    commands.DELETE_VIEW: VIEW_DELETE.request,
    commands.PLAN: Record({
        "kind": _KIND,
        "inputs": Array(Row(range=Integer(), generation=Integer()), _INPUTS_MAX, 1),
        "outputs": Array(Record({"range": Integer(), "members": _MEMBERS}), _INPUTS_MAX, 1),
        "reason": _REASON,
    }),
    commands.MOVE: cluster.RANGE_MOVE.request,
    commands.SPLIT: Record({"log": LOG_NAME, "at": KEY, "reason": _REASON}),
    commands.RECOVER: Record(
        {"range": Integer(), "from": Integer(), "damaged": Optional(_MEMBERS)}
    ),
    commands.MERGE: Record({"log": LOG_NAME, "at": Binary(limits.key_bytes_max),
                            "reason": _REASON}),
    commands.SEALING: _OPERATION,
    commands.APART: _OPERATION,
    commands.DECIDE: Record({
        "operation": Integer(),
        "lineage": Array(peers.LINEAGE, _INPUTS_MAX, 1),
        "members": Array(_MEMBERS, _INPUTS_MAX, 1),
        "effects": Optional(Array(peers.EFFECTS, _INPUTS_MAX), OMIT),
    }),
    commands.INSTALLED: Record({"operation": Integer(), "node": NODE, "at_ms": _AT}),
    commands.DONE: Record({"operation": Integer(), "at_ms": _AT}),
    commands.ABORT: Record({"operation": Integer(), "at_ms": _AT}),
    commands.SEAL_CONTROLLER: Record({
        "members": _MEMBERS, "kind": Optional(_KIND, ""), "reason": _REASON, "at_ms": _AT,
    }),
}  # fmt: skip


def checked(command: Mapping[Any, Any], nodes: Mapping[int, NodeRecord]) -> Command:
    """Return the command as it may be proposed. `nodes` are those of the newest metadata known.

    Raises InvalidArgument or LimitExceeded that name the field; Unsupported for an unknown command.
    """
    op = command.get("op")
    record = _RECORDS.get(op) if isinstance(op, str) else None
    if record is None:
        raise Unsupported(f"this node does not know the metadata command {shown(op)}")
    given = dict(command)
    if op == commands.REGISTER:
        # Optional fields default to the empty text; a command may be checked twice.
        given = {name: value for name, value in given.items() if value != ""}
    if type(given.get("reason")) is str:
        given["reason"] = readable(given["reason"])
    found = {"op": op, **record.check(given)}
    if op == commands.REGISTER:
        _check_registration(found, nodes)
    elif op == commands.CREATE_LOG:
        _check_log(found)
    elif op == commands.CREATE_GROUP:
        groups.check_new(found)
    elif op == commands.REGISTER_VIEW:
        views.check_new(found)
    elif op == commands.SET_QUOTA:
        log_names.check_new(found["name"])
    elif op == commands.CREATE_TOKEN:
        tokens.check_new(found)
    elif op == commands.FOUND and found["token"]:
        tokens.check_new(found["token"])
    elif op == commands.FINALIZE:
        levels.check_known(found["level"])
    elif op == commands.ALTER_LOG:
        policy.check_changes(found["changes"])
    return found


def check_alike(command: Command, level: int) -> None:
    """Raise InvalidArgument for a command of which members could keep different records.

    `level` is the feature level of the metadata. See `reasons.check_key`.
    """
    if command["op"] in (commands.SPLIT, commands.MERGE):
        reasons.check_key(level, command["at"])


def _check_registration(command: Command, nodes: Mapping[int, NodeRecord]) -> None:
    node, boot = command["node"], command["boot"]
    if node is None:
        if boot != 0:
            raise InvalidArgument(
                f"a node that joins has boot 0, not {boot}; a node that has joined "
                "registers with its id", what="boot",
            )  # fmt: skip
        return
    known = nodes.get(node)
    if known is not None:
        lifecycle.check_boot(known, boot)


def _check_log(command: Command) -> None:
    log_names.check_new(command["name"])
    if command["split_at"] is not None:
        allocate.check_keys(command["split_at"])
    policy.of_request(command)
    if command.get("hierarchy"):
        check_separator(command["hierarchy"])


def readable(reason: str) -> str:
    """Return the beginning of a reason, for people: it may quote text from other nodes."""
    begin = reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()
    if begin.isprintable():
        return begin
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in begin)
