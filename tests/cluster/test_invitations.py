"""X4: a new node of a cluster with TLS needs an invitation: once, in time, and of that cluster."""

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pki import HOSTS

import lognode
from lognode import testing
from lognode.client.connection import dial
from lognode.client.invitation import parse
from lognode.client.ports import free_ports
from lognode.client.protocol import OPERATIONS
from lognode.client.protocol.private_files import write_private
from lognode.client.protocol.tls import DialTls, dial_context
from lognode.node.certificates.ca import Authority
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster

CLUSTER = "0123456789abcdef" * 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[testing.LocalCluster]:
    """One node, and another cluster for each test: with three nodes the controller has three
    members, and needs two of them."""
    with testing.cluster(tmp_path / "cluster", 1, tls=True, auth=True) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


class Newcomer:
    """An empty node on its way into the cluster."""

    def __init__(
        self, cluster: testing.LocalCluster, root: Path, invitation: str | None,
        ca: Path | None = None,
    ) -> None:  # fmt: skip
        assert cluster.tls is not None
        issued = cluster.tls.authority.node(f"new{time.monotonic_ns()}", HOSTS, 5)
        root.mkdir(exist_ok=True)
        self.file = root / "invitation"
        flags = ["--tls-cert", str(issued.cert), "--tls-key", str(issued.key),
                 "--tls-ca", str(ca or cluster.tls.directory / "ca.crt"),
                 "--secret-file", str(cluster.root / "secret"), "--join-timeout", "5"]  # fmt: skip
        if invitation is not None:
            write_private(self.file, invitation.encode())
            flags += ["--invitation", str(self.file)]
        port, http = free_ports(2)
        self.node = LocalNode(9, root, port, http, cluster.nodes[0].address, flags, cluster.tls)
        self.node._flags = tuple(flags)

    def refused(self) -> str:
        """Start; the end of the log once it has ended."""
        self.node.start()
        testing.eventually(lambda: not self.node.running, what="it ends")
        assert self.node.exit_code
        return self.node.log_tail(4)


