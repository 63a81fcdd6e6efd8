"""The processes of a cluster under test: started, killed, paused and stopped, each by its number.

A node is `python -m lognode.node.main` in a process group of its own. It listens for clients on a
private port, and advertises the proxy through which clients reach it. Its dial map replaces the
addresses at which other nodes listen for peers by the proxies to them. Proxies pass bytes on
unchanged, so that TLS changes only flags and addresses here.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import aiohttp

from ..client.client import AsyncClient
from ..client.ports import free_ports
from ..client.protocol.errors import Unavailable
from .credentials import Credentials
from .power_disk import PowerDisk
from .powerfs.backing import Lost
from .powerfs.pace import Slowness

CLIENTS: Final = 0
"""The first of a pair whose dialling side is the clients."""
_POLL_S: Final = 0.05
_INVITE_S: Final = 30.0
_FLAGS: Final = ("--disk-reserve-bytes", "0")


class Wiring(Protocol):
    """The proxies between the nodes, and from the clients to each node (`links.py`)."""

    async def start(
        self, nodes: Mapping[int, str], peers: Mapping[int, str] | None = None,
        side_doors: Mapping[int, str] | None = None,
    ) -> None:  # fmt: skip
        """Make all proxies.

        `nodes` has the address at which each node listens for clients, `peers` the address at which
        it listens for other nodes, `side_doors` that for Kafka clients.
        """

    def address(self, pair: tuple[int, int]) -> str:
        """Return the address that the first dials to reach the second; CLIENTS is 0."""
        ...

    def side_door(self, number: int) -> str:
        """Return the address that Kafka clients dial to reach a node."""
        ...


class Node:
    """One node, which may be killed and started again on the same directory."""

    def __init__(
        self, number: int, root: Path, port: int, http: int,
        *, environment: Mapping[str, str], mounted: bool = False,
        credentials: Credentials | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.data = root / f"node{number}"
        self.disk = PowerDisk(self.data) if mounted else None
        """The disk of the data directory, if that is a mount: it can lose power, and be slow."""
        self.log_path = root / f"node{number}.log"
        self.address = f"127.0.0.1:{port}"
        """The address at which the node listens for clients."""
        self.peer = f"127.0.0.1:{port + 1}"
        """The address at which the node listens for other nodes."""
        self.http = f"127.0.0.1:{http}"
        self.environment = dict(environment)
        """The environment of the process from its next start on, like the prefix of its command:"""
        self.wrapper: list[str] = []
        self.advertised = ""
        self.kafka = ""
        """The address at which the node listens for Kafka clients; empty: it serves none."""
        self.arguments: list[str] = []
        self._credentials = credentials
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives; a paused process does."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process id of the last start. Raises Unavailable before the first start."""
        if self._process is None:
            raise Unavailable(f"node {self.number} was never started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process; negative for a signal, None while it runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process unless it runs; `wait_ready` waits until it serves."""
        if self.running:
            return
        if self.disk is not None:
            await self.disk.mount()  # never on the bare directory, whatever failed before
        with self._output() as output:
            self._process = await asyncio.create_subprocess_exec(
                *self.wrapper, sys.executable, "-m", "lognode.node.main", *self.arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env=self.environment,
            )  # fmt: skip

    async def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when `/readyz` answers 200. Raises Unavailable with the end of the log."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        secured = self._credentials is not None
        url = f"{'https' if secured else 'http'}://{self.http}/readyz"
        tls = True if self._credentials is None else self._credentials.context
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while asyncio.get_running_loop().time() < deadline:
                if not self.running:
                    raise Unavailable(f"node {self.number} ended:\n{self.log_tail()}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url, ssl=tls) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(_POLL_S)
        raise Unavailable(
            f"node {self.number} is not ready after {timeout_s} s:\n{self.log_tail()}"
        )

    async def kill(self) -> None:
        """Send kill -9, and wait until the process is gone."""
        self._signal(signal.SIGKILL)
        await self.wait_end()

    async def lose_power(self, seed: int) -> Lost:
        """Send kill -9, and lose what the disk had not synced, or a part of it drawn by this seed.

        A cancelled call ends first: no node may start on a disk that is half cut. Raises
        Unavailable, also for a disk that cannot lose power.
        """
        ending = asyncio.create_task(self._lose_power(seed))
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    async def _lose_power(self, seed: int) -> Lost:
        disk = self._mount()
        await self.kill()
        lost = await disk.cut(seed)
        await disk.mount()
        return lost

    def slow_down(self, slowness: Slowness) -> None:
        """Make the disk slow from now on.

        Raises Unavailable, also for a disk without this fault.
        """
        self._mount().slow(slowness)

    def speed_up(self) -> None:
        """Make the disk fast again. Raises Unavailable, also for a disk that was never slow."""
        self._mount().slow(None)

    def _mount(self) -> PowerDisk:
        if self.disk is None:
            raise Unavailable(
                f"the disk of node {self.number} cannot lose power or be slow; mount the "
                "disks with Nodes mounted"
            )
        return self.disk

    async def stop(self, timeout_s: float = 15.0) -> int:
        """Send SIGTERM and wait; kill -9 if the process does not end in time.

        Returns the exit code.
        """
        self.resume()
        self._signal(signal.SIGTERM)
        return await self.wait_end(timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)

    async def wait_end(self, timeout_s: float = 15.0) -> int:
        """Return the exit code once the process has ended; kill -9 if it does not end in time."""
        if self._process is None:
            return 0
        try:
            return await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            return await self._process.wait()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the node's log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""

    def _output(self) -> BinaryIO:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        return open(self.log_path, "ab")

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole process group: the command's prefix may have stayed its parent."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class Nodes:
    """All nodes of a cluster, wired through proxies. Node 1 founds it, the others join."""

    def __init__(
        self, root: Path, count: int, links: Wiring,
        *, source: Path | None = None, mounted: bool = False, secure: bool = False,
        earlier: Path | None = None, kafka: bool = False,
    ) -> None:  # fmt: skip
        """Prepare the nodes.

        `source` is a folder with another build of the package `lognode`, which the nodes then run.
        `earlier` is one with an earlier build, which they run until they are upgraded.
        With `mounted`, disks can lose power and be slow. With `secure`, the cluster has mutual TLS
        between nodes and with clients, and tokens. With `kafka`, the nodes serve Kafka clients too.
        """
        self.root = root
        self.links = links
        environment = dict(os.environ)
        self._sources = (source, earlier)
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        self.credentials = Credentials(root, environment) if secure else None
        """The certificates and tokens; None where the cluster needs none."""
        ports = free_ports(2 * count)
        self._nodes = [
            Node(
                n + 1,
                root,
                ports[2 * n],
                ports[2 * n + 1],
                environment=environment,
                mounted=mounted,
                credentials=self.credentials,
            )
            for n in range(count)
        ]
        if kafka:
            for node, port in zip(self._nodes, free_ports(count), strict=True):
                node.kafka = f"127.0.0.1:{port}"
        if earlier is not None:
            for node in self._nodes:
                node.environment["PYTHONPATH"] = str(earlier)
        self._disks = contextlib.AsyncExitStack()

    @property
    def earlier(self) -> list[int]:
        """The numbers of the nodes that run the earlier build, from their next start on."""
        _, earlier = self._sources
        return [n.number for n in self._nodes if n.environment.get("PYTHONPATH") == str(earlier)]

    def set_build(self, number: int, *, earlier: bool) -> None:
        """Let the node run that build from its next start on."""
        source = self._sources[earlier]
        if source is None:
            self[number].environment.pop("PYTHONPATH", None)
        else:
            self[number].environment["PYTHONPATH"] = str(source)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: int) -> Node:
        """Return the node with this number, from 1."""
        return self._nodes[number - 1]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all nodes, from 1."""
        return [node.number for node in self._nodes]

    @property
    def servers(self) -> str:
        """The cluster's address for clients, through the proxies. It allows everything."""
        if self.credentials is None:
            return f"lognode://{self._hosts}"
        return self.credentials.address(self._hosts, self.credentials.admin_token)

    @property
    def workload_servers(self) -> str:
        """The cluster's address for clients of the workload, which may only do what they need."""
        if self.credentials is None:
            return self.servers
        return self.credentials.address(self._hosts, self.credentials.workload_token)

    @property
    def kafka_servers(self) -> str:
        """The addresses for Kafka clients, through the proxies; empty without any."""
        return ",".join(self.links.side_door(node.number) for node in self._nodes if node.kafka)

    @property
    def _hosts(self) -> str:
        return ",".join(node.advertised for node in self._nodes)

    async def start(self, flags: Sequence[str] = ()) -> None:
        """Start proxies and nodes, and return when each node serves. Raises Unavailable."""
        await self.links.start(
            {node.number: node.address for node in self._nodes},
            {node.number: node.peer for node in self._nodes},
            {node.number: node.kafka for node in self._nodes if node.kafka},
        )
        self.root.mkdir(parents=True, exist_ok=True)
        if self.credentials is not None:
            await self.credentials.make(self.numbers)
        for node in self._nodes:
            node.advertised = self.links.address((CLIENTS, node.number))
        founder, *others = self._nodes
        await self._start(founder, flags)
        if self.credentials is not None:
            self.credentials.keep_admin_token(founder.data)
            async with AsyncClient(self.servers, timeout=_INVITE_S) as admin:
                for node in others:
                    await self.credentials.invite(admin, node.number)
        for node in others:
            await self._start(node, flags)

    async def _start(self, node: Node, flags: Sequence[str]) -> None:
        self._wire(node, flags)
        if node.disk is not None:
            self._disks.push_async_callback(node.disk.close)
        await node.start()
        await node.wait_ready()

    def _wire(self, node: Node, flags: Sequence[str]) -> None:
        dial_map = self.root / f"node{node.number}.dial.toml"
        others = [other for other in self._nodes if other is not node]
        dial_map.write_text(
            "".join(
                f'"{other.peer}" = "{self.links.address((node.number, other.number))}"\n'
                for other in others
            )
        )
        founder = self._nodes[0]
        kafka: tuple[str, ...] = ()
        if node.kafka:
            advertised = self.links.side_door(node.number)
            kafka = ("--kafka", node.kafka, "--kafka-advertise", advertised)
        secured: tuple[str, ...] = ()
        if self.credentials is not None:
            secured = self.credentials.flags(node.number, is_founder=node is founder)
        node.arguments = [
            "--data", str(node.data), "--listen", node.address, "--advertise", node.advertised,
            "--peer-listen", node.peer, "--peer-advertise", node.peer, "--http", node.http,
            "--dial-map", str(dial_map), *secured, *kafka, *_FLAGS, *flags,
            *(() if node is founder else ("--join", founder.advertised)),
        ]  # fmt: skip

    async def stop(self) -> None:
        """Stop all nodes concurrently and orderly; kill the rest. Then unmount."""
        try:
            await asyncio.gather(*(node.stop() for node in self._nodes))
        finally:
            await self._disks.aclose()
