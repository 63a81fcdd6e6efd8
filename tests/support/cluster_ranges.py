"""Ranges of a cluster of real processes: what is asked of them, and where they are."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lognode
from lognode import testing
from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData
from lognode.statemachine.block_cache import BlockCache
from lognode.statemachine.segment_reader import Segment


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


def files(cluster: testing.LocalCluster, *prefixes: bytes) -> list[set[str]]:
    """The names of each node's segment files that hold a key with one of the prefixes.

    Files with other keys come and go: nodes merge the small segments of other logs at any time.
    """
    return [
        {file.name for file in (node.data / "files").glob("*.seg") if _holds(file, prefixes)}
        for node in cluster.nodes
    ]


def _holds(file: Path, prefixes: tuple[bytes, ...]) -> bool:
    try:
        segment = Segment(file, file.stem, BlockCache(limits.MIB))
    except CorruptData:
        if file.exists():
            raise
        return False
    with contextlib.closing(segment):
        return any(any(segment.keys_after(prefix, None)) for prefix in prefixes)


def replicas_on(node: testing.LocalNode) -> set[tuple[int, int]]:
    """Range and generation of all that the node has."""
    with lognode.Client(node.address) as client:
        return {(each["range"], each["generation"]) for each in client.status()["replicas"]}
