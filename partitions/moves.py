"""A move that an operator requests: the members afterwards, or why the move is impossible."""

from collections.abc import Mapping

from ..client.protocol.errors import Conflict, InvalidArgument, NodeNotFound
from .locks import check_free
from .model import CONTROLLER_RANGE, Descriptor, NodeRecord

_ADVICE = {
    "JOINING": "wait until the node is ACTIVE",
    "DRAINING": "the node is being drained",
    "DEAD": "start the node",
    "REMOVED": "the node never returns",
}


def members_after(
    range_: Descriptor, nodes: Mapping[int, NodeRecord], from_node: int, to_node: int
) -> tuple[int, ...]:
    """Return the range's members, in order, once `to_node` has taken the place of `from_node`.

    Raises InvalidArgument for the controller or when both are one node, OperationInProgress,
    NodeNotFound for an unknown node or a `from_node` without a replica, Conflict when `to_node`
    already has a replica or is not ACTIVE.
    """
    if range_.range_id == CONTROLLER_RANGE:
        raise InvalidArgument(
            "range 0 is the controller, which chooses its members itself; `lognode range "
            "transfer` moves its lead", what="range",
        )  # fmt: skip
    if from_node == to_node:
        raise InvalidArgument(
            f"node {from_node} is given as source and target; give two different nodes", what="to"
        )
    check_free(range_)
    _check_from(range_, from_node)
    _check_to(range_, nodes, to_node)
    return tuple(sorted({*range_.members, to_node} - {from_node}))


def _check_from(range_: Descriptor, node: int) -> None:
    if node not in range_.members:
        raise NodeNotFound(
            f"node {node} has no replica of range {range_.range_id}; the members of the "
            f"range are {', '.join(map(str, range_.members))}", node=node,
        )  # fmt: skip


def _check_to(range_: Descriptor, nodes: Mapping[int, NodeRecord], node: int) -> None:
    active = {each.node_id for each in nodes.values() if each.state == "ACTIVE"}
    able = " or ".join(map(str, sorted(active - set(range_.members))))
    choose = f"choose node {able}" if able else "no other node could take the replica"
    if node not in nodes:
        raise NodeNotFound(f"node {node} does not exist; {choose}", node=node)
    if node in range_.members:
        raise Conflict(
            f"node {node} has a replica of range {range_.range_id} already; {choose}", node=node
        )
    state = nodes[node].state
    if state != "ACTIVE":
        raise Conflict(
            f"node {node} is {state} and takes no replica: {_ADVICE[state]}, or {choose}",
            node=node,
        )
