"""Measure attacks by hand: a node's memory, and the latency of a client beside the attacker.

    python tests/attacks/measure.py                      every attack below
    python tests/attacks/measure.py unread_scans ...     only these

Each attack gets one fresh node on loopback. Another client appends and reads 50 times a second,
from another address than the attacker. An attack that brings the node over `--rss-max-mib` is
ended.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles

from identity import flags_of

import lognode
from lognode import testing

HERE = Path(__file__).parent
LOG, KEY = "attacked", "k"
PEER, HTTP, CLIENTS = "{peer}", "{http}", "{address}"
"""The address of one of the node's ports."""
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
    "from lognode.node.main import main; sys.exit(main())"
)
ATTACKS: dict[str, list[str]] = {
    "none": [],
    "unread_scans": ["unread_scans"],
    "unread_scans_256": ["unread_scans", "--connections", "256", "--requests", "40"],
    "unread_follow": ["unread_follows"],
    "unread_follows_256": ["unread_follows", "--connections", "256", "--requests", "4"],
    "ping_flood": ["ping_flood"],
    "ping_flood_256": ["ping_flood", "--connections", "256"],
    "unread_status": ["unread_status"],
    "unread_status_256": ["unread_status", "--connections", "256"],
    "small_credits": ["small_credits"],
    "small_credits_256": ["small_credits", "--connections", "256"],
    "close_flood": ["close_flood"],
    "partial_frames_256": ["partial_frames", "--connections", "256"],
    "slow_frames_256": ["slow_frames", "--connections", "256"],
    "idle_clients_1010": ["idle_clients", "--connections", "1010"],
    "silent_clients_1010": ["silent", "--connections", "1010"],
    "silent_peers_1010": ["silent", "--connections", "1010", "--address", PEER],
    "silent_http_1010": ["silent", "--connections", "1010", "--address", HTTP],
    "churn_64": ["churn", "--connections", "64"],
    "hostile_batches_16": ["hostile_batches", "--connections", "16"],
    "hostile_frames_16": ["hostile_frames", "--connections", "16"],
    "equal_hashes_4": ["equal_hashes", "--connections", "4"],
    "backward_numbers_4": ["backward_numbers", "--connections", "4"],
    "fake_hellos_64": [
        "fake_peers",
        "--connections",
        "64",
        "--address",
        PEER,
        "--metadata",
        CLIENTS,
    ],
    "fake_joins_64": ["fake_peers", "--connections", "64", "--kind", "join"],
    **{
        f"flood_of_{kind}_16": ["metadata_flood", "--kind", kind, "--connections", "16"]
        for kind in ("producers", "names", "refused")
    },
    "slow_http_256": ["slow_http", "--connections", "256", "--address", HTTP],
    "unread_http_64": ["unread_http", "--connections", "64", "--address", HTTP],
    "unread_rest_64": ["unread_rest", "--connections", "64", "--address", HTTP],
    **{
        f"left_{kind}_16": ["left_requests", "--kind", kind, "--connections", "16"]
        for kind in ("appends", "scans", "status", "commands")
    },
    "left_http_32": ["left_http", "--connections", "32", "--address", HTTP],
    "foreign_hosts_16": ["foreign_hosts", "--connections", "16", "--address", HTTP],
}
SECURE: dict[str, list[str]] = {
    "half_tls_clients_64": ["half_tls", "--connections", "64"],
    "half_tls_peers_64": ["half_tls", "--connections", "64", "--address", PEER],
    "half_tls_http_64": ["half_tls", "--connections", "64", "--address", HTTP],
    "fake_proofs_64": [
        "fake_peers", "--connections", "64", "--kind", "proof", "--address", PEER,
        "--metadata", CLIENTS,
    ],
}  # fmt: skip
"""Attacks on a cluster with TLS."""
ADMINISTRATION: dict[str, list[str]] = {
    "flood_of_logs_16": ["metadata_flood", "--kind", "logs", "--connections", "16"],
}
"""What only an administrator may do, or everybody where nobody is known."""


def addresses(node: testing.LocalNode) -> dict[str, str]:
    """The addresses that the flags of attacks may name."""
    return {"peer": node.peer, "http": node.http, "address": node.address}


