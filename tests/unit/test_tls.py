"""TLS between a dialler and a listener, on real loopback sockets."""

import asyncio
import contextlib
import resource
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loose_operations import LOOSE, ONE_WAY, by_number
from pki import Pki, pki

from lognode.client import connection
from lognode.client.accepting import acceptor, server_handshake
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.accepting.seats import Bounds
from lognode.client.fair_turns import Step
from lognode.client.protocol import Operation, frame, frames, limits, tls, wire
from lognode.client.protocol.certificate import Certificate
from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Unauthorized,
    Unavailable,
)
from lognode.client.protocol.tls import Channel, ClientTls, Tls
from lognode.client.protocol.wire import Hello, Welcome
from lognode.client.transport import FrameTransport
from lognode.node.certificates.ca import Issued


class Server:
    """An echo that remembers who came."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.opened_for: list[ServerConnection] = []
        self.refusals: list[LognodeError] = []
        self.failures: list[Exception] = []
        self.told: list[str] = []
        """Why connections had to go."""
        self.messages: list[Any] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        self.hellos.append(hello)
        return Welcome(nonce=nonce, cluster="c", node=1)

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        return

    def opened(self, connection: ServerConnection) -> None:
        self.opened_for.append(connection)

    def request(self, request: Request) -> Any:
        return {"echo": request.body}

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        found = by_number(number)
        assert found is not None
        return found

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        """Nothing is."""

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages.append(body)

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        return

    def failed(self, number: int, error: Exception) -> None:
        self.failures.append(error)


class Listening:
    """TLS of a listener, with one certificate."""

    def __init__(self, server: Server, trust: Pki, own: Issued, clients: ssl.VerifyMode) -> None:
        self._server = server
        self._own = own.certificate
        self._context = tls.listen_context(trust.ca, own.cert, own.key, clients)

    def channel(self) -> Channel:
        return Channel(self._context, server_side=True, own=self._own)

    def check(self, hello: Hello, certificate: Certificate | None) -> None:
        if hello.role == "node" and (certificate is None or not certificate.nodes()):
            raise Unauthorized("no node's certificate")

    def refused(self, address: str, error: LognodeError) -> None:
        self._server.refusals.append(error)


Test = Callable[[Listener, Server], Awaitable[None]]


def run(
    trust: Pki | None,
    test: Test,
    *,
    own: Issued | None = None,
    clients: ssl.VerifyMode = ssl.CERT_OPTIONAL,
    secret: bytes | None = None,
    bounds: Bounds | None = None,
) -> None:
    async def main() -> None:
        server = Server()
        listening = None
        if trust is not None:
            listening = Listening(server, trust, own or trust.node("server"), clients)
        listener = await acceptor.serve(
            server, "127.0.0.1", 0, tls=listening, secret=secret, bounds=bounds,
            on_closed=lambda reason, _: server.told.append(reason),
        )  # fmt: skip
        try:
            async with asyncio.timeout(20):
                await test(listener, server)
        finally:
            await listener.close()
        assert server.failures == []

    asyncio.run(main())


async def dial(
    listener: Listener, options: Tls | None, host: str = "127.0.0.1", **others: Any
) -> connection.Connection:
    how = None if options is None else ClientTls(options).current()
    return await connection.dial(host, listener.port, tls=how, **others)


async def refused(listener: Listener, options: Tls | None, **others: Any) -> LognodeError:
    """The one error of a dialler that is not let in."""
    with pytest.raises(LognodeError) as caught:
        await dial(listener, options, **others)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def trust(tmp_path: Path) -> Pki:
    return pki(tmp_path / "ca")


def test_requests_of_all_sizes_pass_through_tls(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, trust.tls())
        for size in (0, 1, 16_384, 16_385, 1 << 20, 4 << 20):
            body = {"data": bytes(size)}
            assert await link.request(LOOSE, body) == {"echo": body}
        many = [link.request(LOOSE, {"n": n, "data": bytes(n)}) for n in range(200)]
        assert [answer["echo"]["n"] for answer in await asyncio.gather(*many)] == list(range(200))
        (served,) = server.opened_for
        assert link.bytes_out == served.bytes_in > 5 << 20
        assert link.bytes_in == served.bytes_out > 5 << 20
        assert served.certificate is None
        link.close()
        await link.wait_closed()

    run(trust, test)


def test_only_tls_1_3_is_spoken(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(trust.ca)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            await asyncio.open_connection("127.0.0.1", listener.port, ssl=old)
        new = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        new.load_verify_locations(trust.ca)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=new)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert writer.get_extra_info("ssl_object").compression() is None
        writer.close()
        await writer.wait_closed()

    run(trust, test)


def test_a_client_certificate_is_known_to_the_listener(trust: Pki) -> None:
    app = trust.client("app")

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, trust.tls(app))
        assert await link.request(LOOSE, {}) == {"echo": {}}
        (served,) = server.opened_for
        assert served.certificate == app.certificate
        assert "(client app) at 127.0.0.1" in repr(served)

    run(trust, test, clients=ssl.CERT_REQUIRED)


def test_a_listener_that_requires_a_certificate_says_so(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls())
        assert isinstance(error, Unauthorized)
        assert "give a certificate and its key (--tls-cert and --tls-key" in str(error)
        await until(lambda: len(server.refusals) == 1)
        assert "sent no certificate" in str(server.refusals[0])
        assert server.hellos == []

    run(trust, test, clients=ssl.CERT_REQUIRED)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_certificate_of_another_ca_is_refused_by_either_side(trust: Pki, tmp_path: Path) -> None:
    other = pki(tmp_path / "other")
    foreign = other.client("app")

    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, other.tls())
        assert isinstance(error, Unauthorized)
        assert "this side does not trust the CA of the other side's" in str(error)
        error = await refused(listener, Tls(ca=trust.ca, cert=foreign.cert, key=foreign.key))
        assert isinstance(error, Unauthorized)
        assert "does not trust the CA of this side's certificate" in str(error)
        error = await refused(listener, Tls())  # the CAs of the operating system
        assert "this side does not trust the CA of the other side's" in str(error)
        assert server.hellos == []

    run(trust, test)


def test_an_expired_certificate_is_refused_by_either_side(trust: Pki) -> None:
    expired = trust.aged(trust.client("old"), -9, -1)
    early = trust.aged(trust.client("new"), 1, 9)

    async def test(listener: Listener, server: Server) -> None:
        for issued, reason in ((expired, "this side's certificate has expired: renew the "
                                         "certificate"),
                               (early, "it does not accept this side's certificate")):  # fmt: skip
            assert reason in str(await refused(listener, trust.tls(issued)))
        assert server.hellos == []

    run(trust, test)

    async def from_expired(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls())
        assert "the other side's certificate has expired" in str(error)

    run(trust, from_expired, own=trust.aged(trust.node("old-node"), -9, -1))


def test_the_host_is_checked(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls())
        assert "is not for host '127.0.0.1': use an address in the certificate" in str(error)
        error = await refused(listener, trust.tls(), host="localhost")
        assert "is not for host 'localhost'" in str(error)
        assert server.hellos == []

    run(trust, test, own=trust.node("far", hosts=["db.example", "10.1.2.3"]))


def test_the_certificate_of_a_client_is_not_for_a_listener(trust: Pki) -> None:
    """The holder of a client's key cannot take a node's place."""
    with_hosts = trust.client("app")

    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls())
        assert "the other side's certificate is not for this use" in str(error)

    run(trust, test, own=with_hosts)


def test_a_client_without_tls_is_told_what_to_do(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, None)
        assert isinstance(error, RemoteProtocolError)
        assert "this listener speaks only TLS 1.3: use lognodes://" in str(error)
        assert server.hellos == []

    run(trust, test)


def test_a_client_with_tls_is_told_that_a_listener_has_none(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls())
        assert isinstance(error, RemoteProtocolError)
        assert "use lognode:// instead of lognodes:// and no TLS options" in str(error)

    run(None, test)


@pytest.mark.parametrize("is_secure", [True, False])
@pytest.mark.parametrize("split", [1, 3, 8, 99])
def test_an_http_client_is_told_in_http_that_the_port_is_another(
    trust: Pki, is_secure: bool, split: int
) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n"

    async def test(listener: Listener, server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        if is_secure:
            writer.write(request)  # a TLS listener decides by its first bytes
        else:
            writer.write(request[:split])
            await asyncio.sleep(0.02)
            writer.write(request[split:])
        got = await reader.read()
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"HTTP is at the address of the node's --http" in body
        assert f"Content-Length: {len(body)}".encode() in head
        assert server.hellos == []
        writer.close()

    run(trust if is_secure else None, test)


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_client_that_dials_http_is_told_the_other_address(trust: Pki, is_secure: bool) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tls = ClientTls(trust.tls()).current() if is_secure else None
        with pytest.raises(RemoteProtocolError, match="answers HTTP: give the address of the node"):
            await connection.dial("127.0.0.1", port, tls=tls)
        server.close()
        await server.wait_closed()

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\x16" * 64,
                                  b"\x16\x03\x01\xff\xff" + b"x" * 70_000])  # fmt: skip
def test_strange_bytes_end_their_connection_and_nothing_else(trust: Pki, data: bytes) -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, trust.tls())
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        with contextlib.suppress(ConnectionError):  # closed with bytes unread
            assert len(await reader.read()) < 1_000
        writer.close()
        assert await link.request(LOOSE, {}) == {"echo": {}}
        assert len(server.hellos) == 1

    run(trust, test)


def test_half_a_tls_handshake_ends_in_time(trust: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted among the connections meanwhile."""
    monkeypatch.setattr(server_handshake, "handshake_timeout_s", 0.2)

    async def test(listener: Listener, server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\x16\x03\x01\x01\x00")
        await until(lambda: listener.connections == 1)
        async with asyncio.timeout(3):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: listener.connections == 0)
        assert "the handshake took over" in str(server.refusals[0])

    run(trust, test)


