"""Commands of the metadata log: a type byte 0 for the engine, then a packed map with its `op`."""

from typing import Any, Final

import msgpack

from ..client.protocol import limits, packed
from ..client.protocol.errors import CorruptData
from ..client.protocol.packed import Census

_PREFIX: Final = b"\x00"
NO_OP: Final = b"\x01"

FOUND: Final = "found"
REGISTER: Final = "register"
NODE_STATE: Final = "node_state"
DRAIN_NODE: Final = "drain_node"
REMOVE_NODE: Final = "remove_node"
REKEY_NODE: Final = "rekey_node"
CREATE_LOG: Final = "create_log"
ALTER_LOG: Final = "alter_log"
DELETE_LOG: Final = "delete_log"
OPEN_PRODUCER: Final = "open_producer"
"""Written by a version before the next four commands; still applied from old logs."""
OPEN_ANONYMOUS: Final = "open_anonymous"
OPEN_NAMED: Final = "open_named"
DELETE_PRODUCER: Final = "delete_producer"
EXPIRE_PRODUCERS: Final = "expire_producers"
SET_QUOTA: Final = "set_quota"
DELETE_QUOTA: Final = "delete_quota"
CREATE_TOKEN: Final = "create_token"
REVOKE_TOKEN: Final = "revoke_token"
CREATE_INVITE: Final = "create_invite"
REVOKE_INVITE: Final = "revoke_invite"
FINALIZE: Final = "finalize"
CREATE_GROUP: Final = "create_group"
DELETE_GROUP: Final = "delete_group"
REGISTER_VIEW: Final = "register_view"
DELETE_VIEW: Final = "delete_view"
PLAN: Final = "plan"
MOVE: Final = "move_range"
SPLIT: Final = "split_range"
RECOVER: Final = "recover_range"
MERGE: Final = "merge_ranges"
SEALING: Final = "sealing"
APART: Final = "apart"
DECIDE: Final = "decide"
INSTALLED: Final = "installed"
DONE: Final = "done"
ABORT: Final = "abort"
SEAL_CONTROLLER: Final = "seal_controller"

_DATED: Final = frozenset(
    {FOUND, INSTALLED, DONE, ABORT, SEAL_CONTROLLER, OPEN_NAMED, CREATE_TOKEN, CREATE_INVITE,
     REGISTER, CREATE_GROUP, REGISTER_VIEW}
)  # fmt: skip
"""Commands with a date: those that may end an operation, those that keep when something was opened
or created, and the registration of a node whose invitation may have expired."""
QUIET: Final = frozenset({OPEN_ANONYMOUS, OPEN_NAMED, DELETE_PRODUCER, EXPIRE_PRODUCERS})
"""Commands that change only private tables of the controller's members. They keep the version,
which tells other nodes of a change. The first opening also makes the key of the grants."""

FORWARDED: Final = frozenset(
    {REGISTER, DRAIN_NODE, REMOVE_NODE, REKEY_NODE, CREATE_LOG, ALTER_LOG, DELETE_LOG, OPEN_NAMED,
     OPEN_ANONYMOUS, DELETE_PRODUCER, EXPIRE_PRODUCERS, SET_QUOTA, DELETE_QUOTA, CREATE_TOKEN,
     REVOKE_TOKEN, CREATE_INVITE, REVOKE_INVITE, FINALIZE, CREATE_GROUP, DELETE_GROUP,
     REGISTER_VIEW, DELETE_VIEW, MOVE, SPLIT, MERGE, RECOVER}
)  # fmt: skip
"""Commands that any node accepts and forwards to the controller's leader."""
OWN: Final = frozenset(
    {FOUND, NODE_STATE, PLAN, SEALING, APART, DECIDE, INSTALLED, DONE, ABORT, SEAL_CONTROLLER}
)
"""Commands that only the controller's leader proposes, on its own initiative."""

GROWING: Final = frozenset({CREATE_LOG, CREATE_GROUP, REGISTER_VIEW, SPLIT, OPEN_NAMED})
"""Commands of clients that make the metadata larger."""


def dated(command: dict[str, Any], at_ms: int) -> dict[str, Any]:
    """Return the command with the proposer's wall clock, where the metadata keeps the time.

    The time is in the command because applying reads no clock.
    """
    return {**command, "at_ms": at_ms} if command["op"] in _DATED else command


def encode(command: dict[str, Any]) -> bytes:
    """Return the bytes to propose."""
    packed: bytes = msgpack.packb(command)
    return _PREFIX + packed


def decode(data: bytes) -> dict[str, Any] | None:
    """Return the command, or None for the engine's no-op. Raises CorruptData."""
    if data[:1] == NO_OP:
        return None
    try:
        census = Census(limits.frame_memory_max)
        command = packed.unpack(memoryview(data)[1:], census, array_max=limits.frame_array_max)
    except ValueError as error:
        raise CorruptData(f"metadata command does not unpack: {error}") from None
    if data[:1] != _PREFIX or not isinstance(command, dict) or "op" not in command:
        raise CorruptData("the bytes are not a metadata command")
    return command
