"""Messages with one fault each, of every operation and every Raft message, to real nodes.

A program that has the secret of the cluster speaks to each node in the name of each node. No node
stops, calls another DEAD, logs an error, or has a turn of its event loop of over 50 ms of processor
time. `LOGNODE_FAULTY=20000 pytest ...` sends more messages, `LOGNODE_FAULTY_SEED=7` the same again.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_messages import Body, Group, of_raft, of_the_table
from intruder import Intruder
from loose_operations import loosened
from metrics_page import metric

import lognode
from lognode import testing
from lognode.client.connection import Connection, dial
from lognode.client.protocol import OPERATIONS, Operation, Sender
from lognode.client.protocol.address import split_address
from lognode.client.protocol.errors import (
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    RemoteProtocolError,
    Unavailable,
)
from lognode.client.protocol.peers import BOOTSTRAP, RAFT, TAKE_OVER

pytestmark = pytest.mark.cluster

MESSAGES = int(os.environ.get("LOGNODE_FAULTY", "1000"))
SEED = int(os.environ.get("LOGNODE_FAULTY_SEED") or random.SystemRandom().randrange(1 << 32))
SECRET = b"the secret of this very cluster"
REFUSALS = {InvalidArgument.code, LimitExceeded.code}
LONG_TURNS = "lognode_event_loop_long_turns_total"
LONGEST_TURN = "lognode_event_loop_turn_cpu_seconds"
SENDERS = 3
"""Connections to a node at a time: a known node may open only a few."""
REFRESH_EVERY = 100
"""Messages between two looks at the terms of the groups."""
QUIET = ("debug", "info", "warning")
TOLD = "the node drops a message of a member that cannot be true"
"""The one error that an operator is to see: once for each group and reason."""


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    root = module_path
    (root / "secret").touch(0o600)
    (root / "secret").write_bytes(SECRET)
    flags = ("--balance", "off", "--secret-file", str(root / "secret"))
    with testing.cluster(root, 3, flags=flags) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("orders").append(b"k", b"first")
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def unhurt(cluster: testing.LocalCluster) -> Iterator[None]:
    """Check at the end what the messages have cost the nodes."""
    pids = [node.pid for node in cluster.nodes]
    long_turns = [metric(node, LONG_TURNS) for node in cluster.nodes]
    began = [node.log_path.stat().st_size for node in cluster.nodes]
    yield
    assert [node.pid for node in cluster.nodes] == pids
    assert all(node.running for node in cluster.nodes)
    with lognode.Client(cluster.servers, timeout=20) as client:
        ack = client.log("orders").append(b"k", b"after")
        assert abs(ack.timestamp_ms - time.time() * 1000) < 60_000
        client.create_log(f"after-{random.randrange(1 << 40)}")
    time.sleep(0.5)  # a node counts its turns four times a second
    for node, long_before, size in zip(cluster.nodes, long_turns, began, strict=True):
        assert metric(node, LONG_TURNS) == long_before
        with node.log_path.open("rb") as log:
            log.seek(size)
            for line in log.read().decode().splitlines():
                assert line.startswith("{"), f"node {node.number} logged {line}"
                told = json.loads(line)
                assert told["level"] in QUIET or told["message"] == TOLD, line
                assert "Traceback" not in line
        assert 'result="INTERNAL"' not in page_of(node)
        assert metric(node, "lognode_damaged_replicas") == 0


def page_of(node: testing.LocalNode) -> str:
    """All metrics."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


async def nobody_is_dead(client: lognode.AsyncClient, cluster: testing.LocalCluster) -> None:
    """Look at the states of the nodes, and at their longest turns, without an end."""
    longest = [0.0] * len(cluster.nodes)
    try:
        while True:
            rows = (await client.metadata())["nodes"]
            states = {row["id"]: row["state"] for row in rows if row["id"] <= len(longest)}
            assert set(states.values()) == {"ACTIVE"}, states
            turns = [await asyncio.to_thread(metric, node, LONGEST_TURN) for node in cluster.nodes]
            longest = list(map(max, longest, turns))
            await asyncio.sleep(1.0)
    finally:
        print("longest turns:", [f"{each * 1e3:.1f} ms" for each in longest])


async def during(cluster: testing.LocalCluster, attack: Any) -> None:
    """Run the attack while another client appends and looks at the states of nodes."""
    intruder = Intruder(cluster.nodes, secret=SECRET)
    async with lognode.AsyncClient(cluster.servers, timeout=20) as client:
        watch = asyncio.create_task(nobody_is_dead(client, cluster))
        try:
            await intruder.join()
            await attack(intruder, client)
            assert not watch.done(), watch.exception()
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            await intruder.leave()


# Requests.


async def linked(intruder: Intruder, node: testing.LocalNode, operation: Operation) -> Connection:
    """A connection on which the operation may be sent."""
    if operation.sender is Sender.STRANGER:
        return await intruder.fresh(node)
    if operation.sender is Sender.PEER:
        return await intruder.as_node(node)
    host, port = split_address(node.address)
    return await dial(host, port, role="client")


