"""`scripts/bench readback`: check that every node has all entries, by span and by key.

Entries are written in a known order to a known set of keys. Then every node's own replicas are read
whole, by span (`node=ID`). Each entry must be the next one of its key, their number must be that of
the acknowledgements, and the hash over keys, seqs and values must be the same on all nodes. Finally
some keys are read by key from every node, and hashed against the written entries.
"""

import asyncio
import hashlib
import random
import time
from array import array
from collections.abc import Sequence
from typing import Any

import lognode
from lognode.client.bench.shape import Shape

from . import harness, spans
from .load import fill


def main(arguments: Sequence[str]) -> int:
    """Write, read, print. Raises CorruptData at the first difference."""
    parser = harness.parser("readback", __doc__)
    parser.add_argument("--records", type=int)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--by-key", type=int, help="keys that are read by key")
    parser.add_argument("--ranges", type=int, default=4)
    options = parser.parse_args(arguments)
    records = options.records or (20_000 if options.quick else 20_000_000)
    keys = options.keys or (1_000 if options.quick else 1_000_000)
    by_key = min(keys, options.by_key or (100 if options.quick else 10_000))
    around = harness.environment()
    with harness.cluster(options.data) as cluster:
        written = fill(cluster, "readback", keys, ranges=options.ranges, records=records)
        rows = asyncio.run(_read_all(cluster.servers, Shape(keys), written["records"], by_key))
    harness.show(options, around, rows)
    return 0


async def _read_all(servers: str, shape: Shape, records: int, by_key: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async with lognode.AsyncClient(servers, timeout=120) as client:
        log = client.log("readback")
        for node in range(1, harness.NODES + 1):
            row = {"node": node, **await _by_span(client, log, node, shape, records)}
            row |= await _by_key(log, node, shape, records, by_key)
            rows.append(row)
            if row["hash"] != rows[0]["hash"]:
                raise lognode.CorruptData(f"nodes 1 and {node} do not hold the same")
    return rows


async def _by_span(
    client: lognode.AsyncClient, log: lognode.AsyncLog, node: int, shape: Shape, records: int
) -> dict[str, Any]:
    """Read every entry of every range of a node; each must be the next one of its key.

    The hash is the sum of the hashes of all entries: nodes may have the entries in different files.
    """
    began = time.perf_counter()
    seen, seqs = array("Q", bytes(8 * shape.keys)), array("Q", bytes(8 * shape.keys))
    read = whole = 0
    for span in await spans.of_log(client, log.name):
        async for entries in spans.entries(log, span, node):
            for entry in entries:
                key = int(entry.key)
                due = shape.value(entry.key, key + shape.keys * seen[key])
                if entry.value != due or entry.seq <= seqs[key]:
                    raise lognode.CorruptData(f"node {node}: {entry!r:.200} is not what is due")
                seen[key] += 1
                seqs[key] = entry.seq
                said = b"%b%d:%b" % (entry.key, entry.seq, due)
                whole += int.from_bytes(hashlib.blake2b(said, digest_size=16).digest())
            read += len(entries)
    if read != records:
        raise lognode.CorruptData(f"node {node} holds {read} entries of {records}")
    seconds = time.perf_counter() - began
    return {"by_span_verified": read, "seconds": round(seconds, 2),
            "entries_per_second": round(read / seconds),
            "hash": f"{whole % (1 << 64):016x}"}  # fmt: skip


async def _by_key(
    log: lognode.AsyncLog, node: int, shape: Shape, records: int, by_key: int
) -> dict[str, Any]:
    """Read keys at random, and hash each against the written entries."""
    began = time.perf_counter()
    for number in random.Random(node).sample(range(shape.keys), by_key):
        key = shape.key(number)
        found, written = hashlib.sha256(), hashlib.sha256()
        async for entry in log.scan(key, node=node):
            found.update(entry.value or b"")
        for record in range(number, records, shape.keys):
            written.update(shape.value(key, record))
        if found.digest() != written.digest():
            raise lognode.CorruptData(f"node {node}: key {key!r} is not what was written")
    return {"by_key_verified": by_key,
            "keys_per_second": round(by_key / (time.perf_counter() - began))}  # fmt: skip
