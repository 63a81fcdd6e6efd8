"""Three nodes with mutual TLS: who is let in, new certificates under load, a man in the middle."""

import asyncio
import random
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size
from loose_operations import loosened
from middle import Flips, Middle, copied, shown_by
from pki import HOSTS, Pki, pki

import lognode
from lognode import testing
from lognode.client.connection import Connection, dial
from lognode.client.protocol import OPERATIONS, frames
from lognode.client.protocol.certificate import parse
from lognode.client.protocol.frame import Decoder, Frame, encode
from lognode.client.protocol.tls import DialTls, Tls, dial_context
from lognode.client.protocol.wire import Hello
from lognode.node.certificates.ca import Issued
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster

ABUSE = Path(__file__).parents[1] / "attacks" / "abuse.py"
NODES = (1, 2, 3)
SIZE = Size(writers=2, conditional=1, named=1, readers=1)


@pytest.fixture(scope="module")
def shared(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3, tls=True) as cluster:
        yield cluster


@pytest.fixture
def three(shared: testing.LocalCluster) -> testing.LocalCluster:
    """The same three nodes for all tests, healthy."""
    testing.wait_healthy(shared)
    return shared


def authority(cluster: testing.LocalCluster) -> Pki:
    assert cluster.tls is not None
    return Pki(cluster.tls.authority)


def state(cluster: testing.LocalCluster) -> list[Any]:
    """What strangers must not change."""
    with lognode.Client(cluster.servers) as client:
        status = client.status()
        ranges = [(r["id"], r["generation"], r["leader"]) for r in status["ranges"]]
    nodes = [(n["id"], n["address"], n["state"]) for n in status["nodes"]]
    leader = status["cluster"]["controller_leader"]
    return [nodes, ranges, leader, [node.pid for node in cluster.nodes]]


