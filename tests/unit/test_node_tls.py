"""A node's TLS: whom it takes for a node, and what new files change."""

import asyncio
import logging
import shutil
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from pki import HOSTS, Pki, pki

from lognode.client.protocol.certificate import Certificate
from lognode.client.protocol.errors import InvalidArgument, Unauthorized, from_wire, to_wire
from lognode.client.protocol.tls import Channel, dial_context
from lognode.client.protocol.wire import Hello
from lognode.node.certificates import tls
from lognode.node.certificates.authority import shake_hands
from lognode.node.certificates.ca import Authority, Issued
from lognode.node.certificates.tls import NodeTls
from lognode.node.config import Config, load
from lognode.node.directory.data_directory import Identity
from lognode.node.metrics import Metrics
from lognode.partitions.model import NodeRecord

CLUSTER_ID = "0123456789abcdef" * 2


@pytest.fixture
def trust(tmp_path: Path) -> Pki:
    return pki(tmp_path / "ca", "prod")


def records(**keys: str) -> dict[int, NodeRecord]:
    """The nodes of the metadata, n1 to n9, with their keys."""
    return {
        int(name[1:]): NodeRecord(int(name[1:]), "h:1", "", "", 1, 1, "ACTIVE", key=key)
        for name, key in keys.items()
    }


def node_tls(trust: Pki, own: Issued, auth: str = "required", node: int = 1) -> NodeTls:
    """That of node 1 of the cluster."""
    made = NodeTls(own.cert, own.key, trust.ca, auth, Metrics())
    made.bind(Identity(CLUSTER_ID, node, 5, 1))
    return made


def hello(node: int | None = None, role: Any = "node") -> Hello:
    return Hello(role=role, nonce=bytes(32), node=node, cluster=None if node is None else "x")


# Who is a node.


def test_a_node_is_believed_with_a_node_s_certificate_of_the_cluster_only(
    trust: Pki, tmp_path: Path
) -> None:
    own = node_tls(trust, trust.node("n1"))
    other_cluster = Authority.open(trust.authority.directory)
    staging = other_cluster.node("s1", HOSTS, 5, cluster="staging").certificate
    client = trust.client("app").certificate
    for certificate, reason in (
        (None, "the other side claims to be a node and showed no certificate"),
        (client, "is not for a node of cluster .*prod, but for lognode://cluster/prod/client/app"),
        (staging, "is not for a node of cluster .*prod, but for lognode://cluster/staging/node/s1"),
    ):
        for asked in (hello(2), hello(None)):
            with pytest.raises(Unauthorized, match=reason):
                own.check(asked, certificate)
        with pytest.raises(Unauthorized, match=reason):
            own.check_node(certificate, 2)
    named = trust.node("n2").certificate
    own.check(hello(2), named)
    own.check(hello(None), named)  # it joins


@pytest.mark.parametrize("auth", ["none", "optional", "required"])
def test_the_port_for_peers_asks_for_a_certificate_whatever_clients_need(
    trust: Pki, auth: str
) -> None:
    made = node_tls(trust, trust.node("n1"), auth)

    def secured(server: Channel, files: dict[str, Path]) -> Certificate | None:
        """The certificate of a dialler with these files, after the handshake."""
        client = Channel(
            dial_context(trust.ca, files.get("cert"), files.get("key"), check_host=False),
            server_side=False,
        )
        out = client.begin()
        while not server.secured:
            server.receive(out)
            client.receive(server.outgoing())
            out = client.outgoing()
        return server.certificate

    with pytest.raises(Unauthorized, match="sent no certificate"):
        secured(made.between_nodes.channel(), {})
    node = trust.node("n2")
    files = {"cert": node.cert, "key": node.key}
    assert secured(made.between_nodes.channel(), files) == node.certificate
    assert secured(made.channel(), files) == node.certificate  # it joins at the port for clients
    if auth != "required":
        assert secured(made.channel(), {}) is None


def test_an_id_in_a_certificate_is_the_only_one(trust: Pki) -> None:
    own = node_tls(trust, trust.node("n1"))
    by_name, by_id = trust.node("3"), trust.authority.node("4", HOSTS, 5, cluster=CLUSTER_ID)
    for issued, node in ((by_name, 3), (by_id, 4)):
        own.check(hello(node), issued.certificate)
        with pytest.raises(Unauthorized, match=f"certificate is of node {node}, not of node 2"):
            own.check(hello(2), issued.certificate)
    foreign = Authority.open(trust.authority.directory).node("5", HOSTS, 5, cluster="staging")
    with pytest.raises(
        Unauthorized, match=r"give the node a certificate of its cluster \(`lognode ca node`\)"
    ):
        own.check(hello(5), foreign.certificate)


