"""Whatever a body holds, it is refused with a reason, hurts nobody else and changes nothing."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from live_nodes import LiveCluster, live, until
from loose_operations import loosened

import lognode
from lognode.client.connection import Connection
from lognode.client.protocol import OPERATIONS
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import CorruptData, InvalidArgument, LognodeError
from lognode.client.protocol.peers import RAFT
from lognode.client.protocol.reads import FOLLOW
from lognode.client.protocol.records import encode_batch, open_batch

pytestmark = pytest.mark.cluster

STRANGE: tuple[Any, ...] = (
    None, True, -1, 1 << 63, (1 << 64) - 1, 1.5, "", "text", b"", b"bytes", b"x" * 600,
    [], [None], [[1, 2, 3]], {}, {"a": 1}, {1: [2]}, [b"\x00" * 40],
)  # fmt: skip
"""What no field expects, some of it of the right type."""

READ = {"range": 1, "generation": 1}
CLIENT_OPS: dict[str, dict[str, Any]] = {
    "metadata": {"log": "orders", "at_least": 0, "start_key": b"k", "limit": 5, "nodes": False,
                 "after": 0},
    "ranges": {"after": 0, "limit": 5, "range": 1, "at_least": 0},
    "status": {"after": [1, 0], "limit": 5},
    "producers": {"after": 0, "limit": 5},
    "producer_delete": {"name": "no such name"},
    "create_log": {"name": "new", "ranges": 1, "split_at": None, "replicas": 1,
                   "retention_ms": None, "retention_bytes": None, "cleanup": "delete"},
    "alter_log": {"name": "orders", "changes": {"retention_ms": 1 << 40}},
    "delete_log": {"name": "no such log"},
    "producer_open": {"name": None},
    "health": {"nodes": 1},
    "append": {**READ, "batches": []},
    "trim": {**READ, "keys": [[b"k", 1]]},
    "delete_keys": {**READ, "keys": [[b"other", 1]]},
    "lease": {**READ, "lease": "job", "start_key": b"", "end_key": None, "through": 0,
              "lease_ms": 1000, "renew": False},
    "release": {**READ, "lease": "job"},
    "fence": {**READ, "id": 10**9, "epoch": 1},
    "scan": {**READ, "key": b"k", "start": 1, "end": None, "limit": 10, "bytes": 1000,
             "consistency": "prefix", "node": None, "through": None, "timeout_ms": 50},
    "latest": {**READ, "key": b"k", "timeout_ms": 50, "applied": 0},
    "count": {**READ, "key": b"k", "start": 1, "end": 5},
    "keys": {**READ, "prefix": b"", "start_after": None, "limit": 5},
    "read_span": {**READ, "start_key": b"", "end_key": None, "start": 1, "limit": 5},
    "export": {**READ, "start_key": b"", "end_key": None, "position": [[[1, 9, b"k", 7]], 20],
               "limit": 5, "as_of": None},
    "resolve": {**READ, "key": b"k", "start": ["tail", 1]},
    "producer_number": {**READ, "producer": 1, "number": 1},
}  # fmt: skip
PEER_OPS: dict[str, dict[str, Any]] = {
    "join": {"node": None, "incarnation": 5, "boot": 0, "process": 1, "address": "h:1",
             "http": "h:2", "zone": ""},
    "base": dict(READ),
    "file": {"id": "0" * 64, "offset": 0},
    "heartbeat": {"generation": 1, "version": 0, "leaders": [], "damaged": []},
    "report": {"operation": 1, "kind": "prepared", "lineage": [1, 1, 2, 1, 1, 0, b"h"]},
    "command": {"command": {"op": "delete_log", "name": "no such log"}},
    "image_page": {"since": [1, 1], "after": [5, 5], "source": "known"},
    "producers_page": {"after": 0, "limit": 5},
    "controller_install": {
        "descriptor": {"id": 0, "generation": 9, "log": 0, "start": b"", "end": None,
                       "members": [1]},
        "page": {"begins": True, "full": True, "generation": 9, "version": 5,
                 "buckets": [["head", 0, b""]], "next": None},
        "applied": [1, 0]},
    "take_over": {"groups": [[7, 7]]},
}  # fmt: skip
HONEST = {
    "INVALID_ARGUMENT", "LIMIT_EXCEEDED", "RANGE_NOT_FOUND", "GENERATION_MISMATCH",
    "LOG_NOT_FOUND", "NOT_FOUND", "NODE_NOT_FOUND", "TIMEOUT", "NOT_LEADER", "UNSUPPORTED",
    "LOG_EXISTS",
}  # fmt: skip
"""Answers that a malformed body may get, if any of its fields still means something."""
RAFT_BODY = {"messages": [], "boot": 1, "process": 1, "clock": 1}


def variants(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Nothing at all; each field missing; each field of every strange value."""
    found: list[dict[str, Any]] = [{}]
    for name in body:
        found.append({other: value for other, value in body.items() if other != name})
        found += [{**body, name: value} for value in STRANGE]
    return found


async def ask(connection: Connection, op: str, body: dict[str, Any]) -> str:
    """The code of the answer."""
    deadline = asyncio.get_running_loop().time() + 5
    try:
        await connection.request(loosened(OPERATIONS[op]), body, deadline=deadline)
    except LognodeError as error:
        refused = error
    else:
        return "OK"
    assert "\n" not in refused.message
    return refused.code


async def still_serves(cluster: LiveCluster, client: lognode.AsyncClient, value: bytes) -> None:
    log = client.log("orders")
    await log.append(b"k", value)
    entry = await log.latest(b"k")
    assert entry is not None
    assert entry.value == value
    assert cluster.nodes[0].node.shutdown.failure is None


