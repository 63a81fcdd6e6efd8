"""Tokens as text: what they are, what is kept of them, and that they stay secret."""

import asyncio
import os
import re
from pathlib import Path

import pytest

import lognode
from lognode.client import connection, tokens
from lognode.client.connection import _check_may_tell, dial
from lognode.client.loopback import is_loopback
from lognode.client.protocol.errors import InvalidArgument, RemoteProtocolError
from lognode.client.protocol.frames import token_chars_max
from lognode.client.protocol.private_files import write_private
from lognode.client.protocol.wire import Hello
from lognode.client.transport import FrameTransport

NONCE = bytes(32)


def test_a_token_has_256_random_bits() -> None:
    drawn = {tokens.draw() for _ in range(100)}
    assert len(drawn) == 100
    assert all(re.fullmatch(r"[0-9a-f]{16}\.[0-9a-f]{64}", token) for token in drawn)
    assert len({tokens.id_of(token) for token in drawn}) == 100


def test_only_the_token_itself_has_its_digest() -> None:
    token = tokens.draw()
    digest = tokens.digest_of(token)
    assert tokens.is_token(token, digest)
    assert not tokens.is_token(token[:-1], digest)
    assert not tokens.is_token(tokens.draw(), digest)
    assert not tokens.is_token(token, b"")


@pytest.mark.parametrize(
    "text",
    ["", "x", "0" * 16, "0" * 16 + ".", "0" * 16 + "." + "a" * 21, "g" * 16 + "." + "a" * 43,
     "0" * 16 + "." + "a" * 201, "0" * 16 + "." + "a" * 30 + "\n"],
)  # fmt: skip
def test_a_malformed_token_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        lognode.AsyncClient(token=text)
    assert not text or f"{text}" not in str(caught.value) or text == "x"


def test_a_client_does_not_show_its_token() -> None:
    token = tokens.draw()
    client = lognode.AsyncClient(token=token)
    assert token not in repr(client) + repr(vars(client))
    hello = Hello("client", NONCE, token=token)
    assert token not in repr(hello)
    assert hello.to_body()["token"] == token


def test_a_hello_has_a_token_of_bounded_length() -> None:
    body = Hello("client", NONCE).to_body()
    assert "token" not in body
    assert Hello.from_body(body).token is None
    longest = "x" * token_chars_max
    assert Hello.from_body({**body, "token": longest}).token == longest
    for bad in (longest + "x", b"bytes", 7):
        with pytest.raises(RemoteProtocolError) as caught:
            Hello.from_body({**body, "token": bad})
        assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("address", ["10.0.0.1:4600", "192.168.0.7:1", "2001:db8::1:4600", "?"])
def test_a_token_does_not_leave_the_machine_unencrypted(address: str) -> None:
    async def run() -> None:
        transport = FrameTransport(None)
        transport.peer_address = address
        _check_may_tell(Hello("client", NONCE), transport)
        with pytest.raises(InvalidArgument, match="needs an encrypted connection"):
            _check_may_tell(Hello("client", NONCE, token=tokens.draw()), transport)
        transport.peer_address = "127.0.0.1:4600"
        _check_may_tell(Hello("client", NONCE, token=tokens.draw()), transport)

    asyncio.run(run())


def test_a_dialler_that_may_not_tell_its_token_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the listener were on another machine."""

    async def run() -> bytes:
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.set_result(await reader.read())
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(InvalidArgument, match="needs an encrypted connection"):
                await dial("127.0.0.1", port, token=tokens.draw())
            return await received

    monkeypatch.setattr(connection, "is_loopback", lambda host: False)
    assert asyncio.run(run()) == b""


def test_loopback_is_this_machine_alone() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "10.0.0.1", "::", "::ffff:10.0.0.1", "localhost.evil.example", "", "?"):
        assert not is_loopback(host), host


def test_a_token_is_read_from_a_private_file_alone(tmp_path: Path) -> None:
    token, path = tokens.draw(), tmp_path / "token"
    write_private(path, f"{token}\n".encode())
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens.read_token(path) == token
    os.chmod(path, 0o640)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        tokens.read_token(path)
    write_private(path, b"not a token")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="11 characters"):
        tokens.read_token(path)
    assert os.listdir(tmp_path) == ["token"]
