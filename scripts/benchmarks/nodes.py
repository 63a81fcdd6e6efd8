"""What a benchmark reads from the nodes it has started: health, counters, memory."""

import asyncio
import urllib.request
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster, LocalNode

from .processor import children, own_seconds, resident


async def healthy(client: lognode.AsyncClient, nodes: int = 3) -> None:
    """Return when the cluster reports that it is healthy. Raises Unavailable after 60 s."""
    reasons: object = "no node answered"
    for _ in range(600):
        answer = await client.health(nodes=nodes)
        if answer["ok"]:
            return
        reasons = answer["reasons"]
        await asyncio.sleep(0.1)
    raise lognode.Unavailable(f"not healthy after 60 s: {reasons}")


def counters(cluster: LocalCluster) -> dict[str, float]:
    """Return the nodes' counters without labels, summed."""
    sums: dict[str, float] = {}
    for node in cluster.nodes:
        with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
            for line in answer.read().decode("ascii").splitlines():
                name, _, value = line.partition(" ")
                if not line.startswith("#") and "{" not in name:
                    sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def resident_bytes(node: LocalNode, *, children: bool = False) -> int:
    """Return the resident memory of a node's process; with `children`, of its builder too."""
    total = resident(_pids(node) if children else [node.pid])
    if not total:
        raise lognode.Unavailable(f"node {node.number} does not run")
    return total


def disk_bytes(node: LocalNode, counter: str) -> int:
    """Return `write_bytes` or `read_bytes` of a node and its builder, from /proc/PID/io."""
    total = 0
    for pid in _pids(node):
        for line in _lines(Path(f"/proc/{pid}/io")):
            name, _, value = line.partition(": ")
            if name == counter:
                total += int(value)
    return total


def open_files(node: LocalNode) -> int:
    """Return the number of descriptors that a node's process holds."""
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def _pids(node: LocalNode) -> list[int]:
    """Return the node's process and its children."""
    return [node.pid, *children(node.pid)]


def _lines(path: Path) -> list[str]:
    """Return the lines of the file, or none for a process that has ended meanwhile."""
    try:
        return path.read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []


def cpu_seconds(node: LocalNode) -> float:
    """Return the processor time that a node's process has used."""
    return own_seconds([node.pid])
