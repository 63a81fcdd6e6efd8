"""For tests of programs that use lognode: a real cluster on loopback, and ways to wait.

with lognode.testing.cluster(tmp_path, nodes=3) as cluster:
    client = lognode.Client(cluster.servers)
    cluster.nodes[0].kill()
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from .node.dev import LocalCluster, LocalNode, free_ports

__all__ = ["LocalCluster", "LocalNode", "cluster", "eventually", "free_ports"]

T = TypeVar("T")


@contextlib.contextmanager
def cluster(
    root: Path, nodes: int = 3, *, flags: Sequence[str] = (), start: bool = True
) -> Iterator[LocalCluster]:
    """A cluster of real node processes under `root`; all of them end with the block."""
    local = LocalCluster(root, nodes, flags=flags)
    try:
        if start:
            local.start()
        yield local
    finally:
        local.stop()


def eventually(
    condition: Callable[[], T | None], *, timeout_s: float = 30.0, what: str = "the condition"
) -> T:
    """The condition's first true result. Raises AssertionError after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        time.sleep(0.02)
