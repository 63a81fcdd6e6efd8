"""A man in the middle of a connection: he can neither read, nor change, nor relay a handshake."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loose_operations import LOOSE
from middle import Flips, Middle
from pki import HOSTS, Pki, pki

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.connection import Connection
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import LognodeError, Unauthorized
from lognode.client.protocol.tls import ClientTls, DialTls
from lognode.client.protocol.wire import Hello, Welcome
from lognode.node.certificates.ca import Issued
from lognode.node.certificates.tls import NodeTls
from lognode.node.directory.data_directory import Identity
from lognode.node.metrics import Metrics
from lognode.partitions.model import NodeRecord

CLUSTER = "0123456789abcdef" * 2
SECRET = b"a secret of 32 random bytes or so"
MARK = b"what nobody in between may read"


class Server:
    """Node 2 of the cluster; it remembers all that came."""

    def __init__(self) -> None:
        self.believed: list[Hello] = []
        self.bodies: list[Any] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster=CLUSTER, node=2)

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        self.believed.append(hello)

    def opened(self, connection: ServerConnection) -> None:
        return

    def request(self, request: Request) -> Any:
        self.bodies.append(request.body)
        return {"echo": request.body}

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        return LOOSE

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """Nothing is."""

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.bodies.append(body)

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        return

    def failed(self, number: int, error: Exception) -> None:
        raise error


@pytest.fixture
def trust(tmp_path: Path) -> Pki:
    return pki(tmp_path / "ca", "prod")


def node_tls(trust: Pki, issued: Issued, node: int) -> NodeTls:
    made = NodeTls(issued.cert, issued.key, trust.ca, "optional", Metrics())
    made.bind(Identity(CLUSTER, node, node, 1))
    return made


class Scene:
    """The listener of node 2, the middle, and the TLS of node 1."""

    def __init__(self, trust: Pki, server: Server, middle: Middle) -> None:
        self.trust = trust
        self.server = server
        self.middle = middle
        self.first = node_tls(trust, trust.node("n1"), 1)

    async def dial(self, tls: DialTls, **options: Any) -> Connection:
        return await connection.dial("127.0.0.1", self.middle.port, tls=tls, **options)

    async def dial_as_node(self, tls: DialTls, secret: bytes | None = None) -> Connection:
        return await self.dial(
            tls, role="node", node=1, cluster=CLUSTER, incarnation=1, secret=secret
        )


def run(
    trust: Pki, test: Callable[[Scene], Awaitable[None]], *, secret: bytes | None = None
) -> None:
    async def main() -> None:
        server = Server()
        second = node_tls(trust, trust.node("n2"), 2)
        listener = await acceptor.serve(server, "127.0.0.1", 0, tls=second, secret=secret)
        try:
            with Middle(f"127.0.0.1:{listener.port}") as middle:
                async with asyncio.timeout(30):
                    await test(Scene(trust, server, middle))
        finally:
            await listener.close()

    asyncio.run(main())


def test_he_reads_nothing_that_passes(trust: Pki) -> None:
    async def test(scene: Scene) -> None:
        link = await scene.dial(ClientTls(trust.tls(trust.client())).current())
        assert await link.request(LOOSE, {"value": MARK}) == {"echo": {"value": MARK}}
        assert len(scene.middle.wire) > 500
        for known in (MARK, CLUSTER.encode(), b"hello", b"lognode"):
            assert known not in scene.middle.wire
        link.close()

    run(trust, test)


def test_he_ends_tls_with_no_certificate_that_he_can_have(trust: Pki, tmp_path: Path) -> None:
    """One of his own CA, a client's, or that of another node whose key he has."""
    own = pki(tmp_path / "his", "prod").authority
    client = trust.client("stolen")

    async def test(scene: Scene) -> None:
        as_client = ClientTls(trust.tls(client)).current()
        other_host = trust.node("n3", hosts=["other.example"])
        for shown, dial, reason in (
            (
                own.node("n2", HOSTS, 5),
                lambda: scene.dial(as_client),
                "this side does not trust the CA",
            ),
            (client, lambda: scene.dial(as_client), "not for this use"),
            (other_host, lambda: scene.dial(as_client), "not for host '127.0.0.1'"),
            (own.node("m2", HOSTS, 5), to_node_2(scene), "does not trust the CA"),
            (client, to_node_2(scene), "not for this use"),
            (trust.node("3"), to_node_2(scene), "is of node 3, not of node 2"),
            (other_host, to_node_2(scene), "node 2 is registered with another key"),
        ):
            scene.middle.show = shown
            with pytest.raises(Unauthorized, match=reason):
                await dial()
        assert scene.middle.accepted == 7
        assert scene.middle.plain == b""  # no hello was said to him
        assert scene.server.believed == []

    def to_node_2(scene: Scene) -> Callable[[], Awaitable[Connection]]:
        other_key = NodeRecord(2, "h:1", "", "", 2, 1, "ACTIVE", key="ab" * 32)
        scene.first.learn({2: other_key})
        return lambda: scene.dial_as_node(scene.first.dialling(2))

    run(trust, test)


def test_he_changes_nothing_that_passes(trust: Pki) -> None:
    """Whatever he flips ends the connection; what comes through was sent so."""

    async def test(scene: Scene) -> None:
        tls = ClientTls(trust.tls(trust.client())).current()
        sent: list[Any] = []
        ended = done = 0
        while ended < 30:
            # In the handshake, which takes 3,000 bytes, and after it.
            scene.middle.alter = flips = Flips(401 + 397 * ended)
            with contextlib.suppress(LognodeError):
                link = await scene.dial(tls, timeout_s=1.0)
                for number in range(50):
                    sent.append({"n": number, "ended": ended, "value": MARK * 3})
                    answer = await link.request(LOOSE, sent[-1], deadline=now() + 1.0)
                    assert answer == {"echo": sent[-1]}
                    done += 1
                link.close()
                continue
            ended += 1
            assert flips.flipped
        assert done > 30  # it was not refused all the time
        assert all(body in sent for body in scene.server.bodies)

    run(trust, test)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_he_relays_no_handshake(trust: Pki, tmp_path: Path) -> None:
    """Even where he ends TLS between two nodes that believe his certificate, their proofs of the
    secret are of two different channels."""
    his = pki(tmp_path / "his", "prod").authority.node("n2", HOSTS, 5)

    async def test(scene: Scene) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a dialler that checks no certificate at all
        own = trust.node("n4")
        context.load_cert_chain(own.cert, own.key)
        link = await scene.dial_as_node(DialTls(context), SECRET)
        assert await link.request(LOOSE, {}) == {"echo": {}}
        link.close()
        scene.middle.show = trust.node("n5")  # with which he is let in himself
        with pytest.raises(Unauthorized, match="a third party relays this connection"):
            await scene.dial_as_node(DialTls(context), SECRET)
        assert b"magic" in scene.middle.plain  # he reads the handshake, and it helps him nothing
        assert len(scene.server.believed) == 1
        scene.middle.show = his
        with pytest.raises(LognodeError):
            await scene.dial_as_node(DialTls(context), SECRET)
        assert len(scene.server.believed) == 1

    run(trust, test, secret=SECRET)