def rss_mib(pid: int) -> float:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def prepare(client: lognode.Client, ranges: int) -> None:
    """A log whose key has 64 MiB, and one with many ranges."""
    if ranges:
        client.create_log("wide", ranges=ranges)
    client.create_log(LOG, ranges=1)
    value = bytes(range(256)) * 256
    for first in range(0, 1024, 64):
        client.log(LOG).append_many([(KEY, value) for _ in range(first, first + 64)])


class Neighbour(threading.Thread):
    """Another client: appends and reads, and notes how long that takes."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.latencies: list[float] = []
        self.errors = 0
        self.began: float | None = None
        """When the round began that has not ended."""
        self.ended = threading.Event()
        self._servers = servers

    def run(self) -> None:
        with lognode.Client(self._servers, timeout=30.0) as client:
            log = client.log(LOG)
            while not self.ended.wait(0.02):
                began = self.began = time.monotonic()
                try:
                    log.append("neighbour", b"x" * 100)
                    log.latest("neighbour")
                except lognode.LognodeError:
                    self.errors += 1
                self.began = None
                self.latencies.append(time.monotonic() - began)


def limited(cluster: testing.LocalCluster, nofile: int) -> testing.LocalCluster:
    """Its nodes may open so many files; 0: as many as this process."""
    for node in cluster.nodes if nofile else ():
        node.program = ("-c", LIMITED.format(nofile))
    return cluster


def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    """One attack on one fresh node."""
    with (
        tempfile.TemporaryDirectory(dir=options.dir) as root,
        limited(
            testing.LocalCluster(Path(root), 1, tls=options.tls, auth=options.tls), options.nofile
        ) as cluster,
    ):
        node = cluster.nodes[0]
        with lognode.Client(cluster.servers) as client:
            prepare(client, options.ranges if "status" in name else 0)
        neighbour = Neighbour(cluster.servers)
        neighbour.start()
        time.sleep(1.0)
        before = rss_mib(node.pid)
        neighbour.latencies.clear()
        attack = None
        if name != "none":
            program, *flags = (ATTACKS | SECURE | ADMINISTRATION)[name]
            attack = subprocess.Popen(
                [sys.executable, str(HERE / f"{program}.py"), "--address", node.address,
                 "--log", LOG, "--key", KEY, "--source", "127.0.0.2",
                 "--seconds", str(options.seconds), *flags_of(cluster, name),
                 *(flag.format(**addresses(node)) for flag in flags)],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        peak, ended = before, ""
        until = time.monotonic() + options.seconds
        while time.monotonic() < until and (attack is None or attack.poll() is None):
            time.sleep(0.05)
            if not node.running:
                ended = "node ended"
                break
            peak = max(peak, rss_mib(node.pid))
            if peak > options.rss_max_mib:
                ended = "stopped"
                break
        took = options.seconds - (until - time.monotonic())
        if attack is not None and ended:
            attack.terminate()
        during, began = [*neighbour.latencies], neighbour.began
        if began is not None:
            during.append(time.monotonic() - began)
        told = "" if attack is None else attack.communicate(timeout=60)[0]
        time.sleep(3.0)
        after = rss_mib(node.pid) if node.running else 0.0
        neighbour.ended.set()
        neighbour.join(40.0)
        p99 = quantiles(during, n=100)[98] if len(during) > 1 else during[0]
        return {
            "attack": name, "rss before": round(before), "peak": round(peak),
            "after": round(after), "seconds": round(took, 1), "rounds": len(during),
            "p50 ms": round(1000 * sorted(during)[len(during) // 2], 1),
            "p99 ms": round(1000 * p99, 1), "max ms": round(1000 * max(during), 1),
            "errors": neighbour.errors, "ended": ended, "told": json.loads(told or "{}"),
        }  # fmt: skip


def main() -> None:
    """Print a line for each attack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS, *SECURE, *ADMINISTRATION])
    parser.add_argument("--tls", action="store_true", help="a node with TLS and tokens")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ranges", type=int, default=300, help="of a log, for unread_status")
    parser.add_argument("--rss-max-mib", type=float, default=4096)
    parser.add_argument("--nofile", type=int, default=0, help="files that the node may open")
    parser.add_argument("--dir", default=None, help="where the nodes keep their data")
    options = parser.parse_args()
    for name in options.attacks or (ATTACKS | SECURE if options.tls else ATTACKS):
        print(json.dumps(measure(name, options)), flush=True)


if __name__ == "__main__":
    main()
