"""Kafka clients that prove a token with SCRAM, and what a cluster keeps of such a token."""

import asyncio
import base64
import hashlib
import hmac
import random
import struct
from types import SimpleNamespace
from typing import Any, cast

import kafka_wire as wire
import pytest
from metadata_log import Controller
from scram_client import ScramClient

from lognode.client import scram, tokens
from lognode.client.protocol.errors import InvalidArgument, Unauthorized
from lognode.client.protocol.levels import SCRAM_FROM
from lognode.client.protocol.limits import scram_keys_bytes
from lognode.client.protocol.scopes import parse_scope
from lognode.node.access.access import Accesses
from lognode.node.kafka import codes
from lognode.node.kafka.api import head_of
from lognode.node.kafka.scram import Exchange, Step
from lognode.node.kafka.session import Answered, Session
from lognode.node.kafka.wire import Reader
from lognode.node.metrics import Metrics

MECHANISMS = [*scram.MECHANISMS]


class World:
    """A token that has keys for SCRAM, and exchanges with a node about it."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.hash_name = scram.MECHANISMS[mechanism]
        self.token = tokens.draw()
        self.token_id = tokens.id_of(self.token)
        self.kept = scram.kept_keys(self.token)

    async def keys_of(self, token_id: str) -> bytes:
        if token_id != self.token_id:
            raise Unauthorized("unknown")
        return self.kept

    def exchange(self) -> Exchange:
        return Exchange(self.mechanism, self.keys_of)

    def client(self, password: str | None = None, **more: bytes) -> ScramClient:
        return ScramClient(self.token_id, password or self.token, self.hash_name, **more)


@pytest.fixture(params=MECHANISMS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def step(exchange: Exchange, message: bytes) -> Step:
    return asyncio.run(exchange.step(message))


def test_the_keys_are_those_of_the_example_in_rfc_7677() -> None:
    keys = scram.derived("sha256", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4_096)
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    signed = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=" + nonce
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(keys.stored, signed, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == keys.stored
    found = base64.b64encode(hmac.digest(keys.server, signed, "sha256"))
    assert found == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("more", [
    {}, {"header": b"y,,"}, {"header": b"n,a=somebody,"}, {"more": b",tokenauth=false"},
    {"nonce": b"a"}, {"nonce": b"abc", "again": b"abc"},
], ids=["plain", "bindings", "for another", "extension", "short", "librdkafka 2.6.0"])  # fmt: skip
def test_a_client_with_the_token_proves_it_and_the_node_proves_itself(
    world: World, more: dict[str, bytes]
) -> None:
    exchange, client = world.exchange(), world.client(**more)
    challenge = step(exchange, client.first)
    assert challenge.shown is None
    answer, shown = step(exchange, client.last(challenge.answer))
    assert client.is_proven(answer)
    assert shown is not None
    assert tokens.id_of(shown) == world.token_id, "the text has the form of a token"
    assert scram.is_client_key(shown, world.kept)
    assert shown not in world.token


def test_X5_nothing_but_the_client_key_counts_as_the_token(world: World) -> None:
    keys, id_ = scram.keys_of(world.kept, world.mechanism), world.token_id
    assert len(world.kept) == scram_keys_bytes
    other = World(world.mechanism)
    for key in (keys.stored, keys.server, b"\0" * len(keys.stored), keys.stored[:-1]):
        assert not scram.is_client_key(scram.text_of(id_, world.mechanism, key), world.kept)
    assert not scram.is_client_key(world.token, world.kept)
    assert not scram.is_client_key(f"{id_}.{world.hash_name}-zz", world.kept)
    exchange, client = other.exchange(), other.client()
    shown = step(exchange, client.last(step(exchange, client.first).answer)).shown
    assert shown is not None
    assert scram.is_client_key(shown, other.kept)
    assert not scram.is_client_key(shown, world.kept), "the key of another token"
    assert not scram.is_client_key(shown, b""), "a token without keys"
    crossed = MECHANISMS[1 - MECHANISMS.index(world.mechanism)]
    key = bytes.fromhex(shown.partition("-")[2])
    assert not scram.is_client_key(scram.text_of(other.token_id, crossed, key), other.kept)


def test_X5_a_wrong_password_is_refused_without_a_trace_of_the_token(world: World) -> None:
    for wrong in (world.token[:-1], world.token + "0", "qqq", tokens.draw()):
        exchange, client = world.exchange(), world.client(wrong)
        answer = step(exchange, client.first).answer
        with pytest.raises(Unauthorized) as refusal:
            step(exchange, client.last(answer))
        assert wrong not in refusal.value.message


def test_X5_a_proof_of_another_exchange_proves_nothing(world: World) -> None:
    exchange, client = world.exchange(), world.client()
    heard = client.last(step(exchange, client.first).answer)
    assert step(exchange, heard).shown is not None
    again = world.exchange()
    challenge = step(again, client.first).answer
    with pytest.raises(InvalidArgument, match="does not belong"):
        step(again, heard)
    nonce, theirs = (part.split(b"r=")[1].split(b",")[0] for part in (challenge, heard))
    with pytest.raises(Unauthorized):
        step(again, heard.replace(theirs, nonce))


@pytest.mark.parametrize("message", [
    b"", b"n,,", b"n,,n=,r=abc", b"n,,n=ID,r=", b"n,,r=abc,n=ID", b"n,,n=ID,r=a\xffb",
    b"n,,n=ID,r=a b", b"p=tls-unique,,n=ID,r=abc", b"n,,m=x,n=ID,r=abc", b"x,,n=ID,r=abc",
    b"n,,n=ID,r=abc,tokenauth=true", b"n,,n=ID,r=" + b"a" * 2_000, b"\0user\0secret",
])  # fmt: skip
def test_other_first_messages_are_refused_without_their_bytes(world: World, message: bytes) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        step(world.exchange(), message.replace(b"ID", world.token_id.encode()))
    assert world.token_id not in refusal.value.message


@pytest.mark.parametrize("change", [
    (b"c=biws", b"c=eSws"), (b"c=biws", b"c=biw"), (b"c=biws", b"c="), (b",r=", b",r=x"),
    (b",p=", b",p=!"), (b",p=", b",q="), (b",p=", b",m=x,r=y,p="), (b",p=", b",p=AAAA,p="),
], ids=str)  # fmt: skip
def test_other_last_messages_are_refused(world: World, change: tuple[bytes, bytes]) -> None:
    exchange, client = world.exchange(), world.client()
    last = client.last(step(exchange, client.first).answer)
    assert change[0] in last
    with pytest.raises((InvalidArgument, Unauthorized)):
        step(exchange, last.replace(*change))


def test_X5_the_last_message_has_the_whole_nonce_of_the_node(world: World) -> None:
    """Kafka accepted any nonce until 3.7.1 (CVE-2024-56128)."""
    for again in (b"x", b"fyko+d2lbbFgONRv9qk", b"fyko+d2lbbFgONRv9qkx" * 2):
        exchange, client = world.exchange(), world.client(again=again)
        answer = step(exchange, client.first).answer
        with pytest.raises(InvalidArgument, match="does not belong"):
            step(exchange, client.last(answer))


def test_a_proof_of_another_length_is_refused(world: World) -> None:
    for proof in (b"", b"AAAA", base64.b64encode(bytes(100))):
        exchange, client = world.exchange(), world.client()
        without = client.last(step(exchange, client.first).answer).rpartition(b",p=")[0]
        with pytest.raises((InvalidArgument, Unauthorized)):
            step(exchange, without + b",p=" + proof)


@pytest.mark.parametrize("seed", range(20))
def test_X1_no_bytes_end_more_than_their_exchange(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        exchange, client = world.exchange(), world.client()
        message = bytearray(client.first)
        last = rng.random() < 0.5
        if last:
            message = bytearray(client.last(step(exchange, client.first).answer))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(message))
            message[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        try:
            found = step(exchange, bytes(message))
        except (InvalidArgument, Unauthorized):
            continue
        assert not last or scram.is_client_key(str(found.shown), world.kept)


class Door:
    """A node's side of one connection, in a cluster with a token for SCRAM and one without."""

    def __init__(self) -> None:
        self.controller = Controller().nodes(1)
        self.controller.metadata.feature_level = SCRAM_FROM
        self.metrics, self.told = Metrics(), []
        self.token, self.plain = tokens.draw(), tokens.draw()
        self.create(self.plain)
        self.create(self.token, scram=scram.kept_keys(self.token))
        self.accesses = Accesses(
            metadata=lambda: self.controller.metadata, refresh=self.nothing, wall_ms=lambda: 1_000,
            identity=lambda _: "", wants_auth=False, is_fresh=lambda: True, metrics=self.metrics,
        )  # fmt: skip

    def create(self, token: str, **more: bytes) -> None:
        given = {"id": tokens.id_of(token), "digest": tokens.digest_of(token), "principal": "app",
                 "scopes": [parse_scope("all").to_wire()], "at_ms": 1, **more}  # fmt: skip
        assert "ok" in self.controller.do("create_token", **given)

    async def nothing(self) -> None:
        return None

    def session(self) -> Session:
        self.shown: list[str | None] = []
        clients = SimpleNamespace(
            hold=lambda token, _: self.shown.append(token) or SimpleNamespace(connections=1),
            release=lambda _: None,
        )
        return Session(
            self.accesses, cast(Any, clients), host="h", address="h:1", certificate=None,
            is_private=True, on_refused=lambda *told: self.told.append(told),
            opened=lambda _: None,
        )  # fmt: skip

    def answer(self, session: Session, request: bytes) -> Answered:
        data = request[4:]
        return asyncio.run(session.shake(data, head_of(Reader(data))))

    @property
    def refused(self) -> float:
        return float(self.metrics.clients_refused._value.get())


