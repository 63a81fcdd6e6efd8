"""Attacks by connections on a local cluster, with the figures of another client beside them.

    .venv/bin/python scripts/attacks/connections.py ATTACK [--nofile N] [--count N] [--seconds S]

`idle`     clients that shake hands and then say nothing, on the port for clients
`silent`   connections that never say anything, on the port for clients
`http`     connections that never say anything, on the HTTP port
`peers`    idle clients at all three nodes; then one node is started again and has to be linked
`slow`     clients that send one large frame, a byte a second
`churn`    clients that shake hands and leave, as fast as they can

Another client appends 64 KiB values all the while, so that the write-ahead log begins new files
and segments are built. The report has the latency of these appends alone and beside the attack.
Every socket goes to the loopback, and all of them are closed at the end.
"""

import argparse
import contextlib
import json
import random
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import lognode
from lognode import testing
from lognode.client import wire
from lognode.client.frame import HEADER, encode
from lognode.client.wire import Hello

LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
    "from lognode.node.main import main; sys.exit(main())"
)
FLAGS = ("--wal-file-bytes", str(1 << 20), "--disk-reserve-bytes", "0")
VALUE = random.Random(1).randbytes(64 << 10)


class Appender:
    """Another client: it appends until it is told to stop, and notes how long each append took."""

    def __init__(self, servers: str) -> None:
        self.took_s: list[float] = []
        self.failed: list[str] = []
        self._client = lognode.Client(servers, timeout=10)
        self._log = self._client.create_log("victim", exist_ok=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            began = time.monotonic()
            try:
                self._log.append(b"key-%d" % (number % 100), VALUE)
            except lognode.LognodeError as error:
                self.failed.append(f"{error.code}: {error.message}")
            self.took_s.append(time.monotonic() - began)

    def figures(self) -> dict[str, Any]:
        """Of the appends since the last call."""
        took, self.took_s = self.took_s, []
        failed, self.failed = self.failed, []
        times = sorted(took)
        return {
            "appends": len(took),
            "failed": len(failed),
            "failure": failed[-1] if failed else None,
            "p50_ms": round(1000 * statistics.median(times), 1) if times else None,
            "p99_ms": round(1000 * times[int(len(times) * 0.99)], 1) if times else None,
            "max_ms": round(1000 * times[-1], 1) if times else None,
        }

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()
        self._client.close()


def connected(address: str) -> socket.socket | None:
    """A connection, or None when the node takes no more."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError):
        return socket.create_connection((host, int(port)), timeout=0.5)
    return None


def greeted(address: str) -> socket.socket | None:
    """A client's connection after its handshake, or None."""
    opened = connected(address)
    if opened is None:
        return None
    hello = Hello(role="client", nonce=random.randbytes(wire.nonce_bytes))
    try:
        opened.sendall(encode(0, wire.HELLO, hello.to_body()))
        if b"welcome" in opened.recv(65_536):
            return opened
    except OSError:
        pass
    opened.close()
    return None


class Attack:
    """`held` are the connections that the attacker has."""

    def __init__(self, cluster: testing.LocalCluster, count: int, seconds: float) -> None:
        self.cluster = cluster
        self.count = count
        self.seconds = seconds
        self.held: list[socket.socket] = []
        self.refused = 0

    def take(self, opened: socket.socket | None) -> None:
        """Keep a connection, or count that there was none."""
        if opened is None:
            self.refused += 1
        else:
            self.held.append(opened)

    def idle(self) -> None:
        for _ in range(self.count):
            self.take(greeted(self.cluster.nodes[0].address))
        self.wait()

    def silent(self) -> None:
        for _ in range(self.count):
            self.take(connected(self.cluster.nodes[0].address))
        self.wait()

    def http(self) -> None:
        for _ in range(self.count):
            self.take(connected(self.cluster.nodes[0].http))
        self.wait()

    def peers(self) -> None:
        last = self.cluster.nodes[-1]
        last.stop()
        for node in self.cluster.nodes[:-1]:
            for _ in range(self.count):
                self.take(greeted(node.address))
        last.start()
        began = time.monotonic()
        linked = "no"
        with contextlib.suppress(Exception):
            last.wait_ready(self.seconds)
            linked = f"{time.monotonic() - began:.1f} s"
        print(json.dumps({"node 3 was ready again after": linked}))

    def slow(self) -> None:
        for _ in range(self.count):
            opened = greeted(self.cluster.nodes[0].address)
            if opened is not None:
                opened.sendall(HEADER.pack(9 << 20, 0))
            self.take(opened)
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            for opened in list(self.held):
                try:
                    opened.sendall(b"x")
                except OSError:
                    self.held.remove(opened)
                    self.refused += 1
            time.sleep(1.0)

    def churn(self) -> None:
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            opened = greeted(self.cluster.nodes[0].address)
            self.count += 1
            if opened is not None:
                opened.close()

    def wait(self) -> None:
        """Let the other client go on beside the attack."""
        time.sleep(self.seconds)

    def end(self) -> None:
        """Close all connections."""
        for opened in self.held:
            opened.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attack", choices=("idle", "silent", "http", "peers", "slow", "churn"))
    parser.add_argument("--nofile", type=int, default=1024, help="descriptors of each node")
    parser.add_argument("--count", type=int, default=1010, help="connections (of each node)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long they are held")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    nodes = 3 if options.attack == "peers" else 1
    with tempfile.TemporaryDirectory(prefix="lognode-attack-") as directory:
        cluster = testing.LocalCluster(Path(directory), nodes, flags=FLAGS)
        for node in cluster.nodes:
            node.program = ("-c", LIMITED.format(options.nofile))
        with cluster:
            testing.wait_healthy(cluster)
            appender = Appender(cluster.servers)
            time.sleep(options.seconds)
            print(json.dumps({"alone": appender.figures()}))
            attack = Attack(cluster, options.count, options.seconds)
            try:
                getattr(attack, options.attack)()
                print(json.dumps({"beside it": appender.figures()}))
                print(json.dumps({"held": len(attack.held), "refused": attack.refused}))
                for node in cluster.nodes:
                    ended = "runs" if node.running else f"ended with {node.exit_code}"
                    print(json.dumps({f"node {node.number}": ended}))
                    if not node.running:
                        print(node.log_tail(2))
                with contextlib.suppress(OSError):
                    told = cluster.nodes[0].status()
                    print(json.dumps({"descriptors": told.get("descriptors")}))
            finally:
                attack.end()
                appender.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
