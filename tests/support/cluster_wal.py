"""Clusters whose logs are cut soon: reads are answered from segments, not from WAL or memory."""

import random
from collections.abc import Sequence

import lognode
from lognode import testing

SMALL_WAL = ("--wal-file-bytes", "65536")
"""Flags: above a few files of this size memtables are made segments, and the files go."""
_BATCH = 200
_VALUE = random.Random(1).randbytes(400)
"""Not to be compressed: the records are to fill files."""


def wal_files(node: testing.LocalNode) -> list[str]:
    """The node's WAL files in use, oldest first; spares, which nothing needs, stay as they are."""
    return sorted(path.name for path in (node.data / "wal").glob("wal-*"))


def segments(node: testing.LocalNode) -> int:
    """How many segment files the node has."""
    return sum(1 for _ in (node.data / "files").iterdir())


def fill_until_cut(
    nodes: Sequence[testing.LocalNode], log: lognode.Log, keys: Sequence[bytes]
) -> None:
    """Append to all the keys in turn until every WAL file that holds the first of it is gone.

    On each of the nodes: how many files one keeps depends on where its rounds ended.
    """
    first = [set(wal_files(node)) for node in nodes]
    appended = 0

    def cut() -> bool:
        nonlocal appended
        batch = range(appended, appended + _BATCH)
        log.append_many([(keys[n % len(keys)], b"%d:%s" % (n, _VALUE[n % 200 :])) for n in batch])
        appended += _BATCH
        return not any(old & set(wal_files(node)) for old, node in zip(first, nodes, strict=True))

    testing.eventually(cut, what="the WAL's files deleted behind segments")
    assert all(segments(node) > 0 for node in nodes)