def test_malformed_bodies_are_refused_and_the_node_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            await still_serves(cluster, client, b"before")
            node = cluster.nodes[0]
            connection, peer = await node.client(), await node.peer()
            for op, body in itertools.chain(CLIENT_OPS.items(), PEER_OPS.items()):
                asked = connection if op in CLIENT_OPS else peer
                codes = {await ask(asked, op, each) for each in variants(body)}
                assert codes <= HONEST | {"OK"}, op
                assert codes & HONEST, f"{op} takes everything"
                await still_serves(cluster, client, op.encode())
            assert connection.lost is None
            assert peer.lost is None
            # Nothing of it was kept where it could hurt later.
            assert all(record.name == "orders" or record.name in ("new", "text")
                       for record in node.node._view.metadata.logs.values())  # fmt: skip
            connection.close()
            peer.close()

    asyncio.run(run())


def test_malformed_follow_is_refused(tmp_path: Path) -> None:
    follow = {**READ, "keys": None, "prefix": None, "start_key": b"", "end_key": None,
              "from_seq": 1, "credit": 1000}  # fmt: skip

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            await still_serves(cluster, client, b"before")
            connection = await cluster.nodes[0].client()
            codes: list[str] = []
            for body in variants(follow):
                stream = await connection.stream(loosened(FOLLOW), body, credit_bytes=1000)
                try:
                    async with asyncio.timeout(0.02):
                        await anext(aiter(stream))
                except TimeoutError:
                    pass  # nothing new: a follow that waits
                except LognodeError as error:
                    codes.append(error.code)
                finally:
                    stream.cancel()
            assert set(codes) <= HONEST
            assert codes.count(InvalidArgument.code) > 30
            await still_serves(cluster, client, b"after")
            connection.close()

    asyncio.run(run())


BAD_ITEMS: tuple[Any, ...] = ("x", -1, {}, [[1]], [[1, 1, b"f", 5]], [["1", 1, b"", []]])
BAD_MESSAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("node", "raft", {}),
    *(("node", "raft", {**RAFT_BODY, name: value}) for name in RAFT_BODY for value in BAD_ITEMS),
    ("client", "raft", RAFT_BODY),
    ("client", "producer_close", {}),
    ("client", "producer_close", {**READ, "id": b"5"}),
]


def test_a_malformed_one_way_message_ends_its_connection_only(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            node = cluster.nodes[0]
            for role, op, body in BAD_MESSAGES:
                connection = await (node.peer() if role == "node" else node.client())
                connection.send(OPERATIONS[op], body)
                await until(lambda c=connection: c.lost is not None, f"{op} {body} ends it")
                await still_serves(cluster, client, b"after")

    asyncio.run(run())


def test_a_malformed_raft_message_ends_only_its_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            await still_serves(cluster, client, b"before")
            node = cluster.nodes[0]
            (replica,) = node.host.ranges()
            replica.members = (1, 99)  # as if 99 were a member
            connection = await node.peer(99)
            item = [*replica.gid, replica.fingerprint, [77, "not", "a", "message"]]
            connection.send(RAFT, {**RAFT_BODY, "messages": [item]})
            await until(lambda: connection.lost is not None, "the connection ends")
            await still_serves(cluster, client, b"after")

    asyncio.run(run())


def names_a_client(data: bytes) -> bool:
    """Whether a sound batch has the producer id of a client, as the cluster numbers them.

    Without tokens, everybody may use every id. The range would take the next record of the test's
    own client for a repetition.
    """
    try:
        return 0 < open_batch(data).producer < 1000
    except CorruptData:
        return False


@pytest.mark.parametrize("seed", [random.randrange(1 << 30), 412938319], ids=["new", "forged"])
def test_x22_batches_of_any_bytes_stop_nobody(tmp_path: Path, seed: int) -> None:
    """A batch is checked whole before it is proposed; what passes can be read and built."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    sound = [
        encode_batch([b"k%d" % n for n in range(20)], [b"v" * n for n in range(20)],
                     producer=producer, epoch=1, low=1, numbers=1, compress=compress)
        for producer, compress in ((0, False), (10**9, False), (10**9 + 1, True))
    ]  # fmt: skip

    def spoilt() -> bytes:
        data = bytearray(rng.choice(sound))
        how = rng.randrange(4)
        if how == 0:
            del data[rng.randrange(len(data)) :]
        elif how == 1:
            return rng.randbytes(rng.randrange(200))
        else:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        return spoilt() if names_a_client(bytes(data)) else bytes(data)

    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await client.create_log("orders")
            await still_serves(cluster, client, b"before")
            connection = await cluster.nodes[0].client()
            codes: dict[str, int] = {}
            for _ in range(60):
                body = {**READ, "batches": [spoilt() for _ in range(25)]}
                deadline = asyncio.get_running_loop().time() + 5
                answer = await connection.request(APPEND, body, deadline=deadline)
                for result in answer["results"]:
                    code = result["error"]["code"] if result["status"] == "error" else "ok"
                    codes[code] = codes.get(code, 0) + 1
            assert codes.keys() <= {
                "ok", "CORRUPT_DATA", "INVALID_ARGUMENT", "LIMIT_EXCEEDED", "FENCED",
                "OUT_OF_ORDER", "SEQUENCE_MISMATCH", "GENERATION_MISMATCH",
            }  # fmt: skip
            assert codes["CORRUPT_DATA"] > 100
            await still_serves(cluster, client, b"after")
            (replica,) = cluster.nodes[0].host.ranges()
            await cluster.nodes[0].node._flusher.flush(replica)
            assert len(replica.state.manifest) == 1
            await still_serves(cluster, client, b"from the segment")
            assert not cluster.nodes[0].host.damaged
            connection.close()

    asyncio.run(run())
