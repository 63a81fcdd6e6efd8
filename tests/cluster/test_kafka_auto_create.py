"""Topics that a node creates when Kafka clients name them, with --kafka-auto-create."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kafka_wire as wire
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka_raw import Raw, addresses, kafka_cluster

import lognode
from lognode import testing
from lognode.node.kafka import api, codes

pytestmark = pytest.mark.cluster

PARTITIONS: Final = 4


@pytest.fixture(scope="module")
def kafka(module_path: Path) -> Iterator[testing.LocalCluster]:
    flags = ("--kafka-auto-create", str(PARTITIONS))
    with kafka_cluster(module_path, 1, flags=flags, auth=True) as cluster:
        yield cluster


@pytest.fixture
def client(kafka: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(kafka.servers) as client:
        yield client


def token_of(client: lognode.Client, principal: str, *scopes: str) -> str:
    return str(client.admin.create_token(principal, list(scopes))["token"])


def options(kafka: testing.LocalCluster, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": addresses(kafka), "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN", "sasl.username": "any", "sasl.password": token,
    }  # fmt: skip


def outcome(kafka: testing.LocalCluster, token: str, topic: str) -> tuple[int, int]:
    """The error of a record that a producer sends to a topic, and its partition."""
    found: list[tuple[int, int]] = []

    def told(error: KafkaError | None, message: Any) -> None:
        found.append((0 if error is None else error.code(), message.partition()))

    producer = Producer({**options(kafka, token), "message.timeout.ms": 20_000})
    producer.produce(topic, b"1", partition=PARTITIONS - 1, on_delivery=told)
    assert producer.flush(40) == 0
    return found[0]


def partitions_of(client: lognode.Client) -> dict[str, int]:
    """The logs with partitions."""
    found = {each["name"]: each["policy"].get("kafka_partitions") for each in client.logs()}
    return {name: count for name, count in found.items() if count}


def errors(kafka: testing.LocalCluster, token: str, names: list[str], *, flag: bool) -> list[int]:
    """The error of each topic in an answer to a request for metadata."""
    with Raw(kafka) as raw:
        shown = b"\0any\0" + token.encode()
        raw.ask(wire.request(api.SASL_HANDSHAKE, 1, wire.text("PLAIN")))
        raw.ask(wire.request(api.SASL_AUTHENTICATE, 1, wire.data(shown)))
        body = wire.array([wire.text(name) for name in names]) + struct.pack(">b", flag)
        answer = raw.ask(wire.request(api.METADATA, 4, body))
    found = []
    for name in names:
        at = answer.index(wire.text(name))
        found.append(struct.unpack_from(">h", answer, at - 2)[0])
    return found


def test_a_producer_gets_the_topic_that_it_names(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    token = token_of(client, "maker", "admin,append,read fresh*")
    assert outcome(kafka, token, "fresh") == (0, PARTITIONS - 1)
    assert partitions_of(client)["fresh"] == PARTITIONS
    asking = AdminClient(options(kafka, token))
    told = asking.describe_configs([ConfigResource("broker", "1")])
    (settings,) = (each.result(20) for each in told.values())
    assert settings["auto.create.topics.enable"].value == "true"
    assert settings["num.partitions"].value == str(PARTITIONS)


def test_X5_a_client_without_the_right_creates_nothing(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    token = token_of(client, "writer", "append,read other*")
    assert outcome(kafka, token, "other")[0] == codes.TOPIC_AUTHORIZATION_FAILED
    assert "other" not in partitions_of(client)


def test_a_request_that_may_not_create_does_not(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    token = token_of(client, "looker", "admin,append,read seen*")
    assert errors(kafka, token, ["seen"], flag=False) == [codes.UNKNOWN_TOPIC_OR_PARTITION]
    assert "seen" not in partitions_of(client)


def test_names_that_kafka_does_not_allow_become_no_topic(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    token = token_of(client, "namer", "admin,append,read *")
    names = ["so$so", "..", "a" * 250, "a/b"]
    assert errors(kafka, token, names, flag=True) == [codes.INVALID_TOPIC] * len(names)
    assert not set(names) & set(partitions_of(client))


def test_a_request_creates_a_bounded_number_of_topics(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    token = token_of(client, "many", "admin,append,read many*")
    names = [f"many-{number:02}-" for number in range(18)]
    assert (
        errors(kafka, token, names, flag=True)
        == [codes.NONE] * 16 + [codes.LEADER_NOT_AVAILABLE] * 2
    )
    assert errors(kafka, token, names, flag=True) == [codes.NONE] * 18
