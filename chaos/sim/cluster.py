"""The cluster at the start of a run: its metadata, made by ordinary commands."""

from dataclasses import replace
from typing import Any

from ...client.protocol.invariants import invariant
from ...client.protocol.levels import LEVEL_MAX
from ...partitions import commands, levels
from ...partitions.metadata import Metadata
from .options import REPLICAS, Options

CONTROLLER_MEMBERS = 3


def founded(options: Options) -> Metadata:
    """Return metadata with nodes 1 to n, all ACTIVE, and one log with a range for each group.

    The keys of group i begin with `i/`. In runs that change generations, a group has three members
    and the other nodes are spare; otherwise all nodes are members. A cluster that is to grow begins
    in the state that node 1 alone would leave, with the other nodes just registered.
    """
    metadata = Metadata()
    nodes = range(1, options.nodes + 1)
    _apply(metadata, {"op": commands.FOUND, "cluster": "simulated", "node": 1})
    for node in nodes:
        if node == 2 and options.grows:
            _create_log(metadata, options)
        _apply(metadata, {"op": commands.REGISTER, "node": node, "incarnation": node, "boot": 1})
        metadata.next_ids["node"] = node + 1
    if not options.grows:
        _create_log(metadata, options)
        members = tuple(nodes)[:CONTROLLER_MEMBERS]
        metadata.controller = replace(metadata.controller, members=members)
    if options.consumers and options.changes:
        nodes_at = [[n.node_id, n.boot, n.process] for n in levels.present(metadata)]
        _apply(metadata, {"op": commands.FINALIZE, "level": LEVEL_MAX, "nodes": nodes_at})
    return metadata


def _create_log(metadata: Metadata, options: Options) -> None:
    command = {
        "op": commands.CREATE_LOG,
        "name": "log",
        "replicas": REPLICAS if options.changes else options.nodes,
        "split_at": [b"%d/" % group for group in range(1, options.groups)],
    }
    _apply(metadata, command)


def _apply(metadata: Metadata, command: dict[str, Any]) -> None:
    answer = metadata.apply(0, 0, command)
    invariant("ok" in answer, "the first metadata", command=command, answer=answer)
