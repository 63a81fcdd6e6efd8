"""For tests of programs that use lognode: a real cluster on loopback, and ways to wait.

with lognode.testing.cluster(tmp_path, nodes=3) as cluster:
    lognode.testing.wait_healthy(cluster)
    client = lognode.Client(cluster.servers)
    cluster.nodes[0].kill()
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from .client._sync.client import Client
from .client.ports import free_ports, free_row
from .client.protocol.errors import LognodeError
from .node.local.dev import LocalCluster, LocalNode

__all__ = [
    "LocalCluster",
    "LocalNode",
    "cluster",
    "eventually",
    "free_ports",
    "free_row",
    "leader_of",
    "wait_healthy",
]

T = TypeVar("T")


@contextlib.contextmanager
def cluster(
    root: Path,
    nodes: int = 3,
    *,
    flags: Sequence[str] = (),
    start: bool = True,
    tls: bool = False,
    auth: bool = False,
) -> Iterator[LocalCluster]:
    """A cluster of real node processes under `root`; all of them end with the block.

    `flags` go to every node. `tls`: with TLS everywhere. `auth`: with tokens; `cluster.token` may
    do everything. `servers` names the files that a client then needs. The cluster serves at once;
    with several nodes its ranges grow to them in the background: see `wait_healthy`.
    Raises Unavailable when a node does not start.
    """
    local = LocalCluster(root, nodes, flags=flags, tls=tls, auth=auth)
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


def wait_healthy(
    cluster: LocalCluster, nodes: int | None = None, *, timeout_s: float = 60.0
) -> None:
    """Return when the cluster is healthy with `nodes` nodes, by default all that it has.

    Healthy: they are ACTIVE, every range and the controller have a leader and as many members as
    they should, and no operation runs. Raises AssertionError with the reasons.
    """
    wanted = len(cluster.nodes) if nodes is None else nodes
    deadline = time.monotonic() + timeout_s
    reasons = "no node answered"
    with Client(cluster.servers, timeout=timeout_s) as client:
        while time.monotonic() < deadline:
            try:
                health = client.health(nodes=wanted, timeout=1.0)
            except LognodeError as error:
                reasons = str(error)
            else:
                if health["ok"]:
                    return
                reasons = "; ".join(health["reasons"])
            time.sleep(0.05)
    raise AssertionError(
        f"the cluster is not healthy with {wanted} nodes after {timeout_s} s: {reasons}"
    )


def leader_of(client: Client, log: str, *, timeout_s: float = 10.0) -> int:
    """The id of the node that leads the log's first range, once there is one."""

    def find() -> int | None:
        with contextlib.suppress(LognodeError):
            for range_ in client.status(timeout=1.0)["ranges"]:
                if range_["log"] == log and range_["leader"]:
                    return int(range_["leader"])
        return None

    return eventually(find, timeout_s=timeout_s, what=f"a leader of {log}")