async def ask(
    at: LocalNode,
    trust: Path,
    issued: Issued | None,
    op: str | None = None,
    *,
    address: str = "",
    **hello: Any,
) -> Connection:
    """A connection, refused or not, to the port for whom it is or to `address`; `op` is asked for
    on it."""
    host, port = (address or (at.peer if hello.get("node") else at.address)).rsplit(":", 1)
    context = dial_context(trust, issued and issued.cert, issued and issued.key, check_host=False)
    link = await dial(host, int(port), tls=DialTls(context), **hello)
    if op is not None:
        deadline = asyncio.get_running_loop().time() + 5
        try:
            await link.request(loosened(OPERATIONS[op]), {}, deadline=deadline)
        finally:
            link.close()
            await link.wait_closed()
    return link


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(lognode.LognodeError) as caught:
        asyncio.run(ask(*arguments, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_strangers_get_nothing_and_change_nothing(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    """Of another CA, without a certificate, with a client's, and with another node's."""
    trust = authority(three)
    with lognode.Client(three.servers) as client:
        client.create_log("strangers", replicas=3, exist_ok=True).append(b"k", b"v")
        cluster_id = client.metadata()["cluster"]
    testing.wait_healthy(three)
    node = three.nodes[0]
    as_2 = {"role": "node", "node": 2, "cluster": cluster_id, "incarnation": 1}
    joins = {"role": "node"}
    other = pki(tmp_path / "other", "dev")
    app, third, fresh = trust.client("app"), trust.node("n3"), trust.node("2")
    staging = trust.authority.node("s1", HOSTS, 5, cluster="staging")
    before = state(three)
    for issued, hello, reason in (
        (None, {}, "it requires a client certificate"),
        (other.client("app"), {}, "its listener does not trust the CA of this side's certificate"),
        (
            other.node("node2"),
            as_2,
            "its listener does not trust the CA of this side's certificate",
        ),
        (
            other.node("node5"),
            joins,
            "its listener does not trust the CA of this side's certificate",
        ),
        (app, as_2, "the certificate is not for a node of cluster"),
        (app, joins, "the certificate is not for a node of cluster"),
        (staging, as_2, "the certificate is not for a node of cluster"),
        (third, as_2, "node 2 is registered with another key"),
        (fresh, as_2, "node 2 is registered with another key"),
        (trust.node("7"), as_2, "the certificate is of node 7, not of node 2"),
    ):
        for op in (None, "heartbeat"):
            assert reason in refusal(node, trust.ca, issued, op, **hello)
    for hello in ({}, as_2):
        reason = refusal(node, trust.ca, None, address=node.peer, **hello)
        assert "it requires a client certificate" in reason
    assert "this port is only for nodes of the cluster" in refusal(
        node, trust.ca, app, address=node.peer
    )
    # A client may ask what clients ask, and no more, whatever it calls itself.
    for op in ("heartbeat", "join", "image_page", "command", "take_over"):
        with pytest.raises(lognode.Unauthorized):
            asyncio.run(ask(node, trust.ca, app, op))
    assert state(three) == before
    log = node.log_path.read_text()
    assert '"connection refused"' in log
    with lognode.Client(three.servers) as client:
        assert [entry.value for entry in client.log("strangers").scan(b"k")] == [b"v"]


def test_handshakes_that_never_end_keep_nobody_out(three: testing.LocalCluster) -> None:
    """Strangers begin handshakes at the ports for clients and for peers, with bytes that cost them
    nothing."""
    node = three.nodes[0]
    before, refused = state(three), _refused_handshakes(node)
    floods = [
        subprocess.Popen(
            [sys.executable, str(ABUSE), "--kind", "handshakes", "--address", address,
             "--source", f"127.0.0.{at}", "--connections", "64", "--seconds", "120"],
            stdout=subprocess.DEVNULL,
        )
        for at, address in enumerate((node.address, node.address, node.peer), 2)
    ]  # fmt: skip
    try:
        with lognode.Client(three.servers, timeout=60) as client:
            # Hundreds have begun, and none has ended well.
            testing.eventually(lambda: _refused_handshakes(node) > 300 + refused, timeout_s=60)
            client.create_log("beside", ranges=3, exist_ok=True)
            for at in range(10):
                with lognode.Client(three.servers, timeout=60) as newcomer:
                    newcomer.log("beside").append(b"k%d" % at, b"v")
            assert [flood.poll() for flood in floods] == [None] * len(floods)
            assert state(three)[0] == before[0], "a node was called DEAD"
    finally:
        for flood in floods:
            flood.kill()
            flood.wait()


def _refused_handshakes(node: LocalNode) -> float:
    """Connections to the node's ports that have ended before their handshake was done."""
    with node.fetch("/metrics", 30) as answer:
        lines = answer.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("lognode_handshakes_refused_total{")]
    return sum(float(line.split()[-1]) for line in counted)


def test_a_stranger_without_tls_is_told_to_use_it(three: testing.LocalCluster) -> None:
    node = three.nodes[0]
    with (
        lognode.Client(f"lognode://{node.address}") as client,
        pytest.raises(lognode.RemoteProtocolError, match="use lognodes:// instead of lognode://"),
    ):
        client.status()
    host, port = node.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as plain:
        plain.sendall(encode(0, frames.HELLO, Hello(role="node", nonce=bytes(32)).to_body()))
        said = b""
        while data := plain.recv(1000):
            said += data
    (frame,) = Decoder().feed(said)
    assert isinstance(frame, Frame)
    assert frame.body["code"] == "REMOTE_PROTOCOL_ERROR"
    http_host, http_port = node.http.rsplit(":", 1)
    with socket.create_connection((http_host, int(http_port)), 10) as plain:
        plain.sendall(b"GET /status.json HTTP/1.1\r\nHost: x\r\n\r\n")
        said = plain.recv(1000)
    assert b"cluster" not in said


def verb(cluster: testing.LocalCluster, *arguments: str, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", *arguments],
        env={"PATH": "", **variables}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_takes_files_by_flag_and_by_environment(
    three: testing.LocalCluster,
) -> None:
    assert three.tls is not None
    files = three.tls.client
    server = three.nodes[0].address
    flags = [str(part) for name in ("ca", "cert", "key")
             for part in (f"--tls-{name}", getattr(files, name))]  # fmt: skip
    code, out, _ = verb(three, "node", "list", "--server", server, *flags)
    assert code == 0
    assert out.count("ACTIVE") == 3
    variables = {f"LOGNODE_TLS_{name.upper()}": str(getattr(files, name))
                 for name in ("ca", "cert", "key")}  # fmt: skip
    assert verb(three, "node", "list", LOGNODE_SERVER=f"lognodes://{server}", **variables)[0] == 0
    assert verb(three, "node", "list", LOGNODE_SERVER=three.servers)[0] == 0
    code, _, error = verb(three, "node", "list", "--server", server, "--tls-ca", str(files.ca))
    assert code == 1
    assert "it requires a client certificate" in error
    code, _, error = verb(three, "node", "list", "--server", server, "--tls-cert", "x")
    assert "TLS has a cert and no key" in error


def test_https_serves_clients_with_a_certificate(three: testing.LocalCluster) -> None:
    node = three.nodes[1]
    with node.fetch("/metrics", 5) as answer:
        text = answer.read().decode()
    assert 'lognode_certificate_expiry_seconds{certificate="node"} 3.15' in text
    assert len(node.status()["nodes"]) == 3


def test_data_and_keys_are_their_owner_s_alone(three: testing.LocalCluster) -> None:
    for node in three.nodes:
        for path in (node.data, *node.data.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


def test_certificates_are_renewed_under_load_and_nothing_stops(
    three: testing.LocalCluster,
) -> None:
    trust = authority(three)
    with lognode.Client(three.servers) as client:
        client.create_log("renewed", split_at=["own", "register", "shared"], replicas=3)
    testing.wait_healthy(three)
    pids = [node.pid for node in three.nodes]
    with Load(three.servers, "renewed", random.randrange(1 << 32), SIZE) as load:
        load.go_on(50)
        for number, node in enumerate(three.nodes, 1):
            issued = trust.authority.node(f"node{number}", [], 30, renew=True)
            node.signal(signal.SIGHUP)
            for address in (node.address, node.peer, node.http):
                testing.eventually(
                    lambda a=address, i=issued: parse(shown_by(a)) == i.certificate,
                    what="the new certificate",
                )
            load.go_on(50)
    assert pids == [node.pid for node in three.nodes]
    check(same_on(three.servers, "renewed", NODES), load.told)


def test_a_node_gets_another_key_by_its_operator_only(three: testing.LocalCluster) -> None:
    assert three.tls is not None
    trust, node = authority(three), three.nodes[1]
    files = three.tls.directory / "node2.crt", three.tls.directory / "node2.key"
    fresh = trust.node("node2-new")
    first = parse(shown_by(node.address))
    copied(fresh, *files)
    node.signal(signal.SIGHUP)
    wanted = f"lognode node rekey 2 --key {fresh.certificate.key}"
    testing.eventually(lambda: wanted in node.log_path.read_text(), what="the advice")
    assert parse(shown_by(node.address)) == first
    testing.wait_healthy(three)
    code, out, _ = verb(three, *shlex.split(wanted)[1:], "--yes", LOGNODE_SERVER=three.servers)
    assert code == 0
    assert out.startswith("2\tACTIVE")
    testing.eventually(
        lambda: parse(shown_by(node.address)) == fresh.certificate, what="the new key"
    )
    testing.wait_healthy(three)
    node.stop()
    node.start()
    node.wait_ready()
    testing.wait_healthy(three)
    # The holder of the old key is no longer node 2.
    with lognode.Client(three.servers) as client:
        cluster_id = client.metadata()["cluster"]
    old = trust.authority.node("kept", HOSTS, 5)
    assert "is registered with another key" in refusal(
        three.nodes[0], trust.ca, old, role="node", node=2, cluster=cluster_id, incarnation=1
    )


@pytest.mark.by_hand
def test_a_node_joins_with_its_certificate_and_is_bound_to_it(tmp_path: Path) -> None:
    with testing.cluster(tmp_path / "c", 2, tls=True) as cluster:
        testing.wait_healthy(cluster)
        trust = authority(cluster)
        third = cluster.add()
        third.start()
        third.wait_ready()
        testing.wait_healthy(cluster, 3)
        third.stop()
        # Another machine of the cluster that has a copy of its directory is not the node.
        assert cluster.tls is not None
        other = trust.node("other")
        flags = ["--tls-cert", str(other.cert), "--tls-key", str(other.key),
                 "--tls-ca", str(trust.ca)]  # fmt: skip
        third._flags = tuple(flags)
        third.start()
        testing.eventually(
            lambda: "node 3 is registered with another key" in third.log_path.read_text(),
            what="the refusal",
        )
        with lognode.Client(cluster.servers) as client:
            assert not client.health(nodes=3)["ok"]
        third.stop()
        third._flags = cluster.tls.flags(3)
        third.start()
        third.wait_ready()
        testing.wait_healthy(cluster, 3)


def test_a_single_node_with_another_key_ends_and_says_what_to_do(tmp_path: Path) -> None:
    """Started once without TLS it can be bound to the new key."""
    with testing.cluster(tmp_path / "c", 1, tls=True) as cluster:
        (node,) = cluster.nodes
        assert cluster.tls is not None
        fresh = authority(cluster).node("fresh")
        node.stop()
        copied(fresh, cluster.tls.directory / "node1.crt", cluster.tls.directory / "node1.key")
        node.start()
        testing.eventually(lambda: not node.running, what="it ends")
        assert node.exit_code == 1
        assert f"lognode node rekey 1 --key {fresh.certificate.key}" in node.log_tail()
        plain = LocalNode(1, cluster.root, *ports(node), None, ())
        plain.start()
        try:
            plain.wait_ready()
            with lognode.Client(plain.address) as client:
                client.admin.rekey(1, fresh.certificate.key)
        finally:
            plain.stop()
        node.start()
        node.wait_ready()


def ports(node: LocalNode) -> tuple[int, int]:
    return int(node.address.rsplit(":")[-1]), int(node.http.rsplit(":")[-1])


def test_nodes_started_together_found_one_cluster(tmp_path: Path) -> None:
    local = testing.LocalCluster(tmp_path, 3, tls=True)
    join = ",".join(node.address for node in local.nodes)
    for node in local.nodes:
        node.join = join
        node.add_flags("--bootstrap-expect", "3")
    try:
        for node in local.nodes:
            node.start()
        for node in local.nodes:
            node.wait_ready()
        testing.wait_healthy(local)
    finally:
        local.stop()


def test_dev_with_tls_is_one_command(tmp_path: Path) -> None:
    port = testing.free_row(3)
    process = subprocess.Popen(
        [sys.executable, "-m", "lognode.node.main", "dev", "-n", "1", "--tls",
         "--data", str(tmp_path / "dev"), "--base-port", str(port)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("export LOGNODE_SERVER="))
        (server,) = shlex.split(line.removeprefix("export LOGNODE_SERVER="))
        assert server.startswith("lognodes://127.0.0.1:")
        with lognode.Client(server) as client:
            client.create_log("x").append(b"k", b"v")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.by_hand
def test_S3_a_man_between_the_nodes_changes_nothing(tmp_path: Path) -> None:
    """All that nodes say to each other goes by way of him: he listens, flips bits, and ends TLS
    with a certificate of his own. What was acknowledged is the same on all nodes in the end."""
    his = pki(tmp_path / "his", "dev").authority
    dial_map = tmp_path / "map"
    cluster = testing.LocalCluster(tmp_path / "c", 3, tls=True, flags=("--dial-map", str(dial_map)))
    middles = [Middle(node.peer) for node in cluster.nodes]
    door = Middle(cluster.nodes[0].address)
    for node in cluster.nodes:
        assert node.join is None or node.join == cluster.nodes[0].address
        node.join = node.join and door.address
    dial_map.write_text(
        "".join(f'"{node.peer}" = "{middle.address}"\n'
                for node, middle in zip(cluster.nodes, middles, strict=True))
    )  # fmt: skip
    with middles[0], middles[1], middles[2], door:
        try:
            cluster.start()
            testing.wait_healthy(cluster)
            with lognode.Client(cluster.servers) as client:
                client.create_log("middle", split_at=["own", "register", "shared"], replicas=3)
            testing.wait_healthy(cluster)
            with Load(cluster.servers, "middle", random.randrange(1 << 32), SIZE) as load:
                load.go_on(100)
                flips = Flips(100_000)
                for middle in middles:
                    middle.alter = flips
                testing.eventually(lambda: flips.flipped >= 20, timeout_s=60, what="20 flips")
                for middle in middles:
                    middle.alter = bytes
                load.go_on(100)
                for number, middle in enumerate(middles, 1):
                    middle.show = his.node(f"node{number}", HOSTS, 5)
                    middle.cut()
                reason = "does not trust the CA"
                for node in cluster.nodes:
                    testing.eventually(
                        lambda n=node: reason in n.log_path.read_text(), what="the refusal"
                    )
                for middle in middles:
                    middle.show = None
                load.go_on(100)
            testing.wait_healthy(cluster)
            check(same_on(cluster.servers, "middle", NODES), load.told)
        finally:
            cluster.stop()
    assert all(middle.plain == b"" for middle in (*middles, door))
    wire = b"".join(bytes(middle.wire) for middle in (*middles, door))
    assert len(wire) > 100_000
    for known in (b"heartbeat", b"incarnation", b"middle", b"register"):
        assert known not in wire


def test_a_client_without_files_for_tls_says_what_is_missing(three: testing.LocalCluster) -> None:
    assert three.tls is not None
    address = f"lognodes://{three.nodes[0].address}"
    for tls, reason in (
        (Tls(), "does not trust the CA"),
        (Tls(ca=three.tls.client.ca), "it requires a client certificate"),
    ):
        with (
            lognode.Client(address, tls=tls) as client,
            pytest.raises(lognode.Unauthorized, match=reason),
        ):
            client.status()
