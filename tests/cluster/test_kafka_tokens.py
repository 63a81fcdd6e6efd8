"""Kafka clients in clusters with tokens and TLS: who gets in, and what a token allows."""

import os
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kafka_wire as wire
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kafka_raw import Raw, addresses, kafka_cluster, started
from scram_client import ScramClient

import lognode
from lognode import testing
from lognode.client.protocol.errors import InvalidArgument
from lognode.node.kafka import api, codes

pytestmark = pytest.mark.cluster

KCAT: Final = shutil.which("kcat") or "/usr/bin/kcat"
TOKEN_FILE: Final = "kafka.token"
DOOR: Final = ("read,append,admin _kafka_groups",)
"""The scopes of the nodes, which keep the groups."""
VERSIONS: Final = wire.request(api.API_VERSIONS, 0, b"")
METADATA: Final = wire.request(api.METADATA, 1, struct.pack(">i", -1))
SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FIND: Final = wire.request(api.FIND_COORDINATOR, 0, wire.text("billing"))


@pytest.fixture(scope="module")
def shared(module_path: Path) -> Iterator[testing.LocalCluster]:
    own = module_path / TOKEN_FILE
    flags = ("--kafka-token-file", str(own))
    with kafka_cluster(module_path, flags=flags, tls=True, auth=True) as cluster:
        with lognode.Client(cluster.servers) as client:
            made = client.admin.create_token("kafka", list(DOOR))["token"]
        own.touch(0o600)
        own.write_text(made)
        yield cluster


@pytest.fixture
def kafka(shared: testing.LocalCluster) -> testing.LocalCluster:
    started(shared)
    return shared