def test_a_registered_node_is_its_key(trust: Pki) -> None:
    own = node_tls(trust, trust.node("n1"))
    second, third = trust.node("n2").certificate, trust.node("n3").certificate
    rechecked: list[str] = []
    own.recheck_with(lambda: rechecked.append("now"))
    own.learn(records(n1=own.key, n2=second.key, n3=""))
    assert rechecked == ["now"]
    own.check(hello(2), second)
    with pytest.raises(Unauthorized) as caught:
        own.check(hello(2), third)
    assert "node 2 is registered with another key" in str(caught.value)
    assert f"lognode node rekey 2 --key {third.key}" in str(caught.value)
    with pytest.raises(Unauthorized, match="node 2 is registered with another key"):
        own.dialling(2).check(third)  # type: ignore[misc]
    own.check(hello(3), third)  # it has never registered over TLS
    own.check(hello(9), third)  # this node may be behind
    renewed = trust.node("n2", renew=True).certificate
    assert renewed.fingerprint != second.fingerprint
    own.check(hello(2), renewed)
    own.learn(records(n1=own.key, n2=second.key, n3=""))
    assert rechecked == ["now"]
    own.learn(records(n1=own.key, n2=third.key, n3=""))
    assert rechecked == ["now"] * 2
    with pytest.raises(Unauthorized, match="another key"):
        own.check(hello(2), second)


def test_clients_of_another_cluster_of_the_same_ca_are_refused(trust: Pki) -> None:
    own = node_tls(trust, trust.node("n1"), "optional")
    foreign = Authority.open(trust.authority.directory).client("app", 5, cluster="staging")
    with pytest.raises(Unauthorized, match="this certificate is for cluster staging"):
        own.check(hello(role="client"), foreign.certificate)
    own.check(hello(role="client"), trust.client("mine").certificate)
    own.check(hello(role="client"), None)


def test_a_certificate_for_another_node_is_refused_at_the_start(trust: Pki) -> None:
    for name, cluster, fits in (
        ("n1", "", True), ("1", "", True), ("2", "", False),
        ("n2", CLUSTER_ID, True), ("n3", "f" * 32, False),
    ):  # fmt: skip
        issued = trust.authority.node(name, HOSTS, 5, cluster=cluster)
        if fits:
            node_tls(trust, issued)
        else:
            with pytest.raises(InvalidArgument, match="give each node its own certificate"):
                node_tls(trust, issued)
    for name, cluster in (("7", ""), ("n7", CLUSTER_ID)):
        issued = trust.authority.node(name, HOSTS, 5, cluster=cluster)
        made = NodeTls(issued.cert, issued.key, trust.ca, "required", Metrics())
        with pytest.raises(InvalidArgument, match="this data directory belongs to no cluster yet"):
            made.check_may_join()


# Files.


