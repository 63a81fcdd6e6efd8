"""What arrives on a port is not trusted: each connection ends with a reason, nobody else is hurt.

Two clusters and a crowd of strangers; appends go on all the while, and nothing is lost.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size
from strangers import HEADER, Stranger, framed, hello, peak_bytes

import lognode
from lognode import testing
from lognode.client.protocol import frames, wire
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import STATUS
from lognode.client.protocol.frame import encode
from lognode.client.protocol.peers import BASE, COMMAND, CONTROLLER_INSTALL, HEARTBEAT, RAFT
from lognode.client.protocol.records import encode_batch

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
SECRET = b"the secret of this very cluster"
OTHER_SECRET = b"the secret of some other cluster"
MIB = 1 << 20


GOOD = encode(1, STATUS.number, {})
BOMB = {
    "a wrong checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum"),
    "an absurd length": (HEADER.pack(0xFFFFFFFF, 0) + b"x" * 100, "4294967295"),
    "a nesting bomb": (framed(b"\x93\x01\xa1x" + b"\x91" * 100_000 + b"\x00"), "nest"),
    "a container bomb": (
        framed(b"\x93\x01\xa1x\x81\xa1k\xdc\xff\xff" + b"\xdc\x00\x10" + b"\x90" * 16 * 65_534),
        "",
    ),
    "an array that claims more than it has": (framed(b"\x93\x01\xa1x\xdd\xff\xff\xff\xff"), ""),
    "no message": (framed(msgpack.packb({"a": 1})), ""),
    "an extension type": (framed(b"\x93\x01\xa1x\x81\xa1k\xc7\x01\x05\x00"), "ext"),
    "garbage": (b"EHLO localhost\r\nMAIL FROM: <a@localhost>\r\n\r\n", ""),
}


@pytest.fixture(scope="module")
def guarded(module_path: Path) -> Iterator[testing.LocalCluster]:
    """Three nodes that share a secret, with appends going on."""
    root = module_path
    for name, secret in (("secret", SECRET), ("other", OTHER_SECRET)):
        (root / name).touch(0o600)
        (root / name).write_bytes(secret)
    flags = ("--secret-file", str(root / "secret"))
    with testing.cluster(root, 3, flags=flags) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def load(guarded: testing.LocalCluster) -> Iterator[Load]:
    """What goes on while strangers come; checked when all have gone."""
    with lognode.Client(guarded.servers, timeout=20) as client:
        client.create_log("log", split_at=["own", "register", "shared"])
    stays = guarded.nodes[:2]
    pids = [node.pid for node in stays]
    size = Size(writers=1, conditional=1, named=1, readers=1)
    with Load(guarded.servers, "log", random.randrange(1 << 32), size) as load:
        yield load
        load.go_on(20)
    assert all(node.running for node in guarded.nodes)
    assert [node.pid for node in stays] == pids
    assert not [a for a in load.told.attempts if a.expect is None and a.outcome != "ok"]
    assert load.slowest_s() < 3.0
    check(same_on(guarded.servers, "log", NODES), load.told)


@pytest.mark.parametrize("what", BOMB)
def test_S12_malformed_bytes_end_the_connection_with_a_reason(
    guarded: testing.LocalCluster, load: Load, what: str
) -> None:
    data, reason = BOMB[what]
    for node in guarded.nodes:
        with Stranger(node) as stranger:
            stranger.send(data)
            stranger.refused()
        with Stranger(node) as stranger:
            stranger.greet(hello())
            stranger.send(data)
            assert reason in stranger.refused()
    load.go_on(10)


def test_a_first_frame_other_than_a_hello_is_refused(guarded: testing.LocalCluster) -> None:
    with Stranger(guarded.nodes[0]) as stranger:
        stranger.send(GOOD)
        assert "hello" in stranger.refused()
    with Stranger(guarded.nodes[0]) as stranger:
        stranger.send(encode(0, frames.HELLO, {"magic": "http", "versions": [1, 1]}))
        assert "lognode" in stranger.refused()


def test_a_connection_that_says_nothing_is_closed(guarded: testing.LocalCluster) -> None:
    with Stranger(guarded.nodes[0]) as stranger:
        assert "the handshake took over" in stranger.refused()


def test_a_decompression_bomb_costs_an_error_and_no_memory(
    guarded: testing.LocalCluster, load: Load
) -> None:
    """A batch of few bytes that claims, or has, a huge column of values."""
    with lognode.Client(guarded.servers) as client:
        known = next(r for r in client.status()["ranges"] if r["log"] == "log")
    values = [bytes(64 * MIB)]
    huge = encode_batch([b"bomb"], values, producer=1, epoch=1, low=1, numbers=1)
    assert len(huge) < MIB
    node = guarded.nodes[known["leader"] - 1]
    before = peak_bytes(node)
    body = {"range": known["id"], "generation": known["generation"], "batches": [huge]}
    with Stranger(node) as stranger:
        stranger.greet(hello())
        for number in range(1, 4):
            stranger.send(encode(number, APPEND.number, {**body, "timeout_ms": 5_000}))
            frame = stranger.frame()
            assert frame is not None
            told = frame.body
            if frame.kind == frames.OK:
                (reply,) = told["results"]
                assert reply["status"] == "error"
                told = reply["error"]
            assert told["outcome"] == "not_applied"
            if frame.request_id == 0:
                break  # it ended the connection
    assert peak_bytes(node) < before + 32 * MIB
    with lognode.Client(guarded.servers) as client:
        assert client.log("log").count(b"bomb") == 0
    load.go_on(10)


def test_a_client_or_node_of_another_cluster_is_refused(guarded: testing.LocalCluster) -> None:
    """A node is told after its proof alone: nobody who has proved nothing learns anything."""
    with Stranger(guarded.nodes[0]) as stranger:
        stranger.send(encode(0, frames.HELLO, hello("client", "another-cluster", None).to_body()))
        assert "another-cluster" in stranger.refused()
    with Stranger(guarded.nodes[0], "node") as stranger:
        stranger.send(encode(0, frames.HELLO, hello("node", "another-cluster", 2).to_body()))
        answer = stranger.frame()
        assert answer is not None
        assert answer.kind == frames.WELCOME
        stranger.send(encode(0, frames.PROOF, {"proof": bytes(32)}))
        assert "another secret" in stranger.refused()


@pytest.mark.parametrize("secret", [None, OTHER_SECRET])
def test_a_node_without_the_secret_is_refused(
    guarded: testing.LocalCluster, secret: bytes | None
) -> None:
    """Neither no proof nor a wrong one lets it say a word as node 2."""
    with lognode.Client(guarded.servers) as client:
        cluster = client.status()["cluster"]["id"]
    forged = encode(0, RAFT.number, {"messages": [[1, 1, [0, 1 << 40, 1]]], "boot": 1, "clock": 1})
    for say in (
        forged,
        encode(1, COMMAND.number, {"command": {"op": "delete_log", "name": "log"}}),
    ):
        with Stranger(guarded.nodes[0], "node") as stranger:
            who = hello("node", cluster, 2)
            welcome = stranger.greet(who)
            if secret is not None:
                proof = wire.prove(secret, "dialler", who, welcome)
                stranger.send(encode(0, frames.PROOF, {"proof": proof}))
            stranger.send(say)
            assert "secret" in stranger.refused() or secret is None
    with lognode.Client(guarded.servers) as client:
        assert [log["name"] for log in client.logs()] == ["log"]


def test_a_client_cannot_speak_as_a_node(guarded: testing.LocalCluster) -> None:
    with Stranger(guarded.nodes[0]) as stranger:
        stranger.greet(hello())
        for number, op in enumerate((HEARTBEAT, COMMAND, BASE, CONTROLLER_INSTALL), 1):
            stranger.send(encode(number, op.number, {}))
            frame = stranger.frame()
            assert frame is not None
            assert (frame.kind, frame.body["code"]) == (frames.ERROR, "UNAUTHORIZED")
        stranger.send(encode(0, RAFT.number, {"messages": [], "boot": 1, "clock": 1}))
        assert "node" in stranger.refused()


def test_each_port_refuses_those_whom_the_other_is_for(guarded: testing.LocalCluster) -> None:
    node = guarded.nodes[0]
    with lognode.Client(guarded.servers) as client:
        cluster = client.status()["cluster"]["id"]
    with Stranger(node) as stranger:
        who = hello("node", cluster, 2)
        proof = wire.prove(SECRET, "dialler", who, stranger.greet(who))
        stranger.send(encode(0, frames.PROOF, {"proof": proof}))
        assert (
            f"port is only for clients; nodes of the cluster dial {node.peer}" in stranger.refused()
        )
    with Stranger(node, "node") as stranger:
        stranger.send(encode(0, frames.HELLO, hello().to_body()))
        assert f"only for nodes of the cluster; clients dial {node.address}" in stranger.refused()
    with Stranger(node, "node") as stranger:
        stranger.send(encode(0, frames.HELLO, hello("node").to_body()))
        assert f"to join, dial {node.address} with --join" in stranger.refused()


def test_another_clusters_node_on_a_members_address_is_found_out(
    guarded: testing.LocalCluster, load: Load, tmp_path: Path
) -> None:
    """Its peers do not take it for the member, nor it them; it ends, since it has founded a
    cluster where they know of another, and the member comes back unharmed."""
    member = guarded.nodes[2]
    member.stop()
    flags = ("--secret-file", str(guarded.root / "secret"))
    (impostor,) = testing.LocalCluster(tmp_path, 1, flags=flags).nodes
    impostor.address = member.address
    impostor.start()
    try:
        testing.eventually(lambda: not impostor.running, what="it ends")
        assert "check the directory and its volume" in impostor.log_path.read_text("utf-8")
        load.go_on(20)
    finally:
        impostor.stop()
        member.start()
        member.wait_ready()
    testing.wait_healthy(guarded)
    load.go_on(20)
