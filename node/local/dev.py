"""Run a local cluster of real processes, for `lognode dev`, the demo, tests and benchmarks.

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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from ...client.ports import free_ports
from ...client.protocol.address import split_address
from ...client.protocol.errors import InvalidArgument, Unavailable
from ...client.protocol.private_files import write_private
from .dev_auth import DevAuth
from .dev_data import (
    PORTS_A_NODE,
    KeptNode,
    check_kept,
    directories_of,
    first_http,
    first_port,
    kept_nodes,
    port_of,
)
from .dev_tls import DevTls

DEFAULT_PORT: Final = 4600
DEFAULT_HTTP: Final = 4680
"""As of a node without flags: a page about a node holds for the first node of `lognode dev` too."""
_START_S: Final = 120.0
"""The start timeout of `lognode dev`: nodes killed with much data first read all of it back."""
_INVITE_S: Final = 20.0
_OTHER_PORTS: Final = "choose other ports with --base-port"


class LocalNode:
    """One node process; it may be killed and started again on the same directory."""

    def __init__(
        self,
        number: int,
        root: Path,
        port: int,
        http: int,
        join: str | None,
        flags: Sequence[str],
        tls: DevTls | None = None,
        auth: DevAuth | None = None,
        *,
        peer: int | None = None,
        invite: Callable[[Path], None] | None = None,
    ) -> None:
        """`peer` is the port for peers, by default `port` + 1. `invite` writes an invitation to
        the cluster, for a node that is to join."""
        self.number = number
        self.data = root / f"node{number}"
        self.log_path = root / f"node{number}.log"
        self.address = f"127.0.0.1:{port}"
        """The address of the port for clients."""
        self.peer = f"127.0.0.1:{peer or port + 1}"
        """The address of the port for other nodes."""
        self.http = f"127.0.0.1:{http}"
        self.program: Sequence[str] = ("-m", "lognode.node.main")
        """The arguments of Python before the node's own; tests wrap the node in a program."""
        self.join = join
        """The address at which an empty node asks to join; None: the node founds a cluster."""
        self._tls, self._auth = tls, auth
        self._invite = invite
        self._invitation = root / f"node{number}.invitation"
        own = () if tls is None else tls.flags(number)
        ports = () if peer in (None, port + 1) else ("--peer-listen", self.peer)
        self._flags = (*ports, *own, *(() if auth is None else auth.flags), *flags)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its HTTP listener."""
        return f"{'http' if self._tls is None else 'https'}://{self.http}"

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        if self._process is None:
            raise Unavailable(f"node {self.number} was never started")
        return self._process.pid

    @property
    def arguments(self) -> list[str]:
        """The arguments of the node."""
        return [
            "--data", str(self.data), "--listen", self.address, "--http", self.http,
            *(("--join", self.join) if self.join else ()),
            *(("--invitation", str(self._invitation)) if self._is_invited else ()),
            *self._flags,
        ]  # fmt: skip

    @property
    def _is_invited(self) -> bool:
        """Whether the node needs an invitation: nodes that found a cluster together need none."""
        return bool(self.join and self._invite) and "--bootstrap-expect" not in self._flags

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process: a negative number is the signal that killed it, None
        means that it runs."""
        return None if self._process is None else self._process.poll()

    def add_flags(self, *flags: str) -> None:
        """Add flags, with which the node starts next."""
        self._flags = (*self._flags, *flags)

    def start(self) -> None:
        """Start the process; `wait_ready` returns when it serves.

        Raises Unavailable when another program has one of its ports.
        """
        if self.running:
            return
        self.check_ports()
        # A node that was killed while it joined asks again with the same invitation.
        asks_again = self.data.exists() and self._invitation.exists()
        is_kept = asks_again or bool(kept_nodes({self.number: self.data}))
        if self._invite and self._is_invited and not is_kept:
            self._invite(self._invitation)
        command = [sys.executable, *self.program, *self.arguments]
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab", opener=partial(os.open, mode=0o600)) as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check_ports(self, *, kept: bool = False) -> None:
        """Raise Unavailable when another program has one of the ports. `kept`: the node ran here
        before, and can only start again at these ports."""
        for address in (self.address, self.peer, self.http):
            check_free(address, "stop the program that uses the port" if kept else _OTHER_PORTS)

    def wait_ready(
        self, timeout_s: float = 30.0, *, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when `/readyz` answers 200, or when `interrupted` returns True.

        Raises Unavailable with the end of the log.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not interrupted():
            if not self.running:
                raise Unavailable(f"node {self.number} ended:\n{self.log_tail()}")
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                self.fetch("/readyz", timeout_s=2),
            ):
                return
            time.sleep(0.05)
        if not interrupted():
            raise Unavailable(f"node {self.number} is not ready in time:\n{self.log_tail()}")

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it lives."""
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait_end(10.0)

    def stop(self, timeout_s: float = 15.0) -> int:
        """Send SIGTERM and wait; kill the process after the timeout. Return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_end(timeout_s)

    def status(self) -> dict[str, Any]:
        """Return the node's /status.json. Raises OSError when the node does not answer."""
        with self.fetch("/status.json", timeout_s=5) as answer:
            status: dict[str, Any] = json.load(answer)
        return status

    def fetch(self, path: str, timeout_s: float) -> Any:
        """Return the HTTP listener's answer, a context manager. Raises OSError."""
        context = None if self._tls is None else self._tls.context
        token = None if self._auth is None else self._auth.token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(self.url + path, headers=headers)
        return urllib.request.urlopen(request, timeout=timeout_s, context=context)

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the log file."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""

    def wait_end(self, timeout_s: float = 15.0) -> int:
        """Return the exit code when the process has ended; kill the process after the timeout."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(10.0)


class LocalCluster:
    """A local cluster: the first node founds it, the others join. A context manager ends all nodes.

    `tls`: use TLS, with certificates of the cluster's own authority under `root`. `auth`: use a
    secret for the nodes, and tokens; `token` is the first token. Nodes that an earlier run left
    under `root` start again at their addresses. Without such nodes, the ports begin at `base_port`
    or else `default_port`, three for each node: for clients, for peers and for HTTP. `default_http`
    is the first port for HTTP that goes with `default_port`. Without `base_port` and
    `default_port`, free ports are used.
    """

    def __init__(
        self,
        root: Path,
        nodes: int = 3,
        *,
        base_port: int | None = None,
        default_port: int | None = None,
        default_http: int | None = None,
        flags: Sequence[str] = (),
        tls: bool = False,
        auth: bool = False,
    ) -> None:
        self.root = root
        self.tls = DevTls(root / "tls") if tls else None
        self._auth = DevAuth(root, root / "node1") if auth else None
        self.nodes: list[LocalNode] = []
        self._flags = tuple(flags)
        self._kept = kept_nodes(directories_of(root))
        first = base_port or first_port(self._kept) or (not self._kept and default_port)
        self._first_http = None if base_port or self._kept else default_http
        if not first and self._kept:  # the ports for HTTP may be a row of their own
            first = first_port(self._kept, PORTS_A_NODE - 1)
            self._first_http = first_http(self._kept) if first else None
        self._ports = iter(range(first, first + PORTS_A_NODE * nodes) if first else ())
        for _ in range(nodes):
            self.add()

    def add(self) -> LocalNode:
        """Add a node, not started."""
        number = len(self.nodes) + 1
        kept = self._kept.get(number, KeptNode(self.root))
        port = next(self._ports, None) or port_of(kept.address) or free_ports(1)[0]
        peer = next(self._ports, None) or port_of(kept.peer) or port + 1
        http = next(self._ports, None) or port_of(kept.http) or free_ports(1)[0]
        if self._first_http:
            http = self._first_http + number - 1
        if peer == http:  # the cluster is from before nodes had a port for peers
            peer = free_ports(1)[0]
        join = self.nodes[0].address if self.nodes else None
        node = LocalNode(
            number, self.root, port, http, join, self._flags, self.tls, self._auth, peer=peer,
            invite=None if self.tls is None else self._invite,
        )  # fmt: skip
        self.nodes.append(node)
        return node

    def _invite(self, path: Path) -> None:
        """Have the cluster invite one new node, as its operator would do."""
        from ... import Client  # the SDK, which loads no module of a node

        with Client(self.servers, timeout=_INVITE_S) as client:
            invitation = client.admin.invite_node()["invitation"]
        write_private(path, f"{invitation}\n".encode())

    @property
    def servers(self) -> str:
        """The cluster's address for clients, with the files for TLS and the token."""
        addresses = ",".join(node.address for node in self.nodes)
        files = {} if self.tls is None else self.tls.files
        files |= {} if self._auth is None else self._auth.files
        query = f"?{urlencode(files, safe='/')}" if files else ""
        return f"lognode{'' if self.tls is None else 's'}://{addresses}{query}"

    @property
    def token(self) -> str | None:
        """The token that allows everything, or None without tokens."""
        return None if self._auth is None else self._auth.token

    def start(
        self, timeout_s: float = 30.0, *, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Start all stopped nodes; return when each serves, or when `interrupted` returns True.

        Nodes of an earlier run start together, because none of them is ready before a majority
        runs. New nodes start after them, one by one, so that their ids are in the order of `nodes`.
        The first node founds the cluster if there is no node of an earlier run.

        Raises InvalidArgument or DirectoryInUse for a directory that these nodes cannot start with,
        and then starts nothing; Unavailable when a port is taken or a node does not start.
        """
        nodes = {node.number: node for node in self.nodes if not node.running}
        directories = directories_of(self.root)
        directories |= {number: node.data for number, node in nodes.items()}
        kept = kept_nodes({
            number: data for number, data in directories.items()
            if number in nodes or number > len(self.nodes)
        })  # fmt: skip
        addresses = {node.number: node.address for node in self.nodes}
        check_kept(self.root, kept, addresses)
        for node in nodes.values():
            node.check_ports(kept=node.number in kept)
        again = [node for number, node in nodes.items() if number in kept]
        new = [node for number, node in nodes.items() if number not in kept]
        present = [node for node in self.nodes if node.running] + again
        if present and self.nodes[0] in new:
            self.nodes[0].join = present[0].address  # only its directory is gone, not the cluster
        for together in (again, *([node] for node in new)):
            for node in together:
                node.start()
            deadline = time.monotonic() + timeout_s
            for node in together:
                node.wait_ready(deadline - time.monotonic(), interrupted=interrupted)
            if interrupted():
                return

    def stop(self) -> None:
        """Stop all nodes in order, the last started first."""
        for node in reversed(self.nodes):
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait_end()  # no second SIGTERM: it would end the node at once

    def __enter__(self) -> "LocalCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_free(address: str, advice: str = _OTHER_PORTS) -> None:
    """Raise Unavailable, with the advice, if another program listens on the address."""
    host, port = split_address(address, "port")
    with socket.socket() as probe:
        # Servers set this too: what a killed process left behind does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Unavailable(
                f"another program uses port {port}: {error.strerror}; {advice}"
            ) from None


def run(
    nodes: int, data: Path, base_port: int | None, *, tls: bool = False, auth: bool = False
) -> int:
    """Run `lognode dev`: start, print the addresses, wait for Ctrl-C or SIGTERM, stop.

    When a node ends, the other nodes continue. Raises the errors of `LocalCluster.start`, and
    Unavailable when no node is left.
    """
    if nodes < 1:
        raise InvalidArgument(f"-n is {nodes}; a cluster has at least 1 node. Give -n 1 or more")
    cluster = LocalCluster(
        data, nodes, base_port=base_port, default_port=DEFAULT_PORT, default_http=DEFAULT_HTTP,
        tls=tls, auth=auth,
    )  # fmt: skip
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
    if sys.stderr.isatty():
        sys.stderr.write(f"starting {nodes} node{'s' if nodes > 1 else ''}\n")
    try:
        cluster.start(_START_S, interrupted=lambda: bool(ended))
        for node in cluster.nodes if not ended else ():
            line = f"node {node.number}\t{node.address}\t{node.url}\t{node.data}\n"
            sys.stdout.write(line)
        if not ended:
            server = shlex.quote(cluster.servers) if tls or auth else cluster.servers
            sys.stdout.write(f"console\t{cluster.nodes[0].url}/\nexport LOGNODE_SERVER={server}\n")
            sys.stdout.write("Ctrl-C ends the cluster\n")
        sys.stdout.flush()
        gone: set[int] = set()
        while not ended:
            for node in cluster.nodes:
                if not node.running and node.number not in gone:
                    gone.add(node.number)
                    tell_ended(node)
            if len(gone) == nodes:
                raise Unavailable(f"all nodes have ended:\n{cluster.nodes[-1].log_tail()}")
            time.sleep(0.2)
    finally:
        cluster.stop()
    return 0


def tell_ended(node: LocalNode) -> None:
    """Write one line on standard error: which node ended, how, and how to start it again."""
    code = node.exit_code or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    sys.stderr.write(
        f"lognode: node {node.number} {how}; its log is {node.log_path}. The other nodes go "
        f"on. To start the node again: lognode {shlex.join(node.arguments)}\n"
    )
    sys.stderr.flush()