@pytest.fixture
def client(cluster: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(cluster.servers, timeout=20) as client:
        yield client


def count(client: lognode.Client) -> int:
    return len(client.admin.nodes())


def test_X4_nobody_joins_without_an_invitation(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    before = count(client)
    told = Newcomer(cluster, tmp_path, None).refused()
    assert "a new node needs an invitation to join this cluster" in told
    assert "lognode node invite --out FILE" in told
    assert count(client) == before


def test_X4_an_invitation_lets_one_node_in_and_no_other(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    out = tmp_path / "made"
    command = [sys.executable, "-m", "lognode.node.main", "node", "invite",
               "--server", cluster.servers, "--out", str(out)]  # fmt: skip
    invite_id = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    line = out.read_text().strip()
    assert parse(line).id == invite_id
    (row,) = client.admin.invites()
    assert (row["id"], row["by"]) == (invite_id, "admin")
    assert row["expires_ms"] - row["created_ms"] == pytest.approx(3_600_000, abs=20_000)
    before = count(client)
    first = Newcomer(cluster, tmp_path / "first", line)
    first.node.start()
    try:
        first.node.wait_ready()
        assert count(client) == before + 1
        assert client.admin.invites() == []
        told = Newcomer(cluster, tmp_path / "second", line).refused()
        assert f"invitation {invite_id}: a node has used the invitation" in told
        assert count(client) == before + 1
        # The node comes back without it, and nobody has seen the secret.
        secret = parse(line).token.partition(".")[2]
        shown = Path(f"/proc/{first.node.pid}/cmdline").read_text()
        assert secret not in shown
        first.file.unlink()
        first.node.kill()
        first.node._flags = first.node._flags[:-2]
        first.node.start()
        first.node.wait_ready()
        for node in (*cluster.nodes, first.node):
            assert secret not in node.log_path.read_text()
    finally:
        first.node.stop()


KILLED = """
import os, signal, sys
from lognode.node import main
from lognode.statemachine.meta import LmdbMeta
commit = LmdbMeta.commit
def killed(self, puts, *more):
    if "identity" in puts: os.kill(os.getpid(), signal.SIGKILL)
    commit(self, puts, *more)
LmdbMeta.commit = killed
sys.exit(main.main())
"""
"""A node that is killed when it has its answer, and before it has stored the answer."""


def test_X4_a_node_that_is_killed_before_it_stores_the_answer_gets_it_again(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    """It left a node that nobody was, and had used up its invitation."""
    made = client.admin.invite_node()
    before = {row["id"] for row in client.admin.nodes()}
    newcomer = Newcomer(cluster, tmp_path / "a", made["invitation"])
    node, plain = newcomer.node, newcomer.node.program
    node.program = ("-c", KILLED)
    for _ in range(2):
        node.start()
        assert node.wait_end(30) == -signal.SIGKILL
        (number,) = {row["id"] for row in client.admin.nodes()} - before
        assert client.admin.invites() == []
    thief = Newcomer(cluster, tmp_path / "b", made["invitation"])
    assert f"invitation {made['id']}: a node has used the invitation" in thief.refused()
    # Nor does a copy of the directory with another key get that answer.
    shutil.copytree(node.data, tmp_path / "c" / "node9")
    thief = Newcomer(cluster, tmp_path / "c", made["invitation"])
    assert f"node {number} is registered with another TLS key" in thief.refused()
    node.program = plain
    node.start()
    try:
        node.wait_ready()
        assert {row["id"] for row in client.admin.nodes()} - before == {number}
        testing.eventually(
            lambda: {row["id"]: row["state"] for row in client.admin.nodes()}[number] == "ACTIVE",
            what="the node is ACTIVE",
        )
    finally:
        node.stop()


def test_a_local_node_that_is_killed_while_it_joins_keeps_its_invitation(
    cluster: testing.LocalCluster, client: lognode.Client
) -> None:
    """With another one its directory became another node."""
    before = count(client)
    node = cluster.add()
    plain, node.program = node.program, ("-c", KILLED)
    try:
        node.start()
        assert node.wait_end(30) == -signal.SIGKILL
        node.program = plain
        node.start()
        node.wait_ready()
        assert count(client) == before + 1
        assert client.admin.invites() == []
    finally:
        node.stop()
        cluster.nodes.remove(node)


def test_X4_an_invitation_expires_or_is_taken_back(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    short = client.admin.invite_node(expires_s=1.0)
    time.sleep(1.1)
    assert "has expired" in Newcomer(cluster, tmp_path / "a", short["invitation"]).refused()
    back = client.admin.invite_node()
    client.admin.uninvite_node(back["id"])
    assert (
        "an operator revoked it" in Newcomer(cluster, tmp_path / "b", back["invitation"]).refused()
    )
    with pytest.raises(lognode.NotFound, match="lognode node invites"):
        client.admin.uninvite_node(back["id"])
    with pytest.raises(lognode.InvalidArgument, match="at most 7 days"):
        client.admin.invite_node(expires_s=8 * 86_400)


def test_X4_the_secret_goes_to_no_other_cluster(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    made = client.admin.invite_node()
    mine = parse(made["invitation"])
    other = mine._replace(cluster=CLUSTER)
    told = Newcomer(cluster, tmp_path / "a", other.text()).refused()
    assert f"is of cluster {mine.cluster}, but the invitation is of cluster" in told
    foreign = Authority.create(tmp_path / "ca", "foreign", 5)
    of_another = mine._replace(ca="ab" * 32)
    told = Newcomer(cluster, tmp_path / "b", of_another.text()).refused()
    assert "is of a cluster whose CA has the key abab" in told
    told = Newcomer(cluster, tmp_path / "c", mine.text(), tmp_path / "ca" / "ca.crt").refused()
    assert "--tls-ca" in told, foreign
    told = Newcomer(cluster, tmp_path / "d", "no invitation").refused()
    assert "copy the whole line that `lognode node invite` printed" in told
    assert [row["id"] for row in client.admin.invites()] == [made["id"]], "it is still good"
    client.admin.uninvite_node(made["id"])


@pytest.mark.by_hand
def test_a_machine_that_lost_its_disk_joins_again_once_its_node_is_dead(
    cluster: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    """A copy of the key of a node that lives lets nobody in."""
    before = count(client)
    machine = Newcomer(cluster, tmp_path, client.admin.invite_node()["invitation"])
    machine.node.start()
    try:
        machine.node.wait_ready()
        machine.node.kill()
        shutil.rmtree(machine.node.data)
        machine.node._flags = (*machine.node._flags[:-3], "60")  # without the invitation
        machine.node.start()
        told = "has the same TLS key and is ACTIVE"
        testing.eventually(lambda: told in machine.node.log_tail(99), what="it waits")
        assert count(client) == before + 1
        machine.node.wait_ready(40)
        assert count(client) == before + 2
        copy = Newcomer(cluster, tmp_path / "copy", None)
        copy.node._flags = (*machine.node._flags[:-1], "3")
        assert told in copy.refused()
        assert count(client) == before + 2
    finally:
        machine.node.stop()


def test_a_client_without_the_right_to_administer_cannot_invite(
    cluster: testing.LocalCluster, client: lognode.Client
) -> None:
    token = client.admin.create_token("app", ["read,append,trim,group,describe"])["token"]
    where = cluster.servers.partition("&token=")[0]
    with (
        lognode.Client(where, token=token, timeout=20) as app,
        pytest.raises(lognode.Unauthorized, match="node_invite needs the verb admin"),
    ):
        app.admin.invite_node()


PUSH: dict[str, Any] = {
    "descriptor": {"id": 0, "generation": 9, "log": 0, "start": b"", "end": None, "members": [1],
                   "lineage": [], "state": "ACTIVE", "operation": 0, "met_at": []},
    "page": {"begins": True, "full": True, "generation": 9, "version": 5,
             "buckets": [["head", 0, b""]], "next": None},
    "applied": [1, 0],
}  # fmt: skip
"""A generation of the controller."""


def test_X5_a_certificate_alone_makes_no_operator_and_no_client(
    cluster: testing.LocalCluster, client: lognode.Client
) -> None:
    """Any program with a certificate and the role of a node was a node, which no scope limits."""
    assert cluster.tls is not None
    issued = cluster.tls.authority.node("stranger", HOSTS, 5)
    context = dial_context(cluster.tls.directory / "ca.crt", issued.cert, issued.key,
                           check_host=False)  # fmt: skip
    secret = (cluster.root / "secret").read_bytes().strip()
    made_up = {"cluster": client.metadata()["cluster"], "node": 99, "incarnation": 5}
    first = cluster.nodes[0]

    async def ask(address: str, name: str, body: dict[str, Any], hello: dict[str, Any]) -> None:
        host, port = address.rsplit(":", 1)
        link = await dial(
            host, int(port), role="node", secret=secret, tls=DialTls(context), **hello
        )
        try:
            deadline = asyncio.get_running_loop().time() + 5
            await link.request(OPERATIONS[name], body, deadline=deadline)
        finally:
            link.close()

    for name, body in (
        ("node_invite", {"id": "0" * 16, "digest": bytes(32), "expires_ms": 1}),
        ("node_invites", {}), ("token_list", {}), ("metadata", {}), ("status", {}),
        ("create_log", {"name": "mine"}), ("node_drain", {"node": 1}),
        ("controller_install", PUSH),
    ):  # fmt: skip
        for address, hello in ((first.address, {}), (first.peer, made_up)):
            with pytest.raises(lognode.LognodeError) as caught:
                asyncio.run(ask(address, name, body, hello))
            assert caught.value.code in ("UNAUTHORIZED", "UNAVAILABLE"), (name, caught.value)
    assert "mine" not in {each["name"] for each in client.logs()}
    assert client.admin.invites() == []
