"""How Kafka clients show their tokens, and what tokens cost a node."""

import asyncio
import struct

import kafka_wire as wire
import pytest

from lognode.client.protocol.errors import InvalidArgument, Overloaded, Unavailable
from lognode.node.kafka import api, codes, sasl
from lognode.node.kafka.api import head_of
from lognode.node.kafka.clients import Clients
from lognode.node.kafka.idempotent import ids_of, open_id
from lognode.node.kafka.wire import Reader
from lognode.partitions.grants import granted


@pytest.mark.parametrize("data", [b"\0user\0secret", b"user\0user\0secret", b"\0\0secret"])
def test_the_password_of_plain_is_the_token(data: bytes) -> None:
    assert sasl.token_of(data) == "secret"


@pytest.mark.parametrize(
    "data",
    [b"", b"secret", b"user\0secret", b"other\0user\0secret", b"\0user\0secret\0more",
     b"\0" * 9_000],
    ids=["empty", "bare", "two", "other", "four", "many"],
)  # fmt: skip
def test_other_messages_are_refused_without_their_bytes(data: bytes) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        sasl.token_of(data)
    assert "secret" not in refusal.value.message


def test_the_messages_have_their_fields_in_each_version() -> None:
    for version in (0, 1):
        reader = Reader(wire.handshake("PLAIN", version)[4:])
        assert head_of(reader).api == api.SASL_HANDSHAKE
        assert sasl.handshake(reader, version) == "PLAIN"
        reader = Reader(wire.authenticate(b"x", version)[4:])
        assert head_of(reader).version == version
        assert sasl.authenticate(reader, version) == b"x"
    names = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert sasl.handshake_answer(0) == bytes(2) + wire.array([wire.text(name) for name in names])
    refused = struct.pack(">h", 58) + wire.text("no") + wire.data(b"")
    assert sasl.authenticate_answer(58, "no", 0) == refused
    assert sasl.authenticate_answer(58, "no", 1) == refused + bytes(8)
    given = bytes(2) + wire.text(None) + wire.data(b"v=")
    assert sasl.authenticate_answer(0, None, 0, b"v=") == given
    assert [sasl.refusal(name) for name in names] == [0, 0, 0]
    for other in ("GSSAPI", "SCRAM-SHA-1", "plain", ""):
        assert sasl.refusal(other) == codes.UNSUPPORTED_SASL_MECHANISM


def test_X5_ids_of_producers_differ_by_principal_and_have_a_grant() -> None:
    key = b"k" * 16
    ann, bob = ids_of("ann", lambda: key), ids_of("bob", lambda: key)
    found = {of(producer, partition)[0] for of in (ann, bob) for producer in range(9)
             for partition in range(9)}  # fmt: skip
    assert len(found) == 2 * 81
    assert all(1 << 62 <= each < 1 << 63 for each in found)
    number, grant = ann(5, 1)
    assert ann(5, 1) == (number, grant), "every node gives the same id"
    assert grant is not None
    assert granted(key, grant, "ann") == range(number, number + 1)
    assert open_id(5, 1) == ((1 << 62) + (5 << 12) + 1, None)
    with pytest.raises(Unavailable):
        ids_of("ann", lambda: b"")(5, 1)


class Made:
    """A client that says whether it was closed."""

    def __init__(self, token: str | None, owner: str) -> None:
        self.shown = token, owner
        self.connections = 0
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def test_X1_the_clients_of_tokens_are_bounded_and_an_unused_client_makes_room() -> None:
    async def run() -> None:
        clients = Clients(Made, lambda: 2)  # type: ignore[arg-type]
        ann, bob = clients.hold("a", "ann"), clients.hold("b", "bob")
        assert clients.hold("a", "ann") is ann, "connections with one token share a client"
        with pytest.raises(Overloaded):
            clients.hold("c", "carl")
        clients.release(ann)
        with pytest.raises(Overloaded):
            clients.hold("c", "carl")
        clients.release(bob)
        assert clients.hold("c", "carl").shown == ("c", "carl")
        await asyncio.sleep(0)
        assert (ann.is_closed, bob.is_closed) == (False, True)
        await clients.close()
        assert ann.is_closed

    asyncio.run(run())
