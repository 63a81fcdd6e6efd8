"""Twenty thousand messages with one fault each: a real node refuses them and serves on."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faulty_messages import of_the_table
from live_nodes import LiveNode, live, until
from loose_operations import loosened

import lognode
from lognode.client.connection import Connection
from lognode.client.protocol import OPERATIONS, Operation, Sender
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded, LognodeError, Unsupported
from lognode.client.protocol.peers import BOOTSTRAP

pytestmark = pytest.mark.cluster

MESSAGES = 20_000
AT_ONCE = 64
REFUSALS = {InvalidArgument.code, LimitExceeded.code}
REQUESTS = [op for op in OPERATIONS.values() if op.answer is not None and op is not BOOTSTRAP]
ONE_WAY = [op for op in OPERATIONS.values() if op.answer is None]


async def linked(node: LiveNode, operation: Operation) -> Connection:
    """A connection on which the operation may be sent."""
    peer = operation.sender in (Sender.PEER, Sender.STRANGER)
    return await (node.peer() if peer else node.client())


async def answered(link: Connection, operation: Operation, body: dict[str, Any]) -> str:
    """The code of the answer, or a word for an answer without an error."""
    try:
        async with asyncio.timeout(3):
            if operation.streams:
                stream = await link.stream(operation, body, credit_bytes=1000)
                await anext(aiter(stream))
            else:
                await link.request(operation, body)
    except TimeoutError:
        return "waits"
    except LognodeError as error:
        return error.code
    return "ok"


def test_every_faulty_request_is_refused_and_the_node_serves_on(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    every = list(of_the_table(REQUESTS))
    chosen = random.Random(seed).choices(every, k=max(0, MESSAGES - len(every)))
    codes: Counter[str] = Counter()

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            node = cluster.nodes[0]
            links = {op: await linked(node, op) for op in REQUESTS}
            room = asyncio.Semaphore(AT_ONCE)

            async def send(operation: Operation, why: str, body: dict[str, Any]) -> None:
                async with room:
                    deadline = asyncio.get_running_loop().time() + 30
                    with pytest.raises(LognodeError) as caught:
                        await links[operation].request(loosened(operation), body, deadline=deadline)
                codes[caught.value.code] += 1
                assert caught.value.code in REFUSALS, f"{operation} {why}: {caught.value}"
                assert caught.value.outcome == "not_applied"

            messages = every + chosen
            for begin in range(0, len(messages), 1_000):
                part = messages[begin : begin + 1_000]
                await asyncio.gather(*(send(*message) for message in part))
                await log.append(b"k", b"still here")
            assert not any(link.lost for link in links.values())
            assert node.node.shutdown.failure is None
            assert await log.count(b"k") == MESSAGES // 1_000
            for link in links.values():
                link.close()

    asyncio.run(run())
    assert sum(codes.values()) == MESSAGES


def test_every_faulty_one_way_message_ends_its_connection_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            node = cluster.nodes[0]
            for operation, why, body in of_the_table(ONE_WAY):
                link = await linked(node, operation)
                link.send(operation, body)
                await until(lambda link=link: link.lost is not None, f"{operation} {why}")
            await log.append(b"k", b"still here")
            assert node.node.shutdown.failure is None

    asyncio.run(run())


def test_a_node_serves_every_operation_of_the_table(tmp_path: Path) -> None:
    """Whatever it answers, it knows the operation, and the handler has the fields it needs."""

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.admin.finalize()  # cursors need the newest feature level
            await (await client.create_log("orders")).append(b"k", b"v")
            rows = (await client.status())["ranges"]
            (of_log,) = (row for row in rows if row["log"] == "orders")
            where = {
                "range": of_log["id"], "generation": of_log["generation"], "node": 1, "through": 1,
                "applied": 1, "timeout_ms": 500, "end": 2,
            }  # fmt: skip
            for operation in REQUESTS:
                if operation.name in ("join", "node_drain", "node_remove", "delete_log"):
                    continue  # they are served for sure, and change what the others need
                link = await linked(cluster.nodes[0], operation)
                body = operation.request.sample(random.Random(operation.number))
                if operation.sender is Sender.CLIENT:
                    body |= {name: where[name] for name in where.keys() & body.keys()}
                code = await answered(link, operation, body)
                assert code not in (Unsupported.code, LognodeError.code), operation
                link.close()

    asyncio.run(run())
