"""`scripts/bench amplification`: bytes to and from disk over bytes of records (P5).

The nodes' writes come from the counters of their processes, /proc/PID/io of each node and of its
builder: bytes that were handed to the disk, also through mapped files. The device's own counter,
/proc/diskstats, stands beside them; it includes the writes of the rest of the machine. For reads,
the nodes are started again, their files are dropped from the page cache, and one node's replicas
are read whole, by span.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster

from . import harness, nodes, spans
from .load import age, bench

_RECORD_BYTES = 16 + 128
_QUIET_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON."""
    parser = harness.parser("amplification", __doc__)
    parser.add_argument("--records", type=int)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--zipf", type=float, default=0.0)
    options = parser.parse_args(arguments)
    records = options.records or (50_000 if options.quick else 20_000_000)
    keys = options.keys or (1_000 if options.quick else 1_000_000)
    around = harness.environment()
    with harness.cluster(options.data) as cluster:
        before, device = _written(cluster), _device_written(cluster.root)
        report = bench(
            cluster, "append", "amplification", "--ranges", options.ranges, "--keys", keys,
            "--zipf", options.zipf, "--records", records, "--seconds", age(86_400),
        )  # fmt: skip
        _wait_quiet(cluster, 0.5 if options.quick else _QUIET_S)
        after, device = _written(cluster), _device_written(cluster.root) - device
        appended = report["records"] * _RECORD_BYTES
        read, disk = _read_cold(cluster)
        stored = {node.number: _stored(node.data) for node in cluster.nodes}
    rows = [
        {
            "node": number, "appended_bytes": appended,
            "written_bytes": after[number] - before[number],
            "write amplification": round((after[number] - before[number]) / appended, 2),
            "stored_bytes": stored[number], "verified": report["verified"],
        }
        for number in before
    ]  # fmt: skip
    rows.append({"node": "device / 3", "appended_bytes": appended, "written_bytes": device // 3,
                 "write amplification": round(device / 3 / appended, 2),
                 "verified": report["verified"]})  # fmt: skip
    rows.append({"node": "reads of 1", "returned_bytes": read, "read_bytes": disk,
                 "read amplification": round(disk / max(read, 1), 2),
                 "verified": report["verified"]})  # fmt: skip
    harness.show(options, around, rows)
    return 0


def _written(cluster: LocalCluster) -> dict[int, int]:
    return {node.number: nodes.disk_bytes(node, "write_bytes") for node in cluster.nodes}


def _wait_quiet(cluster: LocalCluster, seconds: float) -> None:
    """Return when no node has written for `seconds`: all sealing and merging is done."""
    seen, since = _written(cluster), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(seconds / 10)
        now = _written(cluster)
        if any(now[number] - seen[number] > 1 << 20 for number in now):
            seen, since = now, time.monotonic()


def _device_written(path: Path) -> int:
    """Return the bytes that the path's device was given to write."""
    number = os.stat(path).st_dev
    wanted = [str(os.major(number)), str(os.minor(number))]
    for line in Path("/proc/diskstats").read_text("ascii").splitlines():
        fields = line.split()
        if fields[:2] == wanted:
            return int(fields[9]) * 512
    return 0


def _stored(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def _read_cold(cluster: LocalCluster) -> tuple[int, int]:
    """Return the bytes of records in a read of all of node 1, and the bytes that the node read."""
    for node in cluster.nodes:
        node.stop()
    os.sync()
    for path in cluster.root.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.wait_ready()
    harness.wait_healthy(cluster)
    before = nodes.disk_bytes(cluster.nodes[0], "read_bytes")

    async def read() -> int:
        total = 0
        async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
            for span in await spans.of_log(client, "amplification"):
                async for entries in spans.entries(client.log("amplification"), span, 1):
                    total += sum(len(e.key) + len(e.value or b"") for e in entries)
        return total

    total = asyncio.run(read())
    return total, nodes.disk_bytes(cluster.nodes[0], "read_bytes") - before
