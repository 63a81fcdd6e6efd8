"""The largest valid requests of every operation, to a real node: no turn of its loop is long.

What a turn of the event loop does holds up every connection. So no request may buy a turn of over
50 ms of processor time, whatever its content.
"""

import asyncio
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from intruder import Intruder
from largest_messages import Body, largest
from loose_operations import loosened
from metrics_page import metric

import lognode
from lognode import testing
from lognode.client.connection import Connection, dial
from lognode.client.protocol import OPERATIONS, Operation, Sender, limits
from lognode.client.protocol.address import split_address
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import DELETE_LOG
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.peers import BOOTSTRAP, COMMAND, RAFT, TAKE_OVER
from lognode.client.protocol.reads import READS
from lognode.client.protocol.records import encode_batch
from lognode.node.local.dev import LocalNode
from lognode.partitions import commands

pytestmark = pytest.mark.cluster

LONG_TURNS = "lognode_event_loop_long_turns_total"
LONGEST_TURN = "lognode_event_loop_turn_cpu_seconds"
LOG, OTHER, KEY = "orders", "other", b"k"
MANY = 20_000
LOOK_S = 0.3
"""A node counts its turns four times a second."""
TIMEOUT_S = 30.0
TRIES = 3


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    """A node with a key of many entries, and many keys; and 256 ranges."""
    with testing.cluster(module_path, 1) as cluster:
        with lognode.Client(cluster.servers, timeout=60) as client:
            log = client.create_log(LOG, ranges=1)
            log.append_many([(KEY, b"%d" % n) for n in range(MANY)])
            log.append_many([(b"key%06d" % n, b"v") for n in range(MANY)])
            client.create_log(OTHER, ranges=1)
            client.create_log("wide", ranges=256).append(b"k", b"v")
        testing.wait_healthy(cluster)
        yield cluster


