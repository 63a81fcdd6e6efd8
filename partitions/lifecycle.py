"""How an operator removes a node from the cluster: the node is drained, then removed.

    JOINING -> ACTIVE <-> DEAD            by heartbeats
               ACTIVE <-> DRAINING        by an operator, and back
                          DRAINING -> REMOVED    once nothing is left on it
                          DEAD -> REMOVED        by an operator who knows that it never returns

A removal never takes data that a range would lose for good, and a drain that could not end never
begins.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ..client.protocol import limits
from ..client.protocol.errors import Conflict, InvalidArgument, NodeNotFound, Unauthorized
from .model import Descriptor, NodeRecord, Operation
from .placement import load_of

Nodes = Mapping[int, NodeRecord]
_KEY = re.compile(r"[0-9a-f]{64}")


def replicas(
    controller: Descriptor, ranges: Mapping[int, Descriptor], operations: Iterable[Operation]
) -> "Counter[int]":
    """Count, per node, the replicas that it has or is to get by an operation under way.

    The controller's replicas count too.
    """
    found = load_of(ranges, operations)
    found.update(controller.members)
    return found


def known(nodes: Nodes, number: int) -> NodeRecord:
    """Return the node's record. Raises NodeNotFound."""
    node = nodes.get(number)
    if node is None:
        raise NodeNotFound(
            f"node {number} does not exist; `lognode node list` shows all nodes", node=number
        )
    return node


def check_key(key: str) -> str:
    """Return a key's fingerprint. Raises InvalidArgument for anything else."""
    if not _KEY.fullmatch(key):
        raise InvalidArgument(
            f"key {key[:80]!r} is not the SHA-256 of a public key in 64 hexadecimal digits; "
            "`lognode ca node` prints the digits as key_fingerprint", what="key",
        )  # fmt: skip
    return key


def key_of(node: NodeRecord | None, key: str) -> str:
    """Return the key of a node that registers with `key`, which is empty without TLS.

    It is the key of the node's first registration with one. Raises Unauthorized for another key.
    """
    if node is None or not node.key or not key:
        return key or ("" if node is None else node.key)
    if key != node.key:
        raise Unauthorized(
            f"node {node.node_id} is registered with another TLS key; start the node with "
            f"that key, or bind the node to the new key: `lognode node rekey {node.node_id} "
            f"--key {key}`"
        )
    return key


def check_drain(node: NodeRecord, nodes: Nodes, groups: Iterable[tuple[str, Descriptor]]) -> None:
    """Raise Conflict when an ACTIVE node cannot be drained to the end, as far as is known now.

    `groups` are the controller and all ranges, by their names. Each replica that has to leave this
    or another draining node needs an ACTIVE node without a replica of that range.
    """
    number = node.node_id
    others = {each.node_id for each in nodes.values() if each.state == "ACTIVE"} - {number}
    if not others:
        raise Conflict(
            f"node {number} is the last ACTIVE node: no other node can take its replicas. Add a "
            "node first"
        )
    for name, range_ in groups:
        if number in range_.members:
            leave = [m for m in range_.members if m == number or nodes[m].state == "DRAINING"]
            free = others.difference(range_.members)
            if len(free) < len(leave):
                raise Conflict(
                    f"node {number} cannot be drained: {name} has the members "
                    f"{_listed(range_.members)}, {len(leave)} of them would have to leave, "
                    f"and {len(free)} other nodes are ACTIVE; add a node first"
                )


def check_drainable(node: NodeRecord) -> None:
    """Raise Conflict for a node whose state allows no drain."""
    advice = {
        "JOINING": "wait until the node is ACTIVE",
        "DEAD": (
            f"start the node, or run `lognode node remove {node.node_id} --dead` if the node "
            "never returns"
        ),
        "REMOVED": "a removed node never returns",
    }.get(node.state)
    if advice is not None:
        raise Conflict(f"node {node.node_id} is {node.state} and cannot be drained: {advice}")


def check_remove(
    node: NodeRecord,
    nodes: Nodes,
    groups: Iterable[tuple[str, Descriptor]],
    left: int,
    *,
    dead: bool,
) -> None:
    """Raise Conflict when the node, which has `left` replicas, may not be removed.

    With `dead`, a DEAD node may be removed if most members of each of its ranges are left. Without
    a majority a range could never go on.
    """
    number, state = node.node_id, node.state
    if not any(each.state == "ACTIVE" for each in nodes.values() if each.node_id != number):
        raise Conflict(f"no other node is ACTIVE, and node {number} must stay; add a node first")
    if state == "DRAINING":
        if left:
            raise Conflict(
                f"node {number} still has {left} replicas; wait until the node has none: "
                "`lognode node list` shows the count. If the node never returns, end the "
                f"drain with `lognode node drain {number} --undo` and remove the node with "
                "--dead"
            )
    elif state != "DEAD":
        only = " (--dead is only for DEAD nodes)" if dead else ""
        raise Conflict(f"node {number} is {state}: `lognode node drain {number}` first{only}")
    elif not dead:
        raise Conflict(
            f"node {number} is DEAD: start and drain the node, or remove the node with "
            "--dead if it never returns"
        )
    else:
        _check_not_needed(number, nodes, groups)


def _check_not_needed(number: int, nodes: Nodes, groups: Iterable[tuple[str, Descriptor]]) -> None:
    for name, range_ in groups:
        if number not in range_.members:
            continue
        left = [m for m in range_.members if m != number and nodes[m].state != "REMOVED"]
        if not left:
            raise Conflict(
                f"node {number} has the last copy of {name}: start the node, or delete the log"
            )
        if 2 * len(left) <= len(range_.members):
            raise Conflict(
                f"{name} needs node {number}: of its members {_listed(range_.members)} only "
                f"{_listed(left)} would be left, which is not a majority; start node {number}"
            )


def _listed(nodes: Collection[int]) -> str:
    return ", ".join(map(str, nodes))


def follows(known: NodeRecord, boot: int, process: int) -> bool:
    """Whether this is a later boot, or the same boot asking again, and not the boot of a copy."""
    return boot > known.boot or (boot == known.boot and process == known.process)


def check_boot(known: NodeRecord, boot: int) -> None:
    """Raise InvalidArgument for a boot number that no directory can reach by starting.

    If such a number were accepted, it would shut the true node out for ever.
    """
    if boot - known.boot > limits.boot_jump_max:
        raise InvalidArgument(
            f"node {known.node_id} is registered in boot {known.boot}, and registers again in "
            f"boot {boot}, more than {limits.boot_jump_max} starts later. Its data directory is "
            "damaged, or another program uses the id of the node. Give the node an empty "
            "directory and --join", what="boot",
        )  # fmt: skip


def is_removed(number: int, nodes: Nodes) -> bool:
    """Whether an operator has removed the node from the cluster."""
    node = nodes.get(number)
    return node is not None and node.state == "REMOVED"
