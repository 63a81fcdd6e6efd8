"""Unsafe recovery: a range that has lost most of its members for good goes on from one member.

Recovery never starts automatically: an operator names the member, and accepts that acknowledged
entries may be lost (promise S2 holds while most of the members' disks survive). Recovery is an
operation like the others except for its first step: no majority can seal the generation, so the
survivor leaves the other members and ends the generation alone.

The survivor treats its whole log as committed, to the last entry. It cannot know which of the last
entries were acknowledged: an acknowledged entry is among them if the survivor was in the majority
that stored it. To drop such an entry would lose it for certain. To keep an entry that was not
acknowledged turns an outcome that the client knows as unknown into `applied`, which S11 allows.
etcd (`--force-new-cluster` commits what the one member has in its log), CockroachDB (`debug
recover`, which picks the replica with the highest applied index) and TiKV (`unsafe recover`, by the
last index) do the same.

    SEALING     from the start: there is nothing to copy ahead. The survivor goes on alone in the
                generation, serving nothing, commits its log, seals it, and flushes everything
                into files; the other members take no part
    DECIDED     by the survivor's report: it is the only member of the next generation
    DONE        as in every operation; then the range grows back by `expand`

Until it is DECIDED, recovery may be requested again with another member: the first survivor has
served no client.

Readers may have seen the seqs of lost entries, or keep them as positions. The next generation skips
`SEQS_LEFT_OUT` seqs: no seq is given twice (S6), and a follower whose position is after the end
continues with the next entry, without an error or a gap.
"""

from collections.abc import Collection, Mapping

from ..client.protocol.errors import (
    Conflict,
    InvalidArgument,
    NodeNotFound,
    OperationInProgress,
)
from .model import CONTROLLER_RANGE, Descriptor, NodeRecord, Operation

KIND = "recover"
"""The kind of the operation."""
SEQS_LEFT_OUT = 1 << 40
"""More seqs than a range can have given to lost entries: three years at ten thousand a second.
After 8,000 recoveries of one range, seqs are still below 2^53, up to which JSON is exact."""
_ABLE = ("ACTIVE", "DRAINING")
"""States of nodes that are present."""


def check(
    range_: Descriptor,
    nodes: Mapping[int, NodeRecord],
    operation: Operation | None,
    damaged: Collection[int],
    survivor: int,
) -> None:
    """Check that the range may go on from `survivor` alone.

    `damaged` are the nodes whose replica of this generation takes no part any more; `operation` is
    the operation that holds the range.

    Raises InvalidArgument for the controller. Raises NodeNotFound for a node that is not a member.
    Raises Conflict when the survivor is absent or damaged, or when most members are present. Raises
    OperationInProgress when the operation that holds the range ends by itself.
    """
    if range_.range_id == CONTROLLER_RANGE:
        raise InvalidArgument(
            "range 0 is the controller, whose majority must decide every recovery; start "
            "the members of the controller", what="range",
        )  # fmt: skip
    if survivor not in range_.members:
        raise NodeNotFound(
            f"node {survivor} has no replica of range {range_.range_id}; choose one of the "
            f"members {_listed(range_.members)}", node=survivor,
        )  # fmt: skip
    left = [member for member in able(range_, nodes) if member not in damaged]
    if operation is None or operation.kind != KIND:
        _check_lost(range_, left)
    if survivor in damaged:
        raise Conflict(
            f"the replica of node {survivor} is damaged; choose another member. `lognode "
            "status` shows the damage",
            node=survivor,
        )
    if survivor not in left:
        raise Conflict(
            f"node {survivor} is {nodes[survivor].state}: start the node, or choose a "
            f"member that runs ({_listed(left) or 'none runs'})",
            node=survivor,
        )
    if operation is not None:
        _check_gives_way(range_, operation, survivor)


def able(range_: Descriptor, nodes: Mapping[int, NodeRecord]) -> list[int]:
    """Return the members that are present, as far as the controller knows."""
    return [member for member in range_.members if nodes[member].state in _ABLE]


def _check_lost(range_: Descriptor, left: Collection[int]) -> None:
    if 2 * len(left) > len(range_.members):
        raise Conflict(
            f"range {range_.range_id} has a majority: nodes {_listed(left)} of its members "
            f"{_listed(range_.members)} run. The range continues without a recovery. A node "
            "counts as lost when it is DEAD, 10 s after its last contact"
        )


def _check_gives_way(range_: Descriptor, operation: Operation, survivor: int) -> None:
    """Raise OperationInProgress unless the operation waits for members that are gone.

    A PLANNED operation ends by itself, forwards or aborted. A SEALING operation waits for the
    majority that is gone. A DECIDED operation waits for the members that have not installed; the
    survivor has all data of the inputs only once it has installed.
    """
    asked_again = operation.kind == KIND and (survivor,) == operation.outputs[0].members
    waits = operation.phase == "SEALING" and len(operation.inputs) == 1 and not asked_again
    if not waits and not (operation.phase == "DECIDED" and survivor in operation.installed):
        raise OperationInProgress(
            f"range {range_.range_id} is in operation {operation.operation_id} "
            f"({operation.kind}, {operation.phase}), which may still end by itself; wait. "
            "`lognode status` shows the operation",
            range=range_.range_id, operation=operation.operation_id,
        )  # fmt: skip


def witnesses(operation: Operation, members: Collection[int]) -> Collection[int]:
    """Return the `members` whose majority says how the generation ended: the survivor alone."""
    return operation.outputs[0].members if operation.kind == KIND else members


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
