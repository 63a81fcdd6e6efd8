"""`scripts/bench restart`: how long a node takes to serve again (P9).

There are one node and one log. First the WAL is filled with small records, and the node killed: it
reads the log, and applies again what no segment holds. Then the node holds more and more in
segments, of large values. It is started after an orderly stop, after another one with its segments
on the disk only, after a kill, and after another kill, before which nothing new was written. Wall
time is from starting the process to a linearizable read; CPU is that of the process until then.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lognode
from lognode.node.local.dev import LocalCluster, LocalNode

from . import nodes
from .figures import data_directory, environment

_MIB = 1 << 20
_LARGE = 64 << 10
_CALL_BYTES = 4 << 20
"""Bytes of values in one call."""
_RANGES = 8
_READY_S = 600.0
_BUILT_S = 120.0


@dataclass(frozen=True, slots=True)
class Restart:
    """One line of the table."""

    what: str
    wal_mib: int
    segments_mib: int
    ready_s: float
    """The time until the node serves."""
    wall_s: float
    """The time until it has also answered a read that asks every file."""
    cpu_s: float
    goal: str


def main(arguments: Sequence[str]) -> int:
    """Fill, stop and start a node; print the figures, write the JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench restart", allow_abbrev=False)
    parser.add_argument("--wal-mib", type=int, default=1024)
    parser.add_argument("--segments-mib", default="512,5120", help="comma-separated, ascending")
    parser.add_argument(
        "--value-bytes", type=int, default=1024, help="bytes of the records in the WAL"
    )
    parser.add_argument("--quick", action="store_true", help="24 MiB of WAL, 8 and 32 of segments")
    parser.add_argument("--data", type=data_directory, default=Path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    wal_mib = 24 if options.quick else options.wal_mib
    sizes = [8, 32] if options.quick else [int(size) for size in options.segments_mib.split(",")]
    around = environment()
    with tempfile.TemporaryDirectory(dir=options.data) as directory:
        found = [_of_wal(Path(directory) / "wal", wal_mib, options.value_bytes)]
        found += _of_segments(Path(directory) / "segments", sizes)
    print("  ".join(f"{name}={value}" for name, value in around.items()))
    for each in found:
        print(
            f"{each.what:<29}  WAL {each.wal_mib:>5} MiB  segments {each.segments_mib:>5} MiB  "
            f"ready {each.ready_s:>6.2f} s  read {each.wall_s:>6.2f} s  "
            f"CPU {each.cpu_s:>7.2f} s  {each.goal}".rstrip()
        )
    if options.json:
        body = {"environment": around, "results": [asdict(each) for each in found]}
        options.json.write_text(json.dumps(body, indent=2) + "\n")
    return 0


def _of_wal(root: Path, wal_mib: int, value_bytes: int) -> Restart:
    """Measure with this much in the WAL, in as few files as keep it there."""
    flags = ("--wal-file-bytes", str(max(4, wal_mib // 4) * _MIB))
    with LocalCluster(root, 1, flags=flags) as cluster:
        (node,) = cluster.nodes
        count = _fill(cluster, wal_mib * _MIB, value_bytes, _RANGES, _CALL_BYTES)
        node.kill()
        return _start(cluster, node, count, "after a kill", "10 s with 1 GiB of WAL")


def _of_segments(root: Path, sizes: Sequence[int]) -> list[Restart]:
    found = []
    goal = "not more with more segments"
    # With small WAL files, the entries soon go into segments.
    wal_file = max(_MIB, min(16 * _MIB, sizes[0] * _MIB // 16))
    with LocalCluster(root, 1, flags=("--wal-file-bytes", str(wal_file))) as cluster:
        (node,) = cluster.nodes
        count = before = 0
        for size in sizes:
            # A round that is larger than a file gets one of its own size: then the few remaining
            # files would hold more than is waited for, and no flush would bring it into segments.
            call = min(_CALL_BYTES, wal_file - _LARGE)
            count += _fill(cluster, (size - before) * _MIB, _LARGE, 1, call)
            before = size
            _until_built(node, 10 * wal_file)
            node.stop()
            found.append(_start(cluster, node, count, "after an orderly stop", goal))
            node.stop()
            _drop_pages(node.data / "files")
            found.append(_start(cluster, node, count, "after it, files not in memory", goal))
            node.kill()
            found.append(_start(cluster, node, count, "after a kill, files new", ""))
            node.kill()
            found.append(_start(cluster, node, count, "after a kill, nothing new", goal))
    return found


def _fill(cluster: LocalCluster, total: int, value_bytes: int, ranges: int, call_bytes: int) -> int:
    """Append values of this total size that do not compress; return the number of records."""
    rng = random.Random(total)
    step = max(1, call_bytes // value_bytes)
    count = 0
    with lognode.Client(cluster.servers, timeout=300) as client:
        if "restart" not in {log["name"] for log in client.status()["logs"]}:
            client.create_log("restart", ranges=ranges, replicas=1, split_bytes=None)
        log = client.log("restart")
        while total > 0:
            log.append_many([(rng.randbytes(16), rng.randbytes(value_bytes)) for _ in range(step)])
            count += step
            total -= step * value_bytes
    return count


def _until_built(node: LocalNode, left: int) -> None:
    """Wait until no more than `left` is in memory."""
    deadline = time.monotonic() + _BUILT_S
    while sum(each["memtable_bytes"] for each in node.status()["replicas"]) > left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"node {node.number} has still more than {left} bytes in no segment")
        time.sleep(0.2)


def _start(cluster: LocalCluster, node: LocalNode, count: int, what: str, goal: str) -> Restart:
    wal, segments = _size(node.data / "wal", ""), _size(node.data / "files", ".seg")
    began = time.perf_counter()
    node.start()
    node.wait_ready(_READY_S)
    ready = time.perf_counter() - began
    with lognode.Client(cluster.servers, timeout=_READY_S) as client:
        client.log("restart").latest(b"nobody's")
        wall, cpu = time.perf_counter() - began, nodes.cpu_seconds(node)
        held = sum(each["entries"] for each in client.status()["replicas"])
    if held != count:
        raise AssertionError(f"{held} of {count} entries are there {what}")
    return Restart(
        what, wal // _MIB, segments // _MIB, round(ready, 3), round(wall, 3), round(cpu, 3), goal
    )


def _drop_pages(directory: Path) -> None:
    """Have the kernel drop the pages of these files from memory."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _size(directory: Path, suffix: str) -> int:
    if not directory.is_dir():
        return 0
    with os.scandir(directory) as entries:
        return sum(each.stat().st_size for each in entries if each.name.endswith(suffix))
