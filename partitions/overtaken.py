"""Refuse a late attempt of a command: one that arrives after later commands changed its records.

A client repeats a request whose answer is missing, at another node. The first attempt may still be
under way: in the queue of a node that is paused, or on a link that is cut. Without a check such an
attempt would be executed whenever it arrives. A token that was created by the second attempt and
then revoked would exist again (X5). So would an invitation that a node has used. An old policy, key
or quota would replace a newer one.

Each attempt names `since`, a version of the metadata that its sender knew before it sent the
attempt. The leader of the controller refuses the attempt if the records that the command may change
have changed after that version. The sender then sends the command again, with a newer version. Why
no late attempt passes:

1. A client that has its answer sends no more attempts: each attempt names a version from before
   the answer.
2. The leader compares after a read barrier, and proposes in the same turn.
3. If the request was answered before that turn, the leader's state has the request, in a version
   later than `since`. The leader refuses the attempt, or finds that it would change nothing.
4. Otherwise the attempt gets its place in the log before the answer, and so before each command
   that somebody sends because of the answer.

A leader that was deposed may pass an attempt, and cannot commit it.

The check is the leader's alone and changes no state. `apply` does not know `since`, so that members
of all versions apply every command alike.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..client.protocol.errors import OVERTAKEN, Conflict
from . import commands
from .command_fields import number
from .invites import INVITES
from .records import ACCESS, HEAD, LOGS, NODES, QUOTAS
from .tables import Bucket, bucket_of

if TYPE_CHECKING:
    from .metadata_state import MetadataState

Command = dict[str, Any]


def _of_log(state: "MetadataState", command: Command) -> Bucket:
    return Bucket(LOGS.name, bucket_of(state.logs.ids.get(command["name"], 0)))


def _of_node(_: "MetadataState", command: Command) -> Bucket:
    return Bucket(NODES.name, bucket_of(number(command, "node")))


def _whole(table: str) -> Callable[["MetadataState", Command], Bucket]:
    """Return the only bucket of a table whose keys are texts."""
    return lambda _state, _command: Bucket(table, 0)


_CONCERNED: Final[Mapping[str, Callable[["MetadataState", Command], Bucket]]] = {
    commands.CREATE_LOG: _whole(HEAD.name),  # it counts the logs that were deleted
    commands.CREATE_GROUP: _whole(HEAD.name),  # it counts the groups that were deleted
    commands.REGISTER_VIEW: _whole(HEAD.name),  # it counts the views that were deleted
    commands.ALTER_LOG: _of_log,
    commands.DRAIN_NODE: _of_node,
    commands.REKEY_NODE: _of_node,
    commands.CREATE_TOKEN: _whole(ACCESS.name),
    commands.CREATE_INVITE: _whole(INVITES.name),
    commands.SET_QUOTA: _whole(QUOTAS.name),
    commands.DELETE_QUOTA: _whole(QUOTAS.name),
}
"""The bucket of the metadata that a command concerns. Other commands name no `since`: they cannot
be undone, or their answer names what they did."""


def check(state: "MetadataState", command: Command, since: int) -> None:
    """Raise Conflict if a record that the command concerns has changed after version `since`.

    The error names the version that the sender may send instead. Records that were loaded from an
    image count as changed in the version of the image.
    """
    concerned = _CONCERNED.get(command["op"])
    if concerned is None or state.changes.version_of(concerned(state, command)) <= since:
        return
    raise Conflict(
        f"the command {command['op']} was sent before version {since + 1} of the metadata, and "
        "later commands have changed what it concerns; send the request again",
        reason=OVERTAKEN, newer=state.version,
    )  # fmt: skip