def test_files_that_others_would_refuse_are_refused_at_the_start(
    trust: Pki, tmp_path: Path
) -> None:
    other = pki(tmp_path / "other", "prod")
    node, client = trust.node("n1"), trust.client("app")
    expired = trust.aged(trust.node("old"), -9, -1)
    early = trust.aged(trust.node("early"), 1, 9)
    empty = tmp_path / "empty"
    empty.touch()
    for issued, ca, reason in (
        (
            client,
            trust.ca,
            "is not for a node: it has no URI lognode://cluster/CLUSTER/node/NODE",
        ),
        (expired, trust.ca, r"expired on 20\d\d-\d\d-\d\d; renew the certificate"),
        (early, trust.ca, "nodes that trust CA file .* not valid yet"),
        (node, other.ca, "nodes that trust CA file .* does not trust"),
        (node, empty, "CA file .* contains no certificate"),
        (node, tmp_path / "none", "cannot read CA file"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            NodeTls(issued.cert, issued.key, ca, "required", Metrics())
    node.key.chmod(0o640)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        NodeTls(node.cert, node.key, trust.ca, "required", Metrics())


def test_tls_is_given_whole_or_not_at_all(trust: Pki) -> None:
    node = trust.node("n1")
    files = {"tls_cert": str(node.cert), "tls_key": str(node.key), "tls_ca": str(trust.ca)}
    assert NodeTls.of(Config(), Metrics()) is None
    assert NodeTls.of(load(files, {}), Metrics()) is not None
    for left in ((), ("tls_cert",), ("tls_cert", "tls_key")):
        flags = {name: files[name] for name in left} | {"tls_client_auth": "none"}
        with pytest.raises(InvalidArgument, match="TLS needs a certificate, its key and a CA file"):
            NodeTls.of(load(flags, {}), Metrics())


class Files:
    """The files of one node, which are replaced under it."""

    def __init__(self, place: Path, trust: Pki, first: Issued) -> None:
        self.cert, self.key, self.ca = (place / name for name in ("cert", "key", "trusted"))
        self.put(first)
        self.put_ca(trust)

    def put(self, issued: Issued) -> None:
        for source, target in ((issued.cert, self.cert), (issued.key, self.key)):
            _replace(source, target)

    def put_ca(self, *trusts: Pki) -> None:
        fresh = self.ca.with_suffix(".new")
        fresh.write_bytes(b"".join(trust.ca.read_bytes() for trust in trusts))
        fresh.replace(self.ca)

    def tls(self, auth: str = "required") -> NodeTls:
        made = NodeTls(self.cert, self.key, self.ca, auth, Metrics())
        made.bind(Identity(CLUSTER_ID, 1, 5, 1))
        return made


def _replace(source: Path, target: Path) -> None:
    fresh = target.with_suffix(".new")
    shutil.copy(source, fresh)
    fresh.replace(target)


@pytest.fixture
def files(trust: Pki, tmp_path: Path) -> Files:
    return Files(tmp_path, trust, trust.node("n1"))


def shown(made: NodeTls) -> bytes:
    """The certificate that the next connection would see."""
    return made.channel().binding


def test_a_renewed_certificate_is_used_and_a_bad_one_is_not(
    trust: Pki, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        made = files.tls()
        first = shown(made)
        renewed = trust.node("n1", renew=True)
        files.put(renewed)
        assert shown(made) == first  # it was not told
        await made._read_again()
        assert shown(made) == renewed.certificate.fingerprint != first
        caplog.clear()
        expired = trust.aged(trust.node("old"), -9, -1)
        for bad, reason in ((trust.client("app"), "is not for a node"), (expired, "expired on"),
                            (trust.node("n2"), "has another key")):  # fmt: skip
            files.put(bad)
            await made._read_again()
            record = caplog.records[-1]
            assert record.levelno == logging.ERROR
            assert (
                record.message
                == "the node does not use the new TLS files; the old certificate stays in use"
            )
            assert reason in record.fields["error"]  # type: ignore[attr-defined]
            assert shown(made) == renewed.certificate.fingerprint
        files.key.unlink()
        await made._read_again()
        assert "cannot read TLS key" in caplog.records[-1].fields["error"]  # type: ignore[attr-defined]

    asyncio.run(run())


def test_the_files_are_looked_at_from_time_to_time(
    trust: Pki, files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "_LOOK_S", 0.01)
    caplog.set_level(logging.INFO)

    async def run() -> None:
        made = files.tls()
        task = asyncio.create_task(made.run())
        renewed = trust.node("n1", renew=True)
        files.put(renewed)
        async with asyncio.timeout(10):
            while shown(made) != renewed.certificate.fingerprint:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            files.cert.write_text("nothing")
            while "the node does not use the new TLS files" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert (
            caplog.text.count("the node does not use the new TLS files") == 1
        )  # of one change one line
        task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["the metadata", "a peer"])
def test_another_key_is_used_once_the_node_is_bound_to_it(
    trust: Pki, files: Files, how: str
) -> None:
    """Of which it hears from the metadata or, since nobody may talk to it any more, from a node
    that refuses it."""

    async def run() -> None:
        made = files.tls()
        first = made.key
        task = asyncio.create_task(made.run())
        fresh = trust.node("n1-new")
        made.learn(records(n1=first))
        files.put(fresh)
        await made._read_again()
        assert made.key == first
        if how == "the metadata":
            made.learn(records(n1=fresh.certificate.key))
        else:
            other = node_tls(trust, trust.node("n2"), node=2)
            other.learn(records(n1=fresh.certificate.key))
            with pytest.raises(Unauthorized) as caught:
                other.check(hello(1), made._loaded.own)
            made.refused_by_peer(from_wire(to_wire(caught.value)))
        async with asyncio.timeout(10):
            while made.key != fresh.certificate.key:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        # A node that is behind does not decide.
        made.refused_by_peer(Unauthorized("another key", registered=first))
        made.refused_by_peer(Unauthorized("another key", registered=7))
        await asyncio.sleep(0.05)
        assert made.key == fresh.certificate.key
        task.cancel()

    asyncio.run(run())


def test_an_expiry_is_warned_of_and_measured(
    trust: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    soon = trust.aged(trust.node("n1"), -5, 3)
    made = NodeTls(soon.cert, soon.key, trust.ca, "required", metrics)
    value = metrics.registry.get_sample_value
    name = "lognode_certificate_expiry_seconds"
    left_s = value(name, {"certificate": "node"})
    assert left_s == pytest.approx(3 * 86_400, abs=60)
    assert value(name, {"certificate": "ca"}) == pytest.approx(30 * 86_400, abs=60)
    made._warn()
    made._warn()
    expected = [("node", 3.0), ("CA", 30.0)]
    assert [(record.args[0], record.fields["expires_in_days"]) for record in caplog.records] == (  # type: ignore
        expected
    )


# Refusals in the log.


def test_strangers_are_counted_and_told_of_in_few_lines(
    trust: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    made = node_tls(trust, trust.node("n1"))
    for _ in range(1_000):
        made.refused("10.0.0.1:1", Unauthorized("no certificate"))
    now[0] += 11
    made.refused("10.0.0.1:1", Unauthorized("no certificate"))
    counted = made._metrics.registry.get_sample_value(
        "lognode_handshakes_refused_total", {"code": "UNAUTHORIZED"}
    )
    assert counted == 1_001
    assert [record.fields["others_since"] for record in caplog.records] == [0, 999]  # type: ignore[attr-defined]


# HTTPS.


class Https:
    """A listener with the context of a node's HTTP port, and its clients."""

    def __init__(self, made: NodeTls) -> None:
        self._made = made
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Https":
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ok")
            writer.close()

        self._server = await asyncio.start_server(
            serve, "127.0.0.1", 0, ssl=self._made.http_context
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def ask(self, ca: Path, client: Issued | None, host: str = "127.0.0.1") -> bytes:
        """The certificate that it shows; empty when it ends the connection."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        context = dial_context(ca, client and client.cert, client and client.key)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=host
        )
        tls_object = writer.get_extra_info("ssl_object")
        assert tls_object.version() == "TLSv1.3"
        der: bytes = tls_object.getpeercert(binary_form=True)
        try:
            said = await reader.read()
        except (ssl.SSLError, ConnectionError):
            said = b""
        writer.close()
        return der if said else b""


def test_https_follows_the_files(trust: Pki, files: Files, tmp_path: Path) -> None:
    """The certificate, and the CAs that clients may come with."""
    other = pki(tmp_path / "other", "prod")
    old_client, new_client = trust.client("app"), other.client("app")

    async def run() -> None:
        made = files.tls()
        async with Https(made) as https:
            first = await https.ask(trust.ca, old_client)
            assert first
            assert await https.ask(trust.ca, old_client, "localhost") == first
            assert await https.ask(trust.ca, None) == b""
            assert await https.ask(trust.ca, new_client) == b""
            files.put(trust.node("n1", renew=True))
            files.put_ca(trust, other)
            await made._read_again()
            for host in ("127.0.0.1", "localhost"):  # without and with a name in the handshake
                assert await https.ask(trust.ca, new_client, host) not in (first, b"")
            assert await https.ask(trust.ca, old_client)

    asyncio.run(run())


def test_a_ca_that_is_taken_away_is_trusted_no_longer(trust: Pki, tmp_path: Path) -> None:
    """By HTTPS, whose context is the same for ever, and by the data port."""
    other = pki(tmp_path / "other", "prod")
    files = Files(tmp_path, trust, other.node("n1"))
    files.put_ca(trust, other)
    client = trust.client("app")

    def handshake(made: NodeTls) -> Certificate | None:
        context = dial_context(other.ca, client.cert, client.key, check_host=False)
        acceptor = made.channel()
        shake_hands(acceptor, tls.Channel(context, server_side=False))
        return acceptor.certificate

    async def run() -> None:
        made = files.tls()
        async with Https(made) as https:
            assert await https.ask(other.ca, client)
            assert handshake(made) == client.certificate
            files.put_ca(other)
            await made._read_again()
            assert await https.ask(other.ca, client) == b""
            with pytest.raises(
                Unauthorized, match="this side does not trust the CA of the other side's"
            ):
                handshake(made)

    asyncio.run(run())
