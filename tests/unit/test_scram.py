"""Kafka clients that prove a token with SCRAM, and what a cluster keeps of such a token."""

import asyncio
import base64
import hashlib
import hmac
import random

import pytest
from scram_client import ScramClient

from lognode.client import scram, tokens
from lognode.client.protocol.errors import InvalidArgument, Unauthorized
from lognode.client.protocol.limits import scram_keys_bytes
from lognode.node.kafka.scram import Exchange, Step

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