def test_an_end_without_warning_is_a_lost_connection(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener, trust.tls())
        server.opened_for[0]._transport._transport.abort()  # type: ignore[union-attr]
        await until(lambda: link.lost is not None)
        assert isinstance(link.lost, Unavailable)
        link = await dial(listener, trust.tls())
        server.opened_for[1].close()
        await until(lambda: link.lost is not None)
        assert isinstance(link.lost, Unavailable)

    run(trust, test)


def test_a_refusal_is_told_inside_tls(trust: Pki) -> None:
    async def test(listener: Listener, server: Server) -> None:
        error = await refused(listener, trust.tls(), role="node", node=3, cluster="c")
        assert str(error) == "no node's certificate"
        assert server.hellos == []  # nothing else learnt of it

    run(trust, test)


SECRET = b"a secret of 32 random bytes or so"


def test_nodes_prove_the_secret_inside_tls_too(trust: Pki) -> None:
    node = trust.node("n2")

    async def test(listener: Listener, server: Server) -> None:
        options = {"role": "node", "node": 3, "cluster": "c"}
        link = await dial(listener, trust.tls(node), secret=SECRET, **options)
        assert await link.request(LOOSE, {}) == {"echo": {}}
        for secret in (b"another secret", None):
            assert isinstance(
                await refused(listener, trust.tls(node), secret=secret, **options), Unauthorized
            )

    run(trust, test, secret=SECRET)


