"""A local cluster of real processes: `lognode dev`, the demo, the tests and the benchmarks.

Each node is `python -m lognode.node.main` in a process group of its own, on loopback ports and
with a data directory and a log file under one root.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..client.address import split_address
from ..client.errors import Unavailable
from ..client.ports import free_ports


class LocalNode:
    """One node process; it may be killed and started again on the same directory."""

    def __init__(
        self, number: int, root: Path, port: int, http: int, join: str | None, flags: Sequence[str]
    ) -> None:
        self.number = number
        self.data = root / f"node{number}"
        self.log_path = root / f"node{number}.log"
        self.address = f"127.0.0.1:{port}"
        self.http = f"127.0.0.1:{http}"
        self.program: Sequence[str] = ("-m", "lognode.node.main")
        """What Python runs; tests put something around it."""
        self._join = join
        self._flags = tuple(flags)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        if self._process is None:
            raise Unavailable(f"node {self.number} was never started")
        return self._process.pid

    @property
    def arguments(self) -> list[str]:
        """What the program is given."""
        return [
            "--data", str(self.data), "--listen", self.address, "--http", self.http,
            *(("--join", self._join) if self._join else ()), *self._flags,
        ]  # fmt: skip

    @property
    def exit_code(self) -> int | None:
        """Of the last process; negative is the signal that killed it, None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process; `wait_ready` says when it serves.

        Raises Unavailable when another program has one of its ports.
        """
        if self.running:
            return
        check_free(self.address)
        check_free(self.http)
        command = [sys.executable, *self.program, *self.arguments]
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when `/readyz` answers 200. Raises Unavailable with the end of the log."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.running:
                raise Unavailable(f"node {self.number} ended:\n{self.log_tail()}")
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"http://{self.http}/readyz", timeout=2),
            ):
                return
            time.sleep(0.05)
        raise Unavailable(
            f"node {self.number} is not ready after {timeout_s} s:\n{self.log_tail()}"
        )

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it lives."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self.signal(signal.SIGKILL)
        self.wait_end(10.0)

    def stop(self, timeout_s: float = 15.0) -> int:
        """SIGTERM and wait; kill -9 if it does not end in time. Returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_end(timeout_s)

    def status(self) -> dict[str, Any]:
        """The node's /status.json. Raises OSError when it does not answer."""
        with urllib.request.urlopen(f"http://{self.http}/status.json", timeout=5) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the log file."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""

    def wait_end(self, timeout_s: float = 15.0) -> int:
        """The exit code, once the process has ended; kill -9 if it does not in time."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(10.0)


class LocalCluster:
    """n nodes; the first founds, the others join it. A context manager that ends them all."""

    def __init__(
        self,
        root: Path,
        nodes: int = 3,
        *,
        base_port: int | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.nodes: list[LocalNode] = []
        self._flags = tuple(flags)
        self._ports = iter(
            range(base_port, base_port + 2 * nodes) if base_port else free_ports(2 * nodes)
        )
        for _ in range(nodes):
            self.add()

    def add(self) -> LocalNode:
        """One more node, not started."""
        ports = self._ports
        port = next(ports, None) or free_ports(1)[0]
        http = next(ports, None) or free_ports(1)[0]
        join = self.nodes[0].address if self.nodes else None
        node = LocalNode(len(self.nodes) + 1, self.root, port, http, join, self._flags)
        self.nodes.append(node)
        return node

    @property
    def servers(self) -> str:
        """The address of the cluster, as clients take it."""
        return "lognode://" + ",".join(node.address for node in self.nodes)

    def start(self, timeout_s: float = 30.0) -> None:
        """Start all nodes, the founder first, and return when each serves."""
        for node in self.nodes:
            node.start()
            node.wait_ready(timeout_s)

    def stop(self) -> None:
        """Stop all nodes in order; last started first."""
        for node in reversed(self.nodes):
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait_end()  # a second signal would end it at once

    def __enter__(self) -> "LocalCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_free(address: str) -> None:
    """Raise Unavailable if another program listens on the address."""
    host, port = split_address(address, "port")
    with socket.socket() as probe:
        # As servers do: what a killed process left behind does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Unavailable(
                f"port {port} is taken: {error.strerror}; choose others with --base-port"
            ) from None


def run(nodes: int, data: Path, base_port: int | None) -> int:
    """`lognode dev`: start, print the addresses, wait for Ctrl-C or SIGTERM, stop.

    The others go on when a node ends. Raises Unavailable when a node does not start, or none is
    left.
    """
    cluster = LocalCluster(data, nodes, base_port=base_port or 4600)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
    try:
        cluster.start()
        for node in cluster.nodes:
            line = f"node {node.number}\t{node.address}\thttp://{node.http}\t{node.data}\n"
            sys.stdout.write(line)
        sys.stdout.write(f"LOGNODE_SERVER={cluster.servers}\nCtrl-C ends the cluster\n")
        sys.stdout.flush()
        gone: set[int] = set()
        while not ended:
            for node in cluster.nodes:
                if not node.running and node.number not in gone:
                    gone.add(node.number)
                    tell_ended(node)
            if len(gone) == nodes:
                raise Unavailable(f"no node is left:\n{cluster.nodes[-1].log_tail()}")
            time.sleep(0.2)
    finally:
        cluster.stop()
    return 0


def tell_ended(node: LocalNode) -> None:
    """One line on standard error: which node ended, how, and what starts it again."""
    code = node.exit_code or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    sys.stderr.write(
        f"lognode: node {node.number} {how}, its log is {node.log_path}; the others go on."
        f" To start it again: lognode {shlex.join(node.arguments)}\n"
    )
    sys.stderr.flush()
