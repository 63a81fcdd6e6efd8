"""Ranges of a cluster of real processes: what is asked of them, and where they are."""

import os
import subprocess
import sys
from typing import Any

import lognode
from lognode import testing


def range_verb(
    cluster: testing.LocalCluster, verb: str, *words: str
) -> "subprocess.CompletedProcess[str]":
    """`lognode range VERB`, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", verb, *words,
         "--server", cluster.servers],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip


def ranges_of(client: lognode.Client, log: str) -> list[dict[str, Any]]:
    """The log's ranges in the order of keys."""
    found: list[dict[str, Any]] = client.log(log).describe()["ranges"]
    return found


def files(cluster: testing.LocalCluster) -> list[set[str]]:
    """The names of the segment files of each node."""
    return [{file.name for file in (node.data / "files").iterdir()} for node in cluster.nodes]


def replicas_on(node: testing.LocalNode) -> set[tuple[int, int]]:
    """Range and generation of all that the node has."""
    with lognode.Client(node.address) as client:
        return {(each["range"], each["generation"]) for each in client.status()["replicas"]}