@pytest.mark.parametrize("wrong", ["password", "no keys", "no token", "PLAIN"])
def test_X5_each_refusal_of_a_kafka_client_is_counted_and_told_once(wrong: str) -> None:
    door = Door()
    session = door.session()
    user, password = tokens.id_of(door.token), door.token
    if wrong == "PLAIN":
        assert not door.answer(session, wire.handshake("PLAIN")).is_last
        given = b"\0any\0" + tokens.draw().encode()
    else:
        assert not door.answer(session, wire.handshake("SCRAM-SHA-256")).is_last
        user = {"no keys": tokens.id_of(door.plain), "no token": "nobody"}.get(wrong, user)
        client = ScramClient(user, password + "x", "sha256")
        given = client.first
        if wrong == "password":
            challenge = door.answer(session, wire.authenticate(given))
            assert (challenge.is_last, door.refused) == (False, 0)
            (size,) = struct.unpack_from(">i", challenge.body, 4)
            given = client.last(challenge.body[8 : 8 + size])
    answer = door.answer(session, wire.authenticate(given))
    assert answer.is_last
    assert answer.body[:2] == codes.SASL_AUTHENTICATION_FAILED.to_bytes(2, "big")
    assert (door.refused, len(door.told), door.shown) == (1, 1, [])
    assert not session.is_known