@pytest.fixture
def admin(kafka: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(kafka.servers) as client:
        yield client


def tls_of(cluster: testing.LocalCluster) -> ssl.SSLContext:
    assert cluster.tls is not None
    return cluster.tls.context


def options(cluster: testing.LocalCluster, token: str | None) -> dict[str, Any]:
    """What a client of librdkafka needs."""
    assert cluster.tls is not None
    files = cluster.tls.client
    found = {
        "bootstrap.servers": addresses(cluster), "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.cert), "ssl.key.location": str(files.key),
        "security.protocol": "SSL",
    }  # fmt: skip
    if token is not None:
        found |= {
            "security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": "any",
            "sasl.password": token,
        }  # fmt: skip
    return found


def create(admin: lognode.Client, principal: str, *scopes: str) -> str:
    return str(admin.admin.create_token(principal, list(scopes))["token"])


class Outcomes:
    """The outcomes of the records of a producer."""

    def __init__(self, cluster: testing.LocalCluster, token: str | None, **more: Any) -> None:
        self.errors: list[Any] = []
        self.acked = 0
        self.producer = Producer({
            **options(cluster, token), "message.timeout.ms": 20_000, **more,
        })  # fmt: skip

    def send(self, topic: str, values: Any) -> None:
        for value in values:
            self.producer.produce(topic, value, b"k", on_delivery=self._told)
        assert self.producer.flush(40) == 0

    def _told(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.acked += 1
        else:
            self.errors.append(error.code())


def failure(consumer: Consumer) -> int:
    """The first error that a consumer meets."""
    try:
        return int(testing.eventually(lambda: _error(consumer), what="the consumer has an error"))
    finally:
        consumer.close()


def _error(consumer: Consumer) -> int | None:
    try:
        message = consumer.poll(0.2)
    except KafkaException as error:
        return int(error.args[0].code())
    if message is None or message.error() is None:
        return None
    return int(message.error().code())


def consumer_of(
    cluster: testing.LocalCluster, token: str | None, group: str, topic: str
) -> Consumer:
    found = Consumer({
        **options(cluster, token), "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    found.subscribe([topic])
    return found


# The whole way.


def test_X5_producers_and_members_of_a_group_do_what_their_tokens_allow(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.create_log("orders", kafka_partitions=2)
    writes = create(admin, "shop", "append orders")
    reads = create(admin, "billing", "read orders", "read billing")
    shop = Outcomes(kafka, writes, **{"enable.idempotence": True})
    shop.send("orders", [b"%d" % n for n in range(200)])
    assert (shop.acked, shop.errors) == (200, [])
    consumer = consumer_of(kafka, reads, "billing", "orders")
    seen: set[bytes] = set()

    def all_seen() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.add(message.value())
        return len(seen) == 200

    testing.eventually(all_seen, timeout_s=60, what="all records are seen")
    consumer.commit(asynchronous=False)
    consumer.close()
    again = Consumer({**options(kafka, reads), "group.id": "billing"})
    partitions = [TopicPartition("orders", number) for number in range(2)]
    assert max(each.offset for each in again.committed(partitions, timeout=20)) > 0
    again.close()


def test_kcat_authenticates_over_tls(kafka: testing.LocalCluster, admin: lognode.Client) -> None:
    if not os.path.exists(KCAT):
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is missing; .ci/run installs the package kcat")
        pytest.skip("kcat is not installed")
    admin.create_log("cats", kafka_partitions=1)
    token = create(admin, "cat", "read,append cats", "read litter")
    given = [part for name, value in options(kafka, token).items() for part in
             ("-X", f"{name}={value}")]  # fmt: skip

    def kcat(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run([KCAT, *given, *arguments], input=lines, capture_output=True,
                              text=True, timeout=40, check=False)  # fmt: skip

    assert kcat("-P", "-t", "cats", lines="tom\nkitty\n").returncode == 0
    told = kcat("-G", "litter", "-e", "-q", "-X", "auto.offset.reset=earliest", "cats")
    assert sorted(told.stdout.split()) == ["kitty", "tom"], told.stderr
    proven = str(admin.admin.create_token("cat", ["read cats"], scram=True)["token"])
    shown = ["-X", "sasl.mechanisms=SCRAM-SHA-512", "-X", f"sasl.username={proven[:16]}",
             "-X", f"sasl.password={proven}"]  # fmt: skip
    told = kcat(*shown, "-C", "-o", "beginning", "-e", "-q", "-t", "cats")
    assert sorted(told.stdout.split()) == ["kitty", "tom"], "by the rules of older librdkafka"
    given[given.index(f"sasl.password={token}")] = f"sasl.password={token[:-1]}"
    refused = kcat("-L", "-m", "5")
    assert refused.returncode != 0
    assert "unknown or revoked" in refused.stderr


# What a token does not allow.


def test_X5_a_token_is_refused_what_its_scopes_lack(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    for name in ("mine", "theirs"):
        admin.create_log(name, kafka_partitions=1)
    reads = create(admin, "reader", "read mine", "read readers")
    writes = create(admin, "writer", "append mine")
    writer = Outcomes(kafka, writes)
    writer.send("mine", [b"1"])
    assert writer.errors == []
    writer.send("theirs", [b"2"])
    assert writer.errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    reader = Outcomes(kafka, reads)
    reader.send("mine", [b"3"])
    assert reader.errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    numbered = Outcomes(kafka, reads, **{"enable.idempotence": True})
    numbered.producer.produce("mine", b"4", b"k")
    with pytest.raises(KafkaException) as error:
        testing.eventually(lambda: numbered.producer.poll(0.1), what="an error")
    assert error.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert admin.log("mine").count("k") == 1, "only the writer has appended"
    assert failure(consumer_of(kafka, reads, "billing", "mine")) == (
        KafkaError.GROUP_AUTHORIZATION_FAILED
    )
    assert failure(consumer_of(kafka, reads, "readers", "theirs")) == (
        KafkaError.TOPIC_AUTHORIZATION_FAILED
    )
    only_appends = Consumer({**options(kafka, writes), "group.id": "none"})
    only_appends.assign([TopicPartition("mine", 0, 0)])
    # The client also looks for the coordinator of its group, which may be refused first.
    testing.eventually(
        lambda: _error(only_appends) == KafkaError.TOPIC_AUTHORIZATION_FAILED,
        what="a refusal of the topic",
    )
    only_appends.close()
    operator = AdminClient(options(kafka, reads))
    assert set(operator.list_topics(timeout=20).topics) == {"mine"}
    with pytest.raises(KafkaException) as error:
        operator.create_topics([NewTopic("new", 1, 3)])["new"].result(20)
    assert error.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as error:
        operator.delete_topics(["mine"])["mine"].result(20)
    assert error.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_X5_a_request_that_only_checks_needs_the_rights_of_a_change(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.create_log("examined", kafka_partitions=1)
    reads = create(admin, "examiner", "read examined")
    rules = create(admin, "ruler", "admin examined", "admin later")

    def outcomes(token: str, setting: str) -> list[int]:
        """The errors of a check of a topic's setting, and of a check of a new topic."""
        operator = AdminClient(options(kafka, token))
        resource = ConfigResource(ConfigResource.Type.TOPIC, "examined")
        resource.add_incremental_config(
            ConfigEntry(setting, "1000000", incremental_operation=AlterConfigOpType.SET)
        )
        altered = operator.incremental_alter_configs([resource], validate_only=True)[resource]
        made = operator.create_topics([NewTopic("later", 1, 3)], validate_only=True)["later"]
        errors = (altered.exception(20), made.exception(20))
        return [0 if error is None else error.args[0].code() for error in errors]

    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for setting in ("retention.ms", "segment.bytes"):
        assert outcomes(reads, setting) == [refused, refused], setting
        assert outcomes(rules, setting) == [0, 0], setting


def test_X5_a_group_is_hidden_from_a_token_without_its_name(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.create_log("hidden", kafka_partitions=1)
    admin.create_log("theirs-alone", kafka_partitions=1)
    outcomes: set[int] = set()
    owner = create(admin, "owner", "read,append hidden", "read secret-group")
    other = create(admin, "other", "read hidden", "read other-group", "append theirs-alone")
    Outcomes(kafka, owner).send("hidden", [b"1"])
    consumer = consumer_of(kafka, owner, "secret-group", "hidden")
    testing.eventually(lambda: consumer.poll(0.2) is not None, what="a record is seen")
    consumer.commit(asynchronous=False)
    consumer.close()
    clients = [AdminClient(options(kafka, token)) for token in (owner, other)]
    listed = [each.list_consumer_groups().result(20) for each in clients]
    assert [found.errors for found in listed] == [[], []]
    assert [[each.group_id for each in found.valid] for found in listed] == [["secret-group"], []]
    code = codes.GROUP_AUTHORIZATION_FAILED.to_bytes(2, "big")
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert authenticated(raw, other)[0] == codes.NONE
        for request in (
            wire.positions("secret-group", [("hidden", 0)]), wire.positions("secret-group", None),
            wire.commit("secret-group", [("hidden", 0, 0, "")]),
            wire.heartbeat("secret-group", "m", 1),
            wire.request(api.LEAVE_GROUP, 2, wire.text("secret-group") + wire.text("m")),
        ):  # fmt: skip
            assert raw.ask(request)[-2:] == code
        joined = raw.ask(wire.join("secret-group", protocols=[("range", b"m")]))
        assert joined[8:10] == code
        found = raw.ask(wire.request(api.FIND_COORDINATOR, 0, wire.text("secret-group")))
        assert found[4:6] == code
        names = wire.array([wire.text("secret-group")])
        described = raw.ask(wire.request(api.DESCRIBE_GROUPS, 0, names))
        assert described[8:10] == code
        # A group of the token may commit offsets of topics of the token alone.
        foreign = wire.commit("other-group", [("theirs-alone", 0, 0, "")])
        for node in (1, 2, 3):
            with Raw(kafka, node, tls=tls_of(kafka)) as each:
                assert authenticated(each, other)[0] == codes.NONE
                outcomes.add(int.from_bytes(each.ask(foreign)[-2:], "big"))
    assert outcomes == {codes.NOT_COORDINATOR, codes.TOPIC_AUTHORIZATION_FAILED}


# Handshakes.


def authenticated(raw: Raw, token: str) -> tuple[int, bytes]:
    """The error of an authentication, and the rest of the answer."""
    assert raw.ask(wire.handshake("PLAIN"))[4:6] == b"\0\0"
    answer = raw.ask(wire.authenticate(b"\0any\0" + token.encode()))
    return int.from_bytes(answer[4:6], "big"), answer[6:]


def test_X5_a_client_without_a_token_gets_versions_and_nothing_else(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.create_log("closed", kafka_partitions=1)
    tls = tls_of(kafka)
    for request in (
        METADATA, FIND, wire.fetch("closed", 0, 0),
        wire.produce("closed", 0, wire.batch([(b"k", b"v")])),
        wire.produce("closed", 0, wire.batch([(b"k", b"v")]), acks=0),
        wire.request(api.LIST_GROUPS, 0, b""), wire.heartbeat("g", "m", 1),
        wire.request(api.INIT_PRODUCER_ID, 0, wire.text(None) + bytes(4)),
    ):  # fmt: skip
        with Raw(kafka, tls=tls) as raw:
            assert raw.ask(VERSIONS)
            assert raw.ask(request) == b"", "the connection ends"
    assert admin.log("closed").count("k") == 0
    with Raw(kafka, tls=tls) as raw:
        assert raw.ask(wire.request(api.API_VERSIONS, 0, bytes(70_000))) == b"", "too large"
    with Raw(kafka) as raw:
        assert raw.ask(VERSIONS) == b"", "no TLS"


def test_X5_a_wrong_token_is_refused_once_and_the_connection_ends(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    token = create(admin, "someone", "read *")
    tls = tls_of(kafka)
    wrong = "0" * 16 + "." + "a" * 64
    for bad in (wrong, token[:-1] + ("0" if token[-1] != "0" else "1"), "", "x" * 60_000):
        with Raw(kafka, tls=tls) as raw:
            error, told = authenticated(raw, bad)
            assert error == codes.SASL_AUTHENTICATION_FAILED
            assert bad == "" or bad[17:].encode() not in told, "no secret in the answer"
            assert raw.ask(VERSIONS) == b""
    with Raw(kafka, tls=tls) as raw:
        answer = raw.ask(wire.handshake("GSSAPI"))
        assert answer[4:6] == codes.UNSUPPORTED_SASL_MECHANISM.to_bytes(2, "big")
        assert answer[6:] == wire.array([wire.text(name) for name in ("PLAIN", *SCRAM)])
        assert raw.ask(VERSIONS) == b""
    with Raw(kafka, tls=tls) as raw:
        answer = raw.ask(wire.authenticate(b"\0a\0" + token.encode()))
        assert answer[4:6] == codes.ILLEGAL_SASL_STATE.to_bytes(2, "big")
        assert raw.ask(METADATA) == b""
    with Raw(kafka, tls=tls) as raw:
        assert authenticated(raw, token)[0] == codes.NONE
        assert raw.ask(METADATA)
        assert raw.ask(wire.handshake("PLAIN"))[4:6] == codes.ILLEGAL_SASL_STATE.to_bytes(2, "big")
        assert raw.ask(METADATA) == b""


def test_a_handshake_of_version_0_is_followed_by_bare_bytes(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    token = create(admin, "old", "read *")
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert raw.ask(wire.handshake("PLAIN", 0))[4:6] == b"\0\0"
        raw.socket.sendall(wire.data(b"\0old\0" + token.encode()))
        assert raw._exactly(4) == bytes(4)
        assert raw.ask(METADATA)
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert raw.ask(wire.handshake("PLAIN", 0))[4:6] == b"\0\0"
        assert raw.ask(wire.data(b"\0old\0" + token[:-1].encode())) == b""


def proven(raw: Raw, mechanism: str, user: str, password: str) -> tuple[int, bytes]:
    """The error of an authentication by SCRAM, and its text."""
    client = ScramClient(user, password, SCRAM[mechanism])
    assert raw.ask(wire.handshake(mechanism))[4:6] == bytes(2)
    message = client.first
    while True:
        answer = raw.ask(wire.authenticate(message))
        error, size = struct.unpack_from(">hh", answer, 4)
        told = answer[8 : 8 + max(0, size)]
        if error:
            return error, told
        bytes_ = answer[8 + max(0, size) + 4 : -8]
        if bytes_.startswith(b"v="):
            assert client.is_proven(bytes_)
            return error, told
        message = client.last(bytes_)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_X5_a_client_proves_its_token_by_scram_and_may_do_what_the_token_may(
    kafka: testing.LocalCluster, admin: lognode.Client, mechanism: str
) -> None:
    """Every node serves the client, also those that do not lead the partition."""
    topic = mechanism.lower()
    admin.create_log(topic, kafka_partitions=3)
    made = admin.admin.create_token("scram", [f"append,read {topic}"], scram=True)
    shown = {"sasl.mechanisms": mechanism, "sasl.username": made["id"]}
    settings = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    good = Outcomes(kafka, made["token"], **shown, **settings)
    good.send(topic, [b"%d" % n for n in range(100)])
    assert (good.acked, good.errors) == (100, [])
    assert admin.log(topic).count("k") == 100
    end = wire.request(
        api.LIST_OFFSETS, 1, struct.pack(">i", -1) + wire.array([
            wire.text(topic) + wire.array([struct.pack(">iq", n, -1) for n in range(3)])
        ])
    )  # fmt: skip
    ends = set()
    for node in (1, 2, 3):
        with Raw(kafka, node, tls=tls_of(kafka)) as raw:
            assert proven(raw, mechanism, made["id"], made["token"])[0] == codes.NONE
            ends.add(raw.ask(end)[4:])
    assert len(ends) == 1, "all nodes know the ends of the partitions"
    other = Outcomes(kafka, made["token"], **shown)
    other.send("mine-alone", [b"x"])
    assert other.errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_X5_a_wrong_proof_is_refused_once_and_the_connection_ends(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    made = admin.admin.create_token("scram", ["read *"], scram=True)
    plain = admin.admin.create_token("plain", ["read *"])
    with pytest.raises(InvalidArgument, match="a certificate has none"):
        admin.admin.create_token("both", ["read *"], certificate="client both", scram=True)
    right = made["id"], made["token"]
    for user, password, told in (
        (made["id"], made["token"][:-1], b"the password is not the text of the token"),
        (made["id"], plain["token"], b"the password is not the text of the token"),
        (plain["id"], plain["token"], b"no token with this id has keys for SCRAM"),
        ("somebody", made["token"], b"no token with this id has keys for SCRAM"),
    ):
        with Raw(kafka, tls=tls_of(kafka)) as raw:
            error, text = proven(raw, "SCRAM-SHA-256", user, password)
            assert error == codes.SASL_AUTHENTICATION_FAILED
            assert told in text
            assert raw.ask(METADATA) == b"", "the connection ends"
    for message in (b"", b"n,,n=x", b"p=tls-exporter,,n=x,r=y", os.urandom(900), b"x" * 60_000):
        with Raw(kafka, tls=tls_of(kafka)) as raw:
            assert raw.ask(wire.handshake("SCRAM-SHA-512"))[4:6] == bytes(2)
            answer = raw.ask(wire.authenticate(message))
            assert answer[4:6] == codes.SASL_AUTHENTICATION_FAILED.to_bytes(2, "big")
            assert raw.ask(METADATA) == b""
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert raw.ask(wire.handshake("SCRAM-SHA-256"))[4:6] == bytes(2)
        client = ScramClient(*right, "sha256")
        assert raw.ask(wire.authenticate(client.first))[4:6] == bytes(2)
        assert raw.ask(METADATA) == b"", "half of an authentication allows nothing"
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert proven(raw, "SCRAM-SHA-256", *right)[0] == codes.NONE
        assert raw.ask(METADATA)
        admin.admin.revoke_token(made["id"])
        assert raw.answer() == b"", "the connection of a revoked token ends"


def test_scram_after_a_handshake_of_version_0_is_bare_bytes(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    made = admin.admin.create_token("old", ["read *"], scram=True)
    client = ScramClient(made["id"], made["token"], "sha256")
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert raw.ask(wire.handshake("SCRAM-SHA-256", 0))[4:6] == bytes(2)
        raw.socket.sendall(wire.data(client.first))
        challenge = raw.answer()
        raw.socket.sendall(wire.data(client.last(challenge)))
        assert client.is_proven(raw.answer())
        assert raw.ask(METADATA)


def test_X5_a_revoked_token_ends_its_connections_also_those_that_wait(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    admin.create_log("revoked", kafka_partitions=1)
    made = admin.admin.create_token("leaver", ["read revoked"])
    with Raw(kafka, tls=tls_of(kafka)) as idle, Raw(kafka, tls=tls_of(kafka)) as waiting:
        for raw in (idle, waiting):
            assert authenticated(raw, made["token"])[0] == codes.NONE
            assert raw.ask(METADATA)
        waiting.socket.sendall(wire.fetch("revoked", 0, 0, wait_ms=30_000))
        admin.admin.revoke_token(made["id"])
        assert idle.answer() == waiting.answer() == b"", "both connections end"
    with Raw(kafka, tls=tls_of(kafka)) as raw:
        assert authenticated(raw, made["token"])[0] == codes.SASL_AUTHENTICATION_FAILED


def test_X5_a_producer_id_belongs_to_the_principal_that_uses_it(
    kafka: testing.LocalCluster, admin: lognode.Client
) -> None:
    """Another principal with the same id neither repeats nor fences the owner's records."""
    admin.create_log("ids", kafka_partitions=1)
    tokens = [create(admin, name, "append,read ids") for name in ("ann", "bob")]

    def outcome(raw: Raw, sequence: int, epoch: int) -> tuple[int, int]:
        batch = wire.batch([(b"k", b"v")], producer=5, epoch=epoch, sequence=sequence)
        answer = raw.ask(wire.produce("ids", 0, batch))
        size = int.from_bytes(answer[8:10], "big")
        _, error, offset = struct.unpack_from(">ihq", answer, 10 + size + 4)
        return error, offset

    with Raw(kafka, tls=tls_of(kafka)) as ann, Raw(kafka, tls=tls_of(kafka)) as bob:
        for raw, token in zip((ann, bob), tokens, strict=True):
            assert authenticated(raw, token)[0] == codes.NONE
            init = wire.request(api.INIT_PRODUCER_ID, 0, wire.text(None) + bytes(4))
            assert raw.ask(init)[8:10] == b"\0\0"
        first = outcome(ann, 0, 0)
        assert outcome(ann, 0, 0) == first, "the owner repeats"
        second = outcome(bob, 0, 3)
        assert second[0] == codes.NONE
        assert second[1] != first[1]
        assert outcome(ann, 1, 0)[0] == codes.NONE, "the higher epoch of another fences nobody"
    assert admin.log("ids").count("k") == 3


def test_X5_the_first_token_of_a_cluster_ends_connections_without_a_token(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef" * 2)
    flags = ("--secret-file", str(secret), "--kafka-token-file", str(tmp_path / TOKEN_FILE))
    with kafka_cluster(tmp_path, 1, flags=flags) as cluster, Raw(cluster) as before:
        with lognode.Client(cluster.servers) as client:
            client.create_log("first", kafka_partitions=1)
            assert before.ask(METADATA)
            made = client.admin.create_token("admin", ["all"])
        assert before.answer() == b"", "the connection ends"
        with Raw(cluster) as raw:
            assert raw.ask(METADATA) == b""
        with Raw(cluster) as raw:
            assert authenticated(raw, made["token"])[0] == codes.NONE
            assert raw.ask(METADATA)
            # The node has no token of its own yet.
            answer = raw.ask(FIND)
            assert answer[4:6] == codes.COORDINATOR_NOT_AVAILABLE.to_bytes(2, "big")
            own = tmp_path / TOKEN_FILE
            own.touch(0o600)
            own.write_text(made["token"])
            testing.eventually(
                lambda: raw.ask(FIND)[4:6] == b"\0\0", what="the node finds its token"
            )
