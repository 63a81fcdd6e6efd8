"""A program that joined, or says that it has, sends a cluster whatever it can: no node ends.

Each of these attacks ended nodes, took over another's identity, or emptied the metadata. After each
all nodes are the same processes, and the cluster commits.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from intruder import Intruder, item
from loose_operations import loosened
from metrics_page import metric
from msgpack import packb
from sent_metadata import Image, head, rows, sent, set_head

import lognode
from lognode import testing
from lognode.client.accepting.request import Request
from lognode.client.connection import dial
from lognode.client.protocol import OPERATIONS, frames, limits
from lognode.client.protocol.address import split_address
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.frame import encode
from lognode.client.protocol.peers import RAFT
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor

pytestmark = pytest.mark.cluster

BIG = (1 << 64) - 1
STRANGE: tuple[Any, ...] = (
    None, True, -1, 1 << 63, BIG, 1.5, float("inf"), "text", b"bytes", b"x" * 600, [], [None],
    [[1, 2, 3]], {}, {"a": 1}, {1: [2]}, [b"\x00" * 40], {0: [BIG, BIG, 4]},
)  # fmt: skip
DROPPED = "lognode_raft_messages_dropped_total"


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    root = module_path
    with testing.cluster(root, 3, flags=("--balance", "off")) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            client.create_log("orders").append(b"k", b"first")
            testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture(autouse=True)
def nothing_is_hurt(cluster: testing.LocalCluster) -> Iterator[None]:
    """The processes, the metadata, what was written: as before. And the controller commits."""
    pids = [node.pid for node in cluster.nodes]
    with lognode.Client(cluster.servers, timeout=20) as client:
        before = client.log("orders").count(b"k")
        yield
        assert [node.pid for node in cluster.nodes] == pids
        assert [node.running for node in cluster.nodes] == [True] * 3
        client.create_log(f"after-{random.randrange(1 << 40)}")
        ack = client.log("orders").append(b"k", b"after")
        assert abs(ack.timestamp_ms - time.time() * 1000) < 60_000
        for number in (1, 2, 3):
            assert client.log("orders").count(b"k", node=number) == before + 1
        for node in cluster.nodes:
            assert "stops at once" not in node.log_path.read_text("utf-8")


def attack(cluster: testing.LocalCluster, how: Callable[[Intruder], Awaitable[None]]) -> None:
    async def main() -> None:
        intruder = Intruder(cluster.nodes)
        await intruder.join()
        try:
            async with asyncio.timeout(120):
                await how(intruder)
        finally:
            await intruder.leave()

    asyncio.run(main())


def code(answer: Any) -> str:
    return answer.code if isinstance(answer, LognodeError) else "OK"


def orders(intruder: Intruder) -> Descriptor:
    log = intruder.metadata.log_named("orders")
    return intruder.metadata.ranges_of(log.log_id)[0]


def term_of(node: testing.LocalNode, range_id: int) -> tuple[int, int]:
    """Term and commit index of a replica."""
    (row,) = [r for r in node.status()["replicas"] if r["range"] == range_id]
    return row["term"], row["commit"]


# Joining and registering.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address", "a..b:4600"), ("address", "x" * 64 + ":1"), ("address", "h:\u0663"),
        ("address", "a\0b:1"), ("address", ""), ("address", None), ("address", "h" * 60_000),
        ("http", "a..b:1"), ("zone", "z" * 60_000), ("zone", "a\nb"), ("incarnation", 1 << 63),
        ("process", BIG), ("boot", 1), ("boot", 1 << 62), ("boot", BIG),
    ],
)  # fmt: skip
def test_a_join_with_a_value_that_nobody_could_use_is_refused(
    cluster: testing.LocalCluster, name: str, value: Any
) -> None:
    async def main() -> None:
        intruder = Intruder(cluster.nodes)
        for node in cluster.nodes:
            connection = await intruder.fresh(node)
            answer = await intruder.ask(connection, "join", intruder.registration(**{name: value}))
            assert code(answer) in ("INVALID_ARGUMENT", "LIMIT_EXCEEDED"), answer
            assert len(str(answer)) < 600
        await intruder.leave()

    before = {row["id"] for row in cluster.nodes[0].status()["nodes"]}
    asyncio.run(main())
    assert {row["id"] for row in cluster.nodes[0].status()["nodes"]} == before


def test_x2_24_nobody_becomes_another_node_by_its_incarnation(
    cluster: testing.LocalCluster,
) -> None:
    """A join with the incarnation of node 2 and a later boot was taken for node 2, and the true
    node was fenced, for good."""

    async def how(intruder: Intruder) -> None:
        stolen = intruder.metadata.nodes[2].incarnation
        for boot, process in ((0, 7), (10**9, 7), (0, intruder.metadata.nodes[2].process)):
            body = intruder.registration(incarnation=stolen, boot=boot, process=process)
            connection = await intruder.fresh(cluster.nodes[0])
            assert code(await intruder.ask(connection, "join", body)) == "INVALID_ARGUMENT"
            connection.close()
        register = {**intruder.registration(incarnation=stolen, boot=10**6), "node": 2}
        for node in cluster.nodes:
            connection = await intruder.as_node(node)
            body = {"command": {"op": "register", **register}}
            assert code(await intruder.ask(connection, "command", body)) == "UNAUTHORIZED"
            connection.close()

    attack(cluster, how)


PEER_OPS: dict[str, dict[str, Any]] = {
    "base": {"range": 1, "generation": 1},
    "file": {"range": 1, "generation": 1, "id": "0" * 64, "offset": 0, "bytes": 10},
    "heartbeat": {"generation": 1, "version": 0, "leaders": [], "seen": [0, 0, 0]},
    "image_page": {"source": "known", "since": [0, 0], "after": None},
    "report": {"operation": 1, "kind": "copied"},
    "command": {"command": {"op": "delete_log", "name": "orders"}},
    "loads": {},
    "take_over": {"groups": [[0, 1]]},
    "give_lead": {"range": 0, "generation": 1, "node": 1, "why": "why"},
}


def test_an_unregistered_node_or_another_directory_is_served_nothing(
    cluster: testing.LocalCluster,
) -> None:
    async def how(intruder: Intruder) -> None:
        for node in cluster.nodes:
            stranger = await intruder.as_node(node, 999)
            for op, body in PEER_OPS.items():
                assert code(await intruder.ask(stranger, op, body)) == "UNAVAILABLE", op
            with pytest.raises(lognode.Unauthorized, match="another data directory"):
                await intruder.as_node(node, 2, incarnation=5)
            silent = {"messages": [], "boot": 1, "process": 1, "clock": BIG >> 1}
            stranger.send(loosened(RAFT), {**silent, "ping": [0, 0, []]})
            stranger.close()

    attack(cluster, how)
    assert metric(cluster.nodes[0], 'lognode_peer_requests_refused_total{reason="unregistered"}')
    assert metric(cluster.nodes[0], 'lognode_peer_requests_refused_total{reason="incarnation"}')


def test_X4_a_member_with_another_directory_does_not_replace_the_node(
    cluster: testing.LocalCluster,
) -> None:
    """Hellos of node 2 with a guessed incarnation closed the links of the true node 2."""
    crowd = 'lognode_connections_ended_total{reason="peer_crowd"}'
    before = metric(cluster.nodes[0], crowd)

    async def how(intruder: Intruder) -> None:
        for _ in range(4 * limits.peer_connections_max):
            with pytest.raises(lognode.Unauthorized):
                await intruder.as_node(cluster.nodes[0], 2, incarnation=5)

    attack(cluster, how)
    assert metric(cluster.nodes[0], crowd) == before


# Clocks, boots, terms, logs.


def test_x11_made_up_nodes_and_clocks_move_no_timestamp(cluster: testing.LocalCluster) -> None:
    """Six made-up ids with clocks of 2^64 - 1: the next append ended its leader, and with clocks a
    year ahead every entry was stamped so."""
    year_ms = 366 * 86_400_000

    async def how(intruder: Intruder) -> None:
        now_ms = int(time.time() * 1000)
        for clock in (now_ms + year_ms, limits.timestamp_max_ms, (1 << 63) - 1):
            for node in cluster.nodes:
                for number in range(900, 906):
                    connection = await intruder.as_node(node, number)
                    body = {"messages": [], "boot": 1, "process": 1, "clock": clock,
                            "ping": [0, 0, []]}  # fmt: skip
                    connection.send(loosened(RAFT), body)
                    connection.close()
        connection = await intruder.as_node(cluster.nodes[0])
        for clock in (1 << 63, BIG, -1):  # which is not a number here: the connection ends
            connection = await intruder.as_node(cluster.nodes[0])
            connection.send(loosened(RAFT), intruder.frame(intruder.number, clock=clock))
            await lost(connection)

    attack(cluster, how)


async def lost(connection: Any) -> None:
    async with asyncio.timeout(10):
        while connection.lost is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_x2_24_impossible_boots_shut_no_node_out(cluster: testing.LocalCluster) -> None:
    """One frame for each node in the name of each: the controller elected nobody any more."""

    async def how(intruder: Intruder) -> None:
        await intruder.refresh()
        for node in cluster.nodes:
            for number in (1, 2, 3):
                connection = await intruder.as_node(node, number)
                for boot in (limits.boot_max, 1 << 62, (1 << 63) - 1):
                    connection.send(loosened(RAFT), intruder.frame(number, boot=boot))
                connection.close()
        await asyncio.sleep(2.0)  # longer than an election timeout

    attack(cluster, how)
    for node in cluster.nodes:
        assert metric(node, f'{DROPPED}{{reason="boot_jump"}}') >= 1.0


def test_raft_messages_that_no_member_sends_cost_their_group_nothing(
    cluster: testing.LocalCluster,
) -> None:
    """Terms that fall, that jump to 2^62, a second leader, another past: each ended the node."""

    async def how(intruder: Intruder) -> None:
        await intruder.refresh()
        range_ = orders(intruder)
        for at, node in enumerate(cluster.nodes):
            term, commit = term_of(node, range_.range_id)
            other = b"\x00other"
            messages: list[list[Any]] = [
                [1, term + 1, 1, commit, term, commit, [[0, other]]],
                [1, term + 1, 1, commit, term, commit, [[term + 2, other]]],
                [1, term + 1, 1, 1, 0, commit, [[term + 1, other]]],
                [1, term, 1, 1, 0, commit, [[term, b"\x01"]] * 3],
                [1, term, 1, commit, term, commit, []],
                [4, 1 << 62, 1, 1 << 40, 1 << 40],
                [8, (1 << 63) - 1, 1],
                [8, BIG, 1],
                [9, 1 << 62, 1, 9, 9],
                [1, 1 << 62, 1, 1, 0, 9, [[1 << 62, other]]],
            ]
            number = 2 if at != 1 else 3
            for group in (range_, intruder.metadata.controller):
                for message in messages:
                    connection = await intruder.as_node(node, number)
                    connection.send(loosened(RAFT), intruder.frame(number, [item(group, message)]))
                    connection.close()

    attack(cluster, how)
    dropped = sum(metric(node, f'{DROPPED}{{reason="term_jump"}}') for node in cluster.nodes)
    assert dropped >= 3.0
    with lognode.Client(cluster.servers) as client:
        testing.eventually(lambda: client.log("orders").count(b"k") > 0, what="it goes on")
    assert term_of(cluster.nodes[0], 1)[0] < 1 << 30


# The metadata.


def test_x29_a_controller_that_nobody_could_push_is_not_begun(
    cluster: testing.LocalCluster,
) -> None:
    """An emptied image of the next generation was taken: all logs were gone."""

    async def how(intruder: Intruder) -> None:
        await intruder.refresh()
        image = sent(intruder.metadata)
        controller = head(image, "controller")
        later = {**controller, "generation": controller["generation"] + 1}
        set_head(image, "controller", later)
        image["version"] += 1

        def page(found: Image, **more: Any) -> dict[str, Any]:
            told = [[*bucket, packb(rows)] for bucket, rows in found["buckets"].items() if rows]
            return {
                "begins": True, "full": True, "generation": later["generation"],
                "version": found["version"], "buckets": told, "next": None, **more,
            }  # fmt: skip

        sound = {"descriptor": later, "page": page(image), "applied": [1, 0]}

        def spoilt(spoil: Callable[[Image], object], base: Image = image) -> dict[str, Any]:
            found = deepcopy(base)
            spoil(found)
            return {**sound, "page": page(found)}

        def emptied(found: Image) -> None:
            for table in ("logs", "ranges", "operations"):
                rows(found, table).clear()

        far = {**later, "generation": 1 << 62}
        fresh = sent(Metadata())
        set_head(fresh, "controller", later)
        pushes: dict[str, dict[str, Any]] = {
            "emptied": spoilt(emptied),
            "all new": {**sound, "page": page(fresh)},
            "one log less": spoilt(lambda found: rows(found, "logs").pop(0)),
            "a node less": spoilt(lambda found: rows(found, "nodes").pop()),
            "of another cluster": spoilt(lambda found: set_head(found, "cluster", "another")),
            "far ahead": {
                **spoilt(lambda found: set_head(found, "controller", far)), "descriptor": far,
            },
            "of range 1": {**sound, "descriptor": {**later, "id": 1}},
            "of others": {**sound, "descriptor": {**later, "members": [2, 99]}},
            "of another generation": spoilt(lambda f: set_head(f, "controller", controller)),
            "before the first entry": {**sound, "applied": [-1, 0]},
            "beyond all entries": {**sound, "applied": [BIG, 0]},
            "of a term out of reach": {**sound, "applied": [1, 1 << 40]},
            "without a page": {**sound, "page": None},
            "a second page first": {**sound, "page": page(image, begins=False)},
            "with a strange page": {**sound, "page": page(image, buckets=[["logs", 0, b"\xc1"]])},
            "with strange members": {**sound, "descriptor": {**later, "members": ["a"]}},
            "without anything": {},
        }  # fmt: skip
        for what, body in pushes.items():
            for node in cluster.nodes:
                connection = await intruder.as_node(node)
                answer = await intruder.ask(connection, "controller_install", body)
                assert code(answer) in ("INVALID_ARGUMENT", "CONFLICT"), what
                connection.close()

    attack(cluster, how)
    with lognode.Client(cluster.servers) as client:
        assert "orders" in {log["name"] for log in client.logs()}


def test_a_member_that_says_that_it_leads_is_not_asked(cluster: testing.LocalCluster) -> None:
    """Its heartbeat named it as leader of the controller in term 2^62, and its answers, empty maps,
    ended who asked it."""

    async def how(intruder: Intruder) -> None:
        generation = intruder.metadata.controller.generation
        leaders = [[number, generation, 1 << 62, intruder.number] for number in range(20)]
        for node in cluster.nodes:
            connection = await intruder.as_node(node)
            await intruder.ask(
                connection, "heartbeat",
                {"generation": generation, "version": 0, "leaders": leaders, "seen": [0, 0, 0],
                 "damaged": []},
            )  # fmt: skip
            connection.close()
        await asyncio.sleep(2.0)
        assert "heartbeat" not in intruder.asked

    attack(cluster, how)


# Answers, and everything else.


def test_a_member_that_answers_anything_ends_nobody(cluster: testing.LocalCluster) -> None:
    """All that is asked of it is answered by something else each time; and the hello of its
    listener, when it is dialled again, by an error whose fields are none."""
    rng = random.Random(5)
    names = ("page", "leaders", "seen", "damaged", "loads", "held", "base", "data", "given",
             "tail_bytes", "short", "sound")  # fmt: skip

    def answer(request: Request) -> Any:
        return {name: rng.choice(STRANGE) for name in names if rng.random() < 0.7}

    async def how(intruder: Intruder) -> None:
        intruder.answer = answer
        async with lognode.AsyncClient(cluster.servers, timeout=10) as client:
            await intruder.refresh()
            links = [await intruder.as_node(node) for node in cluster.nodes]
            for _ in range(300):
                for link in links:  # or it would be taken for a node that is away
                    link.send(loosened(RAFT), intruder.frame(intruder.number))
                await client.status()
                await client.admin.recovery(1)
                await asyncio.sleep(0.1)
                if intruder.asked.get("loads", 0) >= 20:
                    break
            assert "loads" in intruder.asked, intruder.asked
            for link in links:
                link.close()

    attack(cluster, how)


def test_a_listener_that_answers_a_hello_by_anything_ends_nobody(
    cluster: testing.LocalCluster,
) -> None:
    """An error with a field of the name `message`: TypeError ended the link, and the node."""
    hellos = [
        encode(0, frames.ERROR, {"code": "UNAVAILABLE", "message": "x", "fields": {"message": 1}}),
        encode(0, frames.ERROR, {"code": [1], "message": {}, "fields": [1]}),
        encode(0, frames.ERROR, {}),
        encode(0, frames.WELCOME, {}),
        encode(0, frames.WELCOME, {"version": BIG, "nonce": 5}),
        encode(0, frames.OK, {"a": 1}),
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"",
    ]
    given: list[int] = []

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(hellos[len(given) % len(hellos)])
            given.append(1)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        intruder = Intruder(cluster.nodes)
        port = server.sockets[0].getsockname()[1]
        connection = await intruder.fresh(cluster.nodes[0])
        body = intruder.registration(address=f"127.0.0.1:{port}")
        assert code(await intruder.ask(connection, "join", body)) == "OK"
        async with asyncio.timeout(60):
            while len(given) < 6 * len(hellos):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        server.close()
        await intruder.leave()

    asyncio.run(main())


def test_strange_bodies_in_the_name_of_a_member_end_nobody(
    cluster: testing.LocalCluster,
) -> None:
    """Every operation of peers, each field of every strange value, by a registered node."""

    async def how(intruder: Intruder) -> None:
        operations = {**PEER_OPS, "controller_install": {
            "descriptor": {}, "page": {"begins": True}, "applied": [1, 0],
        }, "hand_over": {"range": 1, "generation": 1, "node": 1},
            "replica_end": {"range": 1, "generation": 1}}  # fmt: skip
        del operations["command"], operations["take_over"]
        connection = await intruder.as_node(cluster.nodes[0])
        for op, body in operations.items():
            for name in body:
                for value in STRANGE:
                    answer = await intruder.ask(connection, op, {**body, name: value})
                    assert code(answer) not in ("ERROR", "TIMEOUT"), (op, name, value, answer)
        for command in STRANGE:
            for body in ({"command": command}, {"command": {"op": command}}):
                answer = await intruder.ask(connection, "command", body)
                assert code(answer) not in ("OK", "ERROR"), body
        connection.close()

    attack(cluster, how)


# Numbers of clients.


def test_numbers_over_63_bits_are_refused_before_they_are_proposed(
    cluster: testing.LocalCluster,
) -> None:
    async def main() -> None:
        async with lognode.AsyncClient(cluster.servers) as client:
            await client.log("orders").count(b"k")  # somebody leads the range
            row: Any = {"leader": None}
            for _ in range(200):
                status = await client.status()
                row = next(r for r in status["ranges"] if r["log"] == "orders")
                if row["leader"] is not None:
                    break
                await asyncio.sleep(0.05)
            assert row["leader"] is not None, "the true leader is known"
        leader = cluster.nodes[row["leader"] - 1]
        link = await dial(*split_address(leader.address))
        place = {"range": row["id"], "generation": row["generation"]}
        for number in (1 << 63, BIG):
            for op, body in (
                ("trim", {**place, "keys": [[b"k", number]]}),
                ("delete_keys", {**place, "keys": [[b"k", number]]}),
                ("fence", {**place, "id": 5, "epoch": number}),
                ("fence", {**place, "id": number, "epoch": 1}),
                ("lease", {**place, "lease": "job", "lease_ms": 5, "through": number}),
                ("alter_log", {"name": "orders", "changes": {"retention_ms": number}}),
                ("alter_log", {"name": "orders", "changes": {"split_rate": number}}),
                ("create_log", {"name": "big", "retention_bytes": number}),
                ("range_move", {"range": row["id"], "from": 1, "to": number}),
                ("node_drain", {"node": number}),
            ):
                with pytest.raises(lognode.InvalidArgument):
                    await link.request(loosened(OPERATIONS[op]), body)
        link.close()

    asyncio.run(main())