def appends() -> Iterator[tuple[str, Body]]:
    """The largest appends that are applied."""
    most = limits.batch_records_max

    def batch(count: int, **more: Any) -> bytes:
        keys = [b"key%06d" % n for n in range(count)]
        values = more.pop("values", [b"v"] * count)
        return encode_batch(keys, values, producer=0, epoch=1, low=1, numbers=1, **more)

    yield "many records", {"batches": [batch(most)]}
    yield "many batches", {"batches": [batch(most // 256)] * 256}
    yield "conditions", {"batches": [batch(most, expects=[0] * most)]}
    value = bytes(range(100))
    yield "compressed", {"batches": [batch(most, values=[value] * most)]}
    headers = [{b"%d" % name: b"" for name in range(20)} for _ in range(most // 10)]
    yield "headers", {"batches": [batch(most // 10, headers=headers)]}
    scattered = list(range(1, 2 * most, 2))
    numbers = encode_batch(
        [KEY] * most, [b"v"] * most, producer=1 << 40, epoch=1, low=1, numbers=scattered
    )
    yield "scattered numbers", {"batches": [numbers]}
    yield "the same again", {"batches": [numbers]}


def reads(operation: Operation) -> Iterator[tuple[str, Body]]:
    """The largest pages."""
    fields = operation.request.shape
    size = {"limit": limits.page_entries_max, "bytes": limits.page_bytes_max}
    for why, more in (
        ("of one key", {"key": KEY}), ("of all keys", {"start_key": b""}),
        ("backwards", {"key": KEY, "reverse": True}),
    ):  # fmt: skip
        if more.keys() <= fields.keys():
            found = {**size, "limit": limits.keys_page_max} if operation.name == "keys" else size
            yield why, {**{n: v for n, v in found.items() if n in fields}, **more}


def metadata_commands(names: Iterable[str]) -> Iterator[tuple[str, Body]]:
    """The largest of these commands that nodes forward."""
    keys = [b"%x" % n + bytes(470) for n in range(limits.ranges_per_log_max - 1)]
    for name in sorted(names):
        yield name, {"command": {"op": name, "name": "x" * 100, "split_at": keys}}


def bodies(operation: Operation, known: Body) -> Iterator[tuple[str, Body]]:
    """What is asked of the operation."""
    yield from largest(operation, known)
    place = {name: known.get(name) for name in ("range", "generation")}
    if operation is APPEND:
        yield from ((why, {**place, **body}) for why, body in appends())
    elif operation in READS:
        plain = {n: v for n, v in known.items() if n in operation.request.shape}
        yield from ((why, {**plain, **body}) for why, body in reads(operation))
    elif operation is COMMAND:
        yield from metadata_commands(commands.FORWARDED - {commands.CREATE_LOG})
    elif operation is TAKE_OVER:
        rows = [[range_id, 1] for range_id in range(limits.taken_over_max)]
        yield "of real groups", {"groups": rows}


def known_to(operation: Operation, range_: Any, intruder: Intruder) -> Body:
    """What fields of requests name: the log's range, and things that may go."""
    log = OTHER if operation.sender is Sender.OPERATOR else LOG
    found = {
        "range": range_.range_id, "generation": range_.generation, "key": KEY, "log": log,
        "start": "earliest" if operation.name == "resolve" else 1, "node": intruder.number,
    }  # fmt: skip
    if operation in READS or operation.name in ("append", "fence", "trim", "release"):
        del found["node"]
    if operation is RAFT:
        return intruder.frame(intruder.number)
    if operation is not DELETE_LOG:
        found["name"] = log
    return found if operation.sender is not Sender.STRANGER else intruder.registration()


async def linked(intruder: Intruder, operation: Operation) -> Connection:
    """A connection on which the operation may be sent."""
    (node,) = intruder.nodes
    if operation.sender is Sender.STRANGER:
        return await intruder.fresh(node)
    if operation.sender is Sender.PEER:
        return await intruder.as_node(node)
    return await dial(*split_address(node.address), role="client")


async def send(link: Connection, operation: Operation, body: Body) -> bool:
    """Send the request and wait for its end. Return whether the node refused it."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    if operation.answer is None:
        link.send(loosened(operation), body)
    elif operation.streams:
        await link.stream(loosened(operation), body, credit_bytes=1 << 20)
        await asyncio.sleep(LOOK_S)
        link.close()
    else:
        try:
            await link.request(loosened(operation), body, deadline=deadline)
        except LognodeError:  # what a node refuses takes time as well
            return True
    return False


def turns_and_collections(node: LocalNode) -> tuple[float, int]:
    """How many long turns the node has had, and how many counts and collections of old garbage.

    A node collects when its containers have doubled, as they do behind a CREATE_LOG, and counts
    them when they may have. Such a turn is not the request's (`node/runtime/garbage.py`), and the
    request is sent again. A node counts the turn after it has logged the work. So the turns are
    read before the log, and collections since the request before count too.

    A read, and a write that is refused, are sent again after any long turn. Their work is the same
    each time, so it is to blame if each turn is long; what a node does by itself, or a reclaim of
    the kernel's, does not come three times.
    """
    long_turns = metric(node, LONG_TURNS)
    told = node.log_path.read_text("utf-8")
    return long_turns, told.count("garbage collected") + told.count("containers counted")


@pytest.mark.parametrize("name", [n for n, op in OPERATIONS.items() if op is not BOOTSTRAP])
def test_no_largest_request_takes_a_long_turn(cluster: testing.LocalCluster, name: str) -> None:
    operation = OPERATIONS[name]
    no_long_turn(cluster, operation, lambda known: bodies(operation, known))


@pytest.mark.by_hand
def test_no_largest_log_takes_a_long_turn(cluster: testing.LocalCluster) -> None:
    """The log's 4,096 ranges begin behind the request."""
    no_long_turn(cluster, COMMAND, lambda _: metadata_commands([commands.CREATE_LOG]))


def no_long_turn(
    cluster: testing.LocalCluster,
    operation: Operation,
    made: Callable[[Body], Iterator[tuple[str, Body]]],
) -> None:
    """Send what is made of the names that the node knows; no turn of the node may be long."""
    (node,) = cluster.nodes

    async def main() -> dict[str, float]:
        intruder = Intruder(cluster.nodes)
        await intruder.join()
        try:
            return await sent(intruder)
        finally:
            await intruder.leave()

    async def sent(intruder: Intruder) -> dict[str, float]:
        log = intruder.metadata.log_named(LOG)
        (range_,) = intruder.metadata.ranges_of(log.log_id)
        long: dict[str, float] = {}
        link: Connection | None = None
        _, collected = await asyncio.to_thread(turns_and_collections, node)
        for why, body in made(known_to(operation, range_, intruder)):
            if link is None or link.lost is not None:
                link = await linked(intruder, operation)
            for _ in range(TRIES):
                earlier = collected
                before, collected = await asyncio.to_thread(turns_and_collections, node)
                refused = await send(link, operation, body)
                await asyncio.sleep(LOOK_S)
                after, since = await asyncio.to_thread(turns_and_collections, node)
                if after == before:
                    long.pop(why, None)
                    break
                long[why] = await asyncio.to_thread(metric, node, LONGEST_TURN)
                if since == earlier and operation.writes and not refused:
                    break
        if link is not None:
            link.close()
        return long

    pid = node.pid
    assert asyncio.run(main()) == {}
    assert (node.running, node.pid) == (True, pid)
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        assert 'result="INTERNAL"' not in answer.read().decode()
