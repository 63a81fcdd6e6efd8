"""What a benchmark asks the nodes it has started: health, counters, memory."""

import asyncio
import urllib.request
from pathlib import Path

import lognode
from lognode.node.dev import LocalCluster, LocalNode


async def healthy(client: lognode.AsyncClient, nodes: int = 3) -> None:
    """Return when the cluster says that it is. Raises Unavailable after 60 s."""
    reasons: object = "no node answered"
    for _ in range(600):
        answer = await client.health(nodes=nodes)
        if answer["ok"]:
            return
        reasons = answer["reasons"]
        await asyncio.sleep(0.1)
    raise lognode.Unavailable(f"not healthy after 60 s: {reasons}")


def counters(cluster: LocalCluster) -> dict[str, float]:
    """The nodes' counters without labels, summed."""
    sums: dict[str, float] = {}
    for node in cluster.nodes:
        with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
            for line in answer.read().decode("ascii").splitlines():
                name, _, value = line.partition(" ")
                if not line.startswith("#") and "{" not in name:
                    sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def resident_bytes(node: LocalNode) -> int:
    """The resident memory of a node's process, without its children."""
    for line in Path(f"/proc/{node.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise lognode.Unavailable(f"node {node.number} does not run")


def cpu_seconds(node: LocalNode) -> float:
    """Processor time that a node's process has used."""
    fields = Path(f"/proc/{node.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
