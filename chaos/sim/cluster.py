"""The cluster that a run begins with: its metadata, made by the commands that make any."""

from dataclasses import replace
from typing import Any

from ...client.protocol.invariants import invariant
from ...partitions import commands
from ...partitions.metadata import Metadata
from .options import REPLICAS, Options

CONTROLLER_MEMBERS = 3


def founded(options: Options) -> Metadata:
    """Nodes 1 to n, all ACTIVE, and one log with a range for each group of the run.

    The keys of group i begin with `i/`. Where generations change, a group has three members and
    the nodes beyond are spare; where they do not, all nodes are members. A cluster that is to
    grow begins as node 1 alone would have left it, with the others just registered.
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
