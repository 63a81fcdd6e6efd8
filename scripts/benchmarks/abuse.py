"""`scripts/bench abuse`: the cost of one principal's abuse for another principal's appends.

There is one node. A client appends a record at a time at a steady rate, from 127.0.0.1. A second
program abuses the node from 127.0.0.2, in each of five ways, first without quotas and then with a
quota of its class. With `--tls` the node has TLS, and the abuser begins handshakes without ending
them. Client and abuser are kept off the first core, and the abuser runs at nice 19 on the other
cores: the benchmark measures the node, and not the competition for the processor. The range is not
split meanwhile, since a split would leave the client alone with half of it.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import lognode
from lognode import testing

from .figures import data_directory, environment, quantile

_PROGRAM = Path(__file__).resolve().parents[2] / "tests" / "attacks" / "abuse.py"
_LOG, _KEY = "shared", "k"
_QUOTA = {
    "append_bytes": 1_000_000, "append_records": 2_000, "read_bytes": 2_000_000,
    "requests": 400, "cpu_ms": 150,
}  # fmt: skip
_KINDS = {
    "bulk": ("--connections", "4", "--in-flight", "8"),
    "hot": ("--connections", "8", "--in-flight", "64"),
    "export": ("--connections", "4", "--in-flight", "8"),
    "status": ("--connections", "4", "--in-flight", "8"),
    "churn": ("--connections", "16"),
}
_TLS_KINDS = {"handshakes": ("--connections", "64")}
"""The abuse with `--tls`, where the other ways would need a certificate."""
_MIB = 1 << 20


def main(arguments: Sequence[str]) -> int:
    """Start a node, abuse it, print a line for each way. Return 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="scripts/bench abuse", allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of each phase")
    parser.add_argument("--rate", type=float, default=100.0, help="appends/s of the client")
    parser.add_argument("--tls", action="store_true", help="a node with TLS")
    parser.add_argument("--kinds", help="some of the ways, with commas between them")
    parser.add_argument("--data", type=data_directory, default=Path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    options.kinds = options.kinds or ",".join(_TLS_KINDS if options.tls else _KINDS)
    with (
        tempfile.TemporaryDirectory(dir=options.data) as directory,
        testing.cluster(Path(directory), 1, tls=options.tls) as cluster,
    ):
        print("  ".join(f"{name}={value}" for name, value in environment().items()))
        _pin()
        found = asyncio.run(_run(cluster, options))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(not row["within"] for row in found))


def _pin() -> None:
    """Leave the first core to the node, which may also use the others to build segments."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("one core only: node, client and abuser share it")
        return
    os.sched_setaffinity(0, cores[1:])


async def _run(
    cluster: testing.LocalCluster, options: argparse.Namespace
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    async with lognode.AsyncClient(cluster.servers, timeout=60) as client:
        await client.create_log(_LOG, ranges=1, split_rate=None, split_bytes=None)
        await client.create_log("wide", ranges=100)
        value = bytes(range(256)) * 256
        for _ in range(8):
            await client.log(_LOG).append_many([(_KEY, value)] * 64)
        await _appends(client, options, 2.0)
        alone = await _appends(client, options, options.seconds)
        _show("alone", "", alone, quantile(alone, 0.99), "")
        for quota, factor in ((None, 10.0), (_QUOTA, 3.0)):
            if quota is not None:
                await client.admin.set_quota("default", quota)
            for kind in options.kinds.split(","):
                times, told = await _abused(cluster, client, options, kind)
                p99 = quantile(times, 0.99)
                within = p99 < factor * quantile(alone, 0.99)
                word = "with quota" if quota else "without quota"
                _show(kind, word, times, quantile(alone, 0.99), told)
                found.append({
                    "abuse": kind, "quota": quota is not None, "p99_ms": p99 * 1e3,
                    "alone_p99_ms": quantile(alone, 0.99) * 1e3, "within": within,
                })  # fmt: skip
                await _appends(client, options, 1.0)
            alone = await _appends(client, options, options.seconds)
            _show("alone", "again", alone, quantile(alone, 0.99), "")
    return found


def _show(name: str, word: str, times: list[float], alone: float, told: str) -> None:
    p50, p99 = (quantile(times, at) * 1e3 for at in (0.5, 0.99))
    print(
        f"{name:<7} {word:<14} {len(times):>5} appends, p50 {p50:7.2f} ms, p99 {p99:7.2f} ms, "
        f"{p99 / alone / 1e3:5.1f} x alone, slowest {max(times) * 1e3:.0f} ms  {told}",
        flush=True,
    )


async def _abused(
    cluster: testing.LocalCluster,
    client: lognode.AsyncClient,
    options: argparse.Namespace,
    kind: str,
) -> tuple[list[float], str]:
    abuser = subprocess.Popen(  # noqa: ASYNC220 a moment, before anything is measured
        [sys.executable, str(_PROGRAM), "--address", cluster.nodes[0].address, "--log", _LOG,
         "--key", _KEY, "--source", "127.0.0.2", "--kind", kind, "--seconds",
         str(options.seconds + 2.0), *(_KINDS | _TLS_KINDS)[kind]],
        stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(19),
    )  # fmt: skip
    try:
        await asyncio.sleep(1.5)  # until the abuser has begun
        times = await _appends(client, options, options.seconds)
        told, _ = await asyncio.to_thread(abuser.communicate, None, 60)
    finally:
        abuser.kill()
        abuser.wait()
    return times, told.strip()


async def _appends(
    client: lognode.AsyncClient, options: argparse.Namespace, seconds: float
) -> list[float]:
    """Return the latency of each append, from its due time: appends that wait for others count."""
    log, times = client.log(_LOG), []
    began = time.perf_counter()

    async def one(due: float) -> None:
        await log.append("neighbour", b"x" * 100)
        times.append(time.perf_counter() - due)

    tasks = []
    for at in range(int(seconds * options.rate)):
        due = began + at / options.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return times
