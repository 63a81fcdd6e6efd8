"""Real nodes in the test's own process and loop: real sockets, real files, everything reachable."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lognode
from lognode.client.connection import Connection, dial
from lognode.client.ports import free_ports
from lognode.client.protocol import OPERATIONS, Operation
from lognode.client.protocol.address import split_address
from lognode.node.config import Config
from lognode.node.daemon import Node
from lognode.node.replicas.clocks import Clocks
from lognode.partitions.model import NodeRecord


async def until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Return when the condition holds. Raises AssertionError."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.01)


class LiveNode:
    """One node and the task that runs it; it may be started again on its directory."""

    def __init__(self, config: Config, clocks: Clocks | None = None) -> None:
        self.config = config
        self._clocks = clocks
        self.node = Node(config, clocks)
        self.task: asyncio.Task[int] | None = None

    @property
    def host(self) -> Any:
        """Its replicas; tests reach into them."""
        return self.node._host

    @property
    def registered(self) -> bool:
        """Whether the controller knows this start of it."""
        membership = getattr(self.node, "_membership", None)
        return membership is not None and membership.registered

    def begin(self) -> None:
        """Start without waiting."""
        self.node = Node(self.config, self._clocks)
        self.task = asyncio.create_task(self.node.run())

    async def start(self) -> None:
        """Return when it serves. Raises what kept it from that."""
        self.begin()
        assert self.task is not None
        while not self.registered:
            if self.task.done():
                self.task.result()
                raise AssertionError(f"the node ended: {self.node.shutdown.failure}")
            await asyncio.sleep(0.01)

    async def stop(self) -> int:
        """In order; the exit code."""
        assert self.task is not None
        self.node.shutdown.ask()
        return await self.task

    async def stop_now(self) -> int:
        """As after a failure: nothing is handed over."""
        await until(lambda: hasattr(self.node, "_handover"), "it has begun")
        assert self.task is not None
        self.node.shutdown.fail(lognode.LognodeError("stopped by the test"))
        return await self.task

    async def peer(self, node: int = 99) -> Connection:
        """A connection to it in the role of that node, which is registered here if it is none."""
        host, port = split_address(self.config.peer_listened)
        made_up = NodeRecord(node, "127.0.0.1:1", "", "", incarnation=1, boot=1, state="JOINING")
        nodes = self.node._view.metadata.nodes
        record = dict.setdefault(nodes, node, made_up)  # other nodes are not told
        return await dial(
            host, port, role="node", cluster=self.node.identity.cluster_id, node=node,
            incarnation=record.incarnation,
        )  # fmt: skip

    async def client(self) -> Connection:
        """A bare client connection to it."""
        host, port = split_address(self.config.listen)
        return await dial(host, port)


class LiveCluster:
    """Nodes 1 to n; the first founds."""

    def __init__(self, nodes: list[LiveNode]) -> None:
        self.nodes = nodes
        self.address = "lognode://" + ",".join(each.config.listen for each in nodes)

    def of(self, node_id: int) -> LiveNode:
        """The node of that id."""
        return next(each for each in self.nodes if each.node.identity.node_id == node_id)

    async def leader(self) -> LiveNode:
        """The node that leads the range of the lowest id, once one does."""

        def leading() -> LiveNode | None:
            return next(
                (
                    each
                    for each in self.nodes
                    if [r.leads for r in each.host.ranges()[:1]] == [True]
                ),
                None,
            )

        await until(leading, "a leader")
        found = leading()
        assert found is not None
        return found

    async def join(self) -> LiveNode:
        """One more node, serving."""
        first = self.nodes[0].config
        port, http = free_ports(2)
        number = len(self.nodes) + 1
        config = replace(
            first, data=first.data.parent / f"node{number}", listen=f"127.0.0.1:{port}",
            http=f"127.0.0.1:{http}", join=(first.listen,),
        )  # fmt: skip
        node = LiveNode(config)
        self.nodes.append(node)
        await node.start()
        return node

    async def settled(self) -> None:
        """Wait until all running nodes have the same image and the same entries applied."""

        def same() -> bool:
            running = [each for each in self.nodes if each.task and not each.task.done()]
            if len({each.node._view.metadata.version for each in running}) > 1:
                return False
            images = running[0].node._view.metadata
            for range_ in (images.controller, *images.ranges.values()):
                gid = (range_.range_id, range_.generation)
                here = [each.host.groups.get(gid) for each in running
                        if each.node.identity.node_id in range_.members]  # fmt: skip
                if None in here or not any(r.leads and r.group.ready_to_lead for r in here):
                    return False
                if len({r.applied_index for r in here} | {r.group.last_index for r in here}) > 1:
                    return False
            return True

        await until(same, "all nodes agree")

    async def healthy(self, nodes: int) -> None:
        """Wait until the cluster says that it is."""
        reasons = ["nobody answers"]
        async with lognode.AsyncClient(self.address) as client:
            for _ in range(2000):
                with contextlib.suppress(lognode.LognodeError):
                    health = await client.health(nodes=nodes)
                    if health["ok"]:
                        return
                    reasons = health["reasons"]
                await asyncio.sleep(0.01)
        raise AssertionError(f"the cluster did not become healthy: {reasons}")


@asynccontextmanager
async def live(
    root: Path,
    nodes: int = 1,
    *,
    clocks: Mapping[int, Clocks] | None = None,
    **settings: object,
) -> AsyncIterator[LiveCluster]:
    """A cluster of nodes in this loop, all serving; ended with the block."""
    ports = free_ports(2 * nodes)
    found = []
    for at in range(nodes):
        join = () if at == 0 else (f"127.0.0.1:{ports[0]}",)
        config = Config(
            data=root / f"node{at + 1}", listen=f"127.0.0.1:{ports[2 * at]}",
            http=f"127.0.0.1:{ports[2 * at + 1]}", join=join, **settings,  # type: ignore[arg-type]
        )  # fmt: skip
        found.append(LiveNode(config, (clocks or {}).get(at + 1)))
    cluster = LiveCluster(found)
    try:
        for each in found:
            await each.start()
        yield cluster
    finally:
        for each in reversed(found):
            if each.task is not None and not each.task.done():
                each.node.shutdown.fail(lognode.LognodeError("the test is over"))
        await asyncio.gather(
            *(each.task for each in found if each.task is not None), return_exceptions=True
        )


async def ask(
    node: LiveNode, asked: Operation | str, body: dict[str, Any], timeout_s: float = 5.0
) -> Any:
    """One request to that very node, for an operation or by its name."""
    operation = OPERATIONS[asked] if isinstance(asked, str) else asked
    connection = await node.client()
    try:
        deadline = asyncio.get_running_loop().time() + timeout_s
        return await connection.request(operation, body, deadline=deadline)
    finally:
        connection.close()


def follower(cluster: LiveCluster) -> LiveNode:
    """A member that leads nothing at all, so that holding it back moves no leader."""
    return next(
        each for each in cluster.nodes if not any(r.leads for r in each.host.groups.values())
    )


def value(answer: Any) -> bytes:
    (found,) = answer["values"]
    assert isinstance(found, bytes)
    return found