@pytest.mark.usefixtures("unhurt")
def test_every_faulty_request_is_refused_and_hurts_no_node(cluster: testing.LocalCluster) -> None:
    print(f"seed {SEED}")
    asked = [op for op in OPERATIONS.values() if op.answer is not None and op is not BOOTSTRAP]
    rng = random.Random(SEED)
    every = list(of_the_table(asked))
    rng.shuffle(every)
    messages = list(itertools.islice(itertools.cycle(every), MESSAGES // 2))

    async def attack(intruder: Intruder, client: lognode.AsyncClient) -> None:
        log = client.log("orders")
        links: dict[tuple[int, Sender], Connection] = {}
        for at, (operation, why, body) in enumerate(messages):
            node = rng.choice(cluster.nodes)
            who = node.number, operation.sender
            if who not in links:
                links[who] = await linked(intruder, node, operation)
            deadline = asyncio.get_running_loop().time() + 30
            with pytest.raises(LognodeError) as caught:
                await links[who].request(loosened(operation), body, deadline=deadline)
            assert caught.value.code in REFUSALS, f"{operation} {why}: {caught.value}"
            if at % 1_000 == 0:
                await log.append(b"k", b"still here")
        for link in links.values():
            assert link.lost is None
            link.close()

    asyncio.run(during(cluster, attack))


# Raft messages.


def groups(intruder: Intruder, node: testing.LocalNode) -> list[Group]:
    """The controller and the log's range, as they are at the node."""
    metadata = intruder.metadata
    (range_,) = metadata.ranges_of(metadata.log_named("orders").log_id)
    rows = {row["range"]: row for row in node.status()["replicas"]}
    found = []
    for each in (range_, metadata.controller):
        row = rows.get(each.range_id)
        if row is not None:
            found.append(
                Group(each.range_id, each.generation, each.fingerprint(), row["term"],
                      row["commit"])
            )  # fmt: skip
    return found


async def send_all(
    intruder: Intruder, node: testing.LocalNode, number: int, bodies: list[tuple[str, Body]],
    ends: Counter[str],
) -> None:  # fmt: skip
    """Send the frames in the name of a node. After each frame the connection has ended, or serves
    a request: so the node is done with the frame."""
    link: Connection | None = None
    for why, body in bodies:
        if link is None or link.lost is not None:
            link = await intruder.as_node(node, number)
        link.send(loosened(RAFT), body)
        deadline = asyncio.get_running_loop().time() + 30
        try:
            await link.request(TAKE_OVER, {"groups": []}, deadline=deadline)
        except LognodeError as error:
            ended = link.lost
            ends[f"{why}: {error}" if ended is None else ended.code] += 1
        else:
            ends["goes on"] += 1
    if link is not None:
        link.close()


@pytest.mark.usefixtures("unhurt")
def test_every_faulty_raft_message_hurts_no_node(cluster: testing.LocalCluster) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    ends: Counter[str] = Counter()

    async def attack(intruder: Intruder, client: lognode.AsyncClient) -> None:
        log = client.log("orders")
        sent = 0
        while sent < MESSAGES // 2:
            await intruder.refresh()
            work = []
            for node in cluster.nodes:
                others = [n for n in (1, 2, 3) if n != node.number]
                known = await asyncio.to_thread(groups, intruder, node)
                for number in (*others, intruder.number)[:SENDERS]:
                    every = list(of_raft(rng.choice(known), intruder.frame(number)))
                    bodies = rng.sample(every, REFRESH_EVERY // 6)
                    sent += len(bodies)
                    work.append(send_all(intruder, node, number, bodies, ends))
            await asyncio.gather(*work)
            await log.append(b"k", b"still here")

    asyncio.run(during(cluster, attack))
    print(dict(ends))
    assert ends.total() >= MESSAGES // 2
    # Bytes that a node has not read when it closes may take its last words from the other side.
    assert set(ends) <= {"goes on", RemoteProtocolError.code, Unavailable.code}
    assert min(ends["goes on"], ends[RemoteProtocolError.code]) > MESSAGES // 50
    assert ends[Unavailable.code] <= MESSAGES // 50


def test_the_faults_of_raft_messages_reach_every_field() -> None:
    """Of each kind of message each field, and what the frame itself says."""
    group = Group(1, 2, b"f", 3, 4)
    frame = {"boot": 1, "process": 1, "clock": 1, "ping": [0, 0, []]}
    every = list(of_raft(group, frame))
    whys = {why.split(" is ")[0] for why, _ in every}
    print(f"{len(every)} messages, {len(whys)} fields")
    assert len(every) > 2_000
    for kind, message in group.messages():
        for at in range(len(message)):
            if kind != "append":
                assert f"{kind}: messages/0/3/{at}" in whys
    for name in ("boot", "process", "clock", "ping/0", "ping/2/0/1"):
        assert f"ping: {name}" in whys
