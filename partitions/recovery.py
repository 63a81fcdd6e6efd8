"""Unsafe recovery: a range that lost most of its members for good goes on from one of the others.

Never by itself: an operator names the member, and accepts that acknowledged entries may be lost
(promise S2 holds while most of the members' disks survive). It is an operation like the others, of
which the first step is another one: no majority can seal the generation, so that the survivor
leaves the others and ends it alone.

It takes all of its log for committed, to the last entry. Which of the last ones were acknowledged
it cannot know: an entry that was is among them when the survivor was in the majority that stored
it. To drop one would lose it for certain, to keep one that was not acknowledged turns an outcome
that its client was told to be unknown into `applied`, which S11 allows. So do etcd
(`--force-new-cluster` commits what the one member has in its log), CockroachDB
(`debug recover`, which picks the replica with the highest applied index) and TiKV
(`unsafe recover`, by the last index).

    SEALING     from the start: there is nothing to copy ahead. The survivor goes on alone in the
                generation, serving nothing, commits its log, seals it, and brings all of it into
                files; the other members take no part
    DECIDED     by the survivor's word: it is the only member of the next generation
    DONE        as ever; then the range grows back by `expand`

Until it is DECIDED it may be asked for again, with another member: who went on alone served nobody.

Entries that are lost had seqs, which readers may have seen, or keep as their positions. The next
generation leaves out `SEQS_LEFT_OUT` of them: no seq that was given is given again (S6), and a
follower whose position is after the end goes on with what comes next, without an error or a gap.
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
"""Of the operation."""
SEQS_LEFT_OUT = 1 << 40
"""More than a range can have given to entries that are lost: three years of ten thousand a second.
8,000 recoveries of one range stay below the 2^53 that JSON can tell apart."""
_ABLE = ("ACTIVE", "DRAINING")
"""States of nodes that are there."""


def check(
    range_: Descriptor,
    nodes: Mapping[int, NodeRecord],
    operation: Operation | None,
    damaged: Collection[int],
    survivor: int,
) -> None:
    """Whether the range may go on from `survivor` alone: `damaged` are the nodes whose replica of
    this generation takes no part any more, `operation` is what holds the range.

    Raises InvalidArgument for the controller, NodeNotFound for a node that is no member, Conflict
    when it is not there, damaged, or not needed: most members are there; OperationInProgress
    when what holds the range ends by itself.
    """
    if range_.range_id == CONTROLLER_RANGE:
        raise InvalidArgument(
            "range 0 is the controller's: without most of its members nothing can be decided, "
            "this neither; start them", what="range",
        )  # fmt: skip
    if survivor not in range_.members:
        raise NodeNotFound(
            f"node {survivor} has no replica of range {range_.range_id} to go on from; its members "
            f"are {_listed(range_.members)}", node=survivor,
        )  # fmt: skip
    left = [member for member in able(range_, nodes) if member not in damaged]
    if operation is None or operation.kind != KIND:
        _check_lost(range_, left)
    if survivor in damaged:
        raise Conflict(
            f"the replica of node {survivor} is damaged: nothing goes on from it; `lognode status` "
            "says what is wrong",
            node=survivor,
        )
    if survivor not in left:
        raise Conflict(
            f"node {survivor} is {nodes[survivor].state}: start it, or go on from one that is "
            f"there ({_listed(left) or 'none is'})",
            node=survivor,
        )
    if operation is not None:
        _check_gives_way(range_, operation, survivor)


def able(range_: Descriptor, nodes: Mapping[int, NodeRecord]) -> list[int]:
    """The members that are there, by what the controller knows."""
    return [member for member in range_.members if nodes[member].state in _ABLE]


def _check_lost(range_: Descriptor, left: Collection[int]) -> None:
    if 2 * len(left) > len(range_.members):
        raise Conflict(
            f"range {range_.range_id} has not lost its majority: of its members "
            f"{_listed(range_.members)} nodes {_listed(left)} are there, and it goes on by itself; "
            "a node counts as gone once it is DEAD, 10 s after it was last heard"
        )


def _check_gives_way(range_: Descriptor, operation: Operation, survivor: int) -> None:
    """A PLANNED operation ends by itself, forwards or given up. One that is SEALING waits for the
    majority that is gone; one that is DECIDED for those who have not installed, and the survivor
    has all that its inputs had only once it has."""
    asked_again = operation.kind == KIND and (survivor,) == operation.outputs[0].members
    waits = operation.phase == "SEALING" and len(operation.inputs) == 1 and not asked_again
    if not waits and not (operation.phase == "DECIDED" and survivor in operation.installed):
        raise OperationInProgress(
            f"range {range_.range_id} is in operation {operation.operation_id} "
            f"({operation.kind}, {operation.phase}), which may still end by itself; wait, "
            "`lognode status` shows it",
            range=range_.range_id, operation=operation.operation_id,
        )  # fmt: skip


def witnesses(operation: Operation, members: Collection[int]) -> Collection[int]:
    """Whose majority says how the generation ended, of these `members`: the survivor alone."""
    return operation.outputs[0].members if operation.kind == KIND else members


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))
