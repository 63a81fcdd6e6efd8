"""`scripts/bench ranges`: what clients notice while ranges change and leaders die (P6, P7).

There are four nodes; producers and followers run in processes of their own. While they work, there
are splits, merges, transfers of the lead, moves of followers and of leaders (part `operations`);
the leader is killed with SIGKILL (`kills`); and ranges of several sizes, filled some time before,
are split in their middle beside a light load (`sizes`). A pause of a producer lasts from the due
time of an append to its acknowledgement, a pause of a follower to the delivery. The longest pause
of each operation counts. At the end every record is read back.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lognode
from lognode.client.bench.shape import Shape
from lognode.client.protocol import limits
from lognode.node.local.dev import LocalCluster

from . import harness, nodes, pauses
from .load import fill
from .ranges_changes import NODES, Changes
from .ranges_clients import Clients, read_back
from .ranges_load import RangesLoad

PARTS = ("operations", "kills", "sizes")
_LOG = "ranges"
_FLAGS = ("--balance", "off")
"""No replica moves except in the measured operations."""
_PAUSE, _DEATH = "p99 of pauses < 250 ms", "p99 of pauses < 3 s"
TARGETS = {
    "split": _PAUSE, "merge": _PAUSE, "transfer": _PAUSE, "move of a follower": _PAUSE,
    "move of the leader": _PAUSE, "kill -9 of a leader": _DEATH,
}  # fmt: skip
_FILL_VALUE_BYTES = 1_024
_FILL_KEYS_MIN = 1_000
_FILL_CHECKED = 100
_LIGHT = RangesLoad(producers=10, followers=100, keys=100, rate=200.0, batch=1)
_QUICK = {
    "rate": 200.0, "producers": 4, "followers": 10, "batch": 5, "keys": 100, "splits": 2,
    "merges": 1, "transfers": 1, "moves": 1, "kills": 1, "sizes": "2,4", "rounds": 1, "rest": 0.0,
}  # fmt: skip
_SIZE_MIN_MB = 2.0
_QUIET_S, _QUIET_MAX_S = 3.0, 300.0
_LOOKED_S = 10.0
"""The time in which nodes surely see that a memtable has rested long enough."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print the table, write the JSON.

    Raises CorruptData when a record is lost or wrong.
    """
    parser = _parser()
    if "--quick" in arguments:
        parser.set_defaults(**_QUICK)
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    if "operations" in parts and options.merges > options.splits + options.ranges - 1:
        parser.error(f"{options.merges} merges after {options.splits} splits; give fewer")
    sizes = [float(size) for size in options.sizes.split(",")]
    if min(sizes) < _SIZE_MIN_MB:
        parser.error(f"a range of {min(sizes):g} MB; {_SIZE_MIN_MB:g} or more")
    load = RangesLoad(
        options.producers, options.followers, options.rate, options.batch, options.keys,
        options.value_bytes,
    )  # fmt: skip
    around = {**harness.environment(), "nodes": NODES, "rate": load.rate,
              "producers": load.producers, "followers": load.followers}  # fmt: skip
    rows: list[dict[str, Any]] = []
    if {"operations", "kills"} & {*parts}:
        with harness.cluster(options.data, _FLAGS, count=NODES) as cluster:
            rows += asyncio.run(_under_load(cluster, load, options, parts))
    for size in sizes if "sizes" in parts else ():
        with harness.cluster(options.data, _FLAGS, count=NODES) as cluster:
            rows.append(_split_of(cluster, size, options.rounds, options.rest))
            first = next(row for row in rows if row["operation"] == f"split of {sizes[0]:g} MB")
            ratio = rows[-1]["took p50 ms"] / first["took p50 ms"]
            rows[-1] |= {"took p50 / first": round(ratio, 2), "target": "1.5 of the first"}
    harness.show(options, around, rows)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser("ranges", __doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--rate", type=float, default=20_000.0, help="records a second")
    parser.add_argument("--producers", type=int, default=100)
    parser.add_argument(
        "--followers", type=int, default=1_000, help="number of followers of a key each"
    )
    parser.add_argument("--batch", type=int, default=50, help="records of a call")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--value-bytes", type=int, default=128)
    parser.add_argument("--ranges", type=int, default=1, help="at first")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--merges", type=int, default=10, help="fewer than splits")
    parser.add_argument("--transfers", type=int, default=20)
    parser.add_argument(
        "--moves", type=int, default=10, help="number of kills of followers, and of leaders"
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--sizes", default="10,1000", help="MB of a range, comma-separated")
    parser.add_argument("--rounds", type=int, default=3, help="ranges of each size")
    parser.add_argument(
        "--rest", type=float, default=limits.memtable_cold_s + _LOOKED_S,
        help="seconds after the ranges were filled, and before they are split",
    )  # fmt: skip
    return parser


async def _under_load(
    cluster: LocalCluster, load: RangesLoad, options: argparse.Namespace, parts: Sequence[str]
) -> list[dict[str, Any]]:
    stamps = load.stamps()
    keys = [stamps.key(number) for number in range(load.keys)]
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        begins = [keys[load.keys * n // options.ranges] for n in range(1, options.ranges)]
        log = await client.create_log(_LOG, split_at=begins, split_rate=None)
        await nodes.healthy(client, NODES)
        async with Clients(cluster.servers, _LOG, load) as clients:
            changes = Changes(cluster, client, _LOG, clients)
            if "operations" in parts:
                for _ in range(options.splits):
                    await changes.nothing()
                for _ in range(options.splits):
                    await changes.split(keys)
                for _ in range(options.merges):
                    await changes.merge(keys)
                for _ in range(options.transfers):
                    await changes.transfer()
                for leader in (False, True):
                    for _ in range(options.moves):
                        await changes.move(leader=leader)
            if "kills" in parts:
                for _ in range(options.kills):
                    await changes.kill()
            return await _figures(log, load, changes, clients)


async def _figures(
    log: lognode.AsyncLog, load: RangesLoad, changes: Changes, clients: Clients
) -> list[dict[str, Any]]:
    """End the load, read everything back; return a row for each kind of operation."""
    produced, followed = await clients.end()
    verified = await read_back(log, load, produced["counts"])
    seen = {"producer": produced, "follower": followed}
    rows = pauses.rows(changes.done, seen, TARGETS)
    both = {"verified": verified, "delivered": followed["delivered"]}
    return [{**row, **both} for row in rows]


def _split_of(cluster: LocalCluster, size_mb: float, rounds: int, rest_s: float) -> dict[str, Any]:
    """Fill as many ranges of this size as rounds, then split one after the other."""
    records = int(size_mb * 1e6 * rounds / (_FILL_VALUE_BYTES + 16))
    keys = max(_FILL_KEYS_MIN, records // 10)
    fill(cluster, _LOG, keys, value_bytes=_FILL_VALUE_BYTES, ranges=rounds, records=records)
    time.sleep(rest_s)
    _wait_quiet(cluster)
    return asyncio.run(_split_in_the_middle(cluster, size_mb, rounds, keys, records))


async def _split_in_the_middle(
    cluster: LocalCluster, size_mb: float, rounds: int, keys: int, records: int
) -> dict[str, Any]:
    shape = Shape(keys, value_bytes=_FILL_VALUE_BYTES)
    load = replace(_LIGHT, step=keys // 10 // _LIGHT.keys)
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        log = client.log(_LOG)
        async with Clients(cluster.servers, _LOG, load) as clients:
            changes = Changes(cluster, client, _LOG, clients)
            for n in range(rounds):
                middle = (keys * n // rounds + keys * (n + 1) // rounds) // 2
                await changes.split_at(f"split of {size_mb:g} MB", shape.key(middle))
            (row,) = await _figures(log, load, changes, clients)
        for number in range(0, keys, max(1, keys // _FILL_CHECKED)):
            row["verified"] += await _filled(log, shape, number, records)
    return row


async def _filled(log: lognode.AsyncLog, shape: Shape, number: int, records: int) -> int:
    """Return how many records each key of the fill has, by reading all of them.

    Raises CorruptData.
    """
    key = shape.key(number)
    found = [entry.value async for entry in log.scan(key)]
    if found != [shape.value(key, record) for record in range(number, records, shape.keys)]:
        raise lognode.CorruptData(f"key {key!r} is not what was written")
    return len(found)


def _wait_quiet(cluster: LocalCluster) -> None:
    """Return when no segment has been built or merged for a while. Raises Unavailable."""
    deadline = time.monotonic() + _QUIET_MAX_S
    held, since = -1.0, time.monotonic()
    while time.monotonic() < deadline:
        now = nodes.counters(cluster)["lognode_segment_bytes"]
        if now != held:
            held, since = now, time.monotonic()
        elif time.monotonic() - since > _QUIET_S:
            return
        time.sleep(0.2)
    raise lognode.Unavailable(f"segments are still built after {_QUIET_MAX_S:g} s")