def test_a_proof_is_of_one_tls_channel_only(trust: Pki) -> None:
    """X: a man in the middle who ends TLS cannot pass the proofs on."""
    hello, welcome = Hello(role="node", nonce=b"a" * 32), Welcome(nonce=b"b" * 32)
    ours, theirs = (trust.node(name).certificate.fingerprint for name in ("a", "b"))
    proof = wire.prove(SECRET, "dialler", hello, welcome, ours)
    wire.check_proof(SECRET, "dialler", hello, welcome, proof, ours)
    for binding in (theirs, b""):
        with pytest.raises(Unauthorized, match="a third party relays"):
            wire.check_proof(SECRET, "dialler", hello, welcome, proof, binding)


def test_a_stranger_gets_no_proof_to_guess_the_secret_from() -> None:
    """The dialler proves first: what an acceptor says before tells nothing of the secret."""

    async def test(listener: Listener, server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        hello = Hello(role="node", nonce=bytes(32))
        writer.write(frame.encode(0, frames.HELLO, hello.to_body()))
        writer.write(frame.encode(0, frames.PROOF, {"proof": bytes(32)}))
        said = frame.Decoder().feed(await reader.read())
        writer.close()
        kinds = [message.kind for message in said if isinstance(message, frame.Frame)]
        assert kinds == [frames.WELCOME, frames.ERROR]
        (body, _) = (message.body for message in said if isinstance(message, frame.Frame))
        assert set(body) == {"version", "cluster", "node", "nonce", "wants_proof"}
        welcome = Welcome.from_body(body)
        proof = wire.prove(SECRET, "acceptor", hello, welcome)
        assert proof not in frame.encode(0, frames.WELCOME, body)
        assert server.opened_for == []

    run(None, test, secret=SECRET)


# The files.


def test_a_key_that_others_may_read_is_refused(trust: Pki) -> None:
    app = trust.client()
    for mode in (0o640, 0o604, 0o660, 0o644):
        app.key.chmod(mode)
        with pytest.raises(InvalidArgument, match=rf"TLS key .* has mode {mode:04o}.*chmod 600"):
            ClientTls(trust.tls(app)).current()
    app.key.chmod(0o400)
    ClientTls(trust.tls(app)).current()


def test_files_that_cannot_be_used_are_named(trust: Pki, tmp_path: Path) -> None:
    app, other = trust.client("app"), trust.client("other")
    nothing = tmp_path / "nothing"
    empty = tmp_path / "empty"
    empty.touch(0o600)
    for options, reason in (
        (Tls(ca=nothing), f"cannot read CA file {nothing}: No such file"),
        (Tls(ca=empty), f"CA file {empty} contains no certificate"),
        (Tls(ca=trust.ca, cert=nothing, key=app.key), f"cannot read certificate {nothing}"),
        (Tls(ca=trust.ca, cert=app.cert, key=nothing), f"cannot read TLS key {nothing}"),
        (Tls(ca=trust.ca, cert=app.cert, key=other.key), "does not belong to certificate"),
        (Tls(ca=trust.ca, cert=empty, key=app.key), f"cannot use certificate {empty}"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            ClientTls(options).current()
        assert reason in str(caught.value)
    for options, reason in ((Tls(cert=app.cert), "TLS has a cert and no key"),
                            (Tls(key=app.key), "TLS has a key and no cert")):  # fmt: skip
        with pytest.raises(InvalidArgument, match=reason):
            ClientTls(options)


def test_an_encrypted_key_asks_nobody_for_its_password(trust: Pki) -> None:
    from cryptography.hazmat.primitives import serialization

    app = trust.client()
    key = serialization.load_pem_private_key(app.key.read_bytes(), None)
    app.key.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    ))  # fmt: skip
    with pytest.raises(InvalidArgument, match="the TLS key is encrypted"):
        ClientTls(trust.tls(app)).current()


def test_a_client_uses_new_files_and_keeps_the_old_where_the_new_are_bad(
    trust: Pki, tmp_path: Path
) -> None:
    first, second = trust.client("first"), trust.client("second")
    cert, key = tmp_path / "cert", tmp_path / "key"

    def put(issued: Issued) -> None:
        for source, target in ((issued.cert, cert), (issued.key, key)):
            fresh = target.with_suffix(".new")
            shutil.copy(source, fresh)
            fresh.replace(target)

    async def test(listener: Listener, server: Server) -> None:
        put(first)
        how = ClientTls(Tls(ca=trust.ca, cert=cert, key=key))

        async def seen() -> Certificate | None:
            before = len(server.opened_for)
            await connection.dial("127.0.0.1", listener.port, tls=how.current())
            await until(lambda: len(server.opened_for) > before)
            return server.opened_for[-1].certificate

        assert await seen() == first.certificate
        assert how.current() is how.current()  # nothing is read while nothing changed
        put(second)
        assert await seen() == second.certificate
        cert.write_text("no certificate")
        assert await seen() == second.certificate
        put(first)
        assert await seen() == first.certificate

    run(trust, test)


def test_bytes_changed_on_the_way_end_the_connection(trust: Pki) -> None:
    """Each bit of a request, in its turn: nothing of a changed record is taken."""
    own = trust.node("server")
    listening = tls.listen_context(trust.ca, own.cert, own.key, ssl.CERT_NONE)
    dialling = ClientTls(trust.tls()).current()
    for at in range(0, 8 * 60, 7):
        server = Channel(listening, server_side=True, own=own.certificate)
        client = dialling.channel("127.0.0.1")
        out, back = client.begin(), b""
        while not (client.secured and server.secured):
            server.receive(out) if out else None
            back = server.outgoing()
            client.receive(back) if back else None
            out = client.outgoing()
        assert client.binding == server.binding == own.certificate.fingerprint
        sealed = bytearray(client.seal(b"append 100 to the account"))
        sealed[at // 8 % len(sealed)] ^= 1 << at % 8
        plain = b""  # nothing comes where the record is announced as longer than it is
        with contextlib.suppress(LognodeError):
            plain = server.receive(bytes(sealed))
        assert plain == b""


def test_nothing_is_resumed(trust: Pki) -> None:
    """A resumed session would have the identity of files that may have changed since."""

    async def test(listener: Listener, server: Server) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(trust.ca)
        with socket.create_connection(("127.0.0.1", listener.port)) as plain:
            plain.setblocking(True)

            def use() -> bool:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                    hello = Hello(role="client", nonce=bytes(32))
                    wrapped.sendall(frame.encode(0, frames.HELLO, hello.to_body()))
                    wrapped.recv(1000)
                    return wrapped.session is not None and wrapped.session.has_ticket

            assert not await asyncio.to_thread(use)

    run(trust, test)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_a_connection_keeps_no_memory_of_large_frames(trust: Pki) -> None:
    """OpenSSL's buffers never shrink: what they are given at once is bounded."""
    body = {"data": bytes(4 << 20)}

    async def test(listener: Listener, server: Server) -> None:
        links = [await dial(listener, trust.tls())]
        await links[0].request(LOOSE, body)
        links += [await dial(listener, trust.tls()) for _ in range(40)]
        before = resident_bytes()
        for link in links:
            assert await link.request(LOOSE, body) == {"echo": body}
        assert resident_bytes() - before < 40 << 20

    run(trust, test)


def test_a_client_that_asks_for_new_keys_and_does_not_read_is_cut_off(
    trust: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to key updates leave past all frames, so that no queue of frames bounds them."""
    monkeypatch.setattr(Channel, "outgoing", lambda self: b"x" * 27)

    async def main() -> None:
        own = trust.node("server")
        context = tls.listen_context(trust.ca, own.cert, own.key, ssl.CERT_OPTIONAL)
        transport = FrameTransport(Channel(context, server_side=True))
        monkeypatch.setattr(Channel, "receive", lambda self, data: b"")
        transport.data_received(b"key update")
        assert transport.lost is None
        transport._out_bytes = limits.send_buffer_bytes_max  # its reader takes nothing
        transport.data_received(b"key update")
        assert isinstance(transport.lost, RemoteProtocolError)
        assert "does not read its answers" in str(transport.lost)

    asyncio.run(main())


class Raw:
    """A client of TLS over a socket that says exactly what it is told to."""

    def __init__(self, trust: Pki, opened: socket.socket) -> None:
        self.channel = ClientTls(trust.tls()).current().channel("127.0.0.1")
        self._socket = opened
        self._loop = asyncio.get_running_loop()

    async def greet(self) -> None:
        """Both handshakes."""
        await self.say(self.channel.begin())
        while not self.channel.secured:
            self.channel.receive(await self._loop.sock_recv(self._socket, 1 << 16))
            await self.say(self.channel.outgoing())
        hello = Hello(role="client", nonce=bytes(32))
        await self.say(self.channel.seal(frame.encode(0, frames.HELLO, hello.to_body())))
        assert (await self.heard()).kind == frames.WELCOME

    async def say(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def heard(self) -> frame.Frame:
        """The next frame. Raises EOFError at the end of the connection."""
        decoder = frame.Decoder()
        while True:
            data = await self._loop.sock_recv(self._socket, 1 << 16)
            if not data:
                raise EOFError
            for found in decoder.feed(self.channel.receive(data)):
                assert isinstance(found, frame.Frame)
                return found


@contextlib.asynccontextmanager
async def raw(trust: Pki, listener: Listener) -> AsyncIterator[Raw]:
    """A raw client after its handshakes."""
    with socket.socket() as opened:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", listener.port))
        made = Raw(trust, opened)
        await made.greet()
        yield made


class LateTurns:
    """Every frame waits, and gets a turn of its own."""

    clock = staticmethod(lambda: 1.0)

    def begin(self, step: Step) -> None:
        self.later(step)

    def later(self, step: Step) -> None:
        asyncio.get_running_loop().call_later(0.01, step, 0.0)

    def spent(self, seconds: float) -> None:
        """Nobody counts."""


def test_bytes_before_the_end_of_tls_are_read_even_if_they_wait_for_their_turn(
    trust: Pki,
) -> None:
    async def test(listener: Listener, server: Server) -> None:
        async with raw(trust, listener) as client:
            (served,) = server.opened_for
            served._transport.turns = LateTurns()
            said = [client.channel.seal(frame.encode(0, ONE_WAY.number, {"n": n}))
                    for n in range(20)]  # fmt: skip
            await client.say(b"".join(said) + client.channel.end())
            await until(lambda: served.lost is not None)
            assert server.messages == [{"n": n} for n in range(20)]
            await until(lambda: listener.connections == 0)

    run(trust, test)


def test_bytes_before_the_end_of_tls_are_read_even_if_memory_was_short(trust: Pki) -> None:
    """The acceptor takes no more frames for a while, as when too many requests are in flight."""

    async def test(listener: Listener, server: Server) -> None:
        async with raw(trust, listener) as client:
            (served,) = server.opened_for
            served._transport.read_on(False)
            served._transport._transport.resume_reading()  # type: ignore[union-attr]
            await client.say(
                client.channel.seal(frame.encode(0, ONE_WAY.number, {"n": 1}))
                + client.channel.end()
            )
            await until(lambda: served.has_more)
            await asyncio.sleep(0)
            assert served.lost is None
            assert server.messages == []
            served._transport.read_on(True)
            await until(lambda: served.lost is not None)
            assert server.messages == [{"n": 1}]

    run(trust, test)


def test_a_frame_that_hardly_grows_inside_tls_ends_its_connection(
    trust: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is a record: what the records cost is not growth of the frame."""
    monkeypatch.setattr(limits, "frame_window_s", 0.2)

    async def test(listener: Listener, server: Server) -> None:
        async with raw(trust, listener) as client:

            async def drip() -> None:
                await client.say(client.channel.seal(frame.HEADER.pack(1 << 20, 0)))
                while True:
                    await client.say(client.channel.seal(b"x"))
                    await asyncio.sleep(0.005)

            dripping = asyncio.create_task(drip())
            found = await client.heard()
            dripping.cancel()
            assert found.kind == frames.ERROR
            assert "its bytes arrived at less than 1000 a second" in found.body["message"]
            assert server.told == ["slow"]

    run(trust, test, bounds=Bounds(frame_bytes_per_s=1_000))


def test_a_tls_record_without_an_end_is_not_a_request(trust: Pki) -> None:
    """A byte a second of a record of 16 KiB would last for hours."""

    async def test(listener: Listener, server: Server) -> None:
        async with raw(trust, listener) as client:
            record = client.channel.seal(bytes(10_000))

            async def drip() -> None:
                for byte in record:
                    await client.say(bytes([byte]))
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            found = await client.heard()
            dripping.cancel()
            assert "no request for 0.3 s" in found.body["message"]
            assert server.told == ["idle"]

    run(trust, test, bounds=Bounds(idle_s=0.3))
