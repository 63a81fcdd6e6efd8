"""All attacks at the same time on three nodes, by hand: memory, states, another client's appends.

    python tests/attacks/all_at_once.py --seconds 300              # every attack
    python tests/attacks/all_at_once.py abuse_hot close_flood      # only these
    python tests/attacks/all_at_once.py --tls                      # with TLS and tokens

Each attack comes from an address of its own, with `--tls` also with a token of its own, and goes to
one of the nodes, those of `abuse.py` to
the node that leads the range; an attack that ends begins again. Prints a line of JSON for each node
and one for the client. Exit code 1 when a node takes more than
`--rss-max-mib`, ends, or is called DEAD.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from identity import flags_of
from measure import ATTACKS, HERE, KEY, LOG, SECURE, Neighbour, addresses, prepare, rss_mib

import lognode
from lognode import testing

ABUSES = {
    f"abuse_{kind}": ["abuse", "--kind", kind, "--connections", "4"]
    for kind in ("bulk", "hot", "export", "status", "churn")
}


class Attack:
    """One program, from an address of its own, that goes on until `stop`."""

    def __init__(
        self, number: int, command: list[str], node: testing.LocalNode, shown: list[str]
    ) -> None:
        """`shown`: the flags with which it says who it is."""
        program, *flags = command
        self._command = [
            sys.executable, str(HERE / f"{program}.py"), "--address", node.address, "--log", LOG,
            "--key", KEY, "--source", f"127.0.1.{number + 1}", "--seconds", "3600",
            *shown, *(flag.format(**addresses(node)) for flag in flags),
        ]  # fmt: skip
        self.begins = 0
        self._process: subprocess.Popen[bytes] | None = None

    def keep_up(self) -> None:
        """Begin again if it has ended."""
        if self._process is None or self._process.poll() is not None:
            self.begins += 1
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=lambda: os.nice(19),
            )  # fmt: skip

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> int:
    """Attack, watch, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS, *SECURE, *ABUSES])
    parser.add_argument("--tls", action="store_true", help="nodes with TLS and tokens")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rss-max-mib", type=float, default=1024.0)
    parser.add_argument("--dir", default=None, help="where the nodes keep their data")
    parser.add_argument("--keep", default=None, help="a directory that gets the nodes' logs")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.dir) as root,
        testing.cluster(Path(root), tls=options.tls, auth=options.tls) as nodes,
    ):
        testing.wait_healthy(nodes)
        with lognode.Client(nodes.servers, timeout=60.0) as client:
            prepare(client, 300)
            return _attacked(options, nodes, client)


def _attacked(
    options: argparse.Namespace, cluster: testing.LocalCluster, client: lognode.Client
) -> int:
    every = ATTACKS | (SECURE if options.tls else {}) | ABUSES
    (range_,) = client.admin.ranges(LOG)
    by_number = {node.number: node for node in cluster.nodes}
    attacks = [
        Attack(
            at,
            every[name],
            by_number[range_["leader"] if name in ABUSES else at % 3 + 1],
            flags_of(cluster, name),
        )
        for at, name in enumerate(options.attacks or every)
        if every[name]
    ]
    neighbour = Neighbour(cluster.servers)
    neighbour.start()
    peaks, dead, ended = {node.number: 0.0 for node in cluster.nodes}, 0, set[int]()
    began = looked = time.monotonic()
    try:
        while time.monotonic() - began < options.seconds:
            for attack in attacks:
                attack.keep_up()
            for node in cluster.nodes:
                if node.running:
                    peaks[node.number] = max(peaks[node.number], rss_mib(node.pid))
                else:
                    ended.add(node.number)
            if time.monotonic() - looked > 5.0:
                looked = time.monotonic()
                dead += sum(row["state"] == "DEAD" for row in client.admin.nodes(timeout=60))
            time.sleep(0.1)
    finally:
        for attack in attacks:
            attack.stop()
        neighbour.ended.set()
        for node in cluster.nodes if options.keep else ():
            shutil.copy(node.log_path, options.keep)
    dead += sum(row["state"] == "DEAD" for row in client.admin.nodes(timeout=60))
    for number, peak in peaks.items():
        print(json.dumps({"node": number, "peak rss MiB": round(peak), "ended": number in ended}))
    took = sorted(neighbour.latencies)
    print(json.dumps({
        "appends and reads": len(took), "errors": neighbour.errors,
        "p50 ms": round(1000 * took[len(took) // 2], 1),
        "p99 ms": round(1000 * quantiles(took, n=100)[98], 1), "max ms": round(1000 * took[-1], 1),
        "attacks": len(attacks), "begun": sum(attack.begins for attack in attacks), "dead": dead,
    }))  # fmt: skip
    return int(bool(dead or ended or max(peaks.values()) > options.rss_max_mib))


if __name__ == "__main__":
    sys.exit(main())
