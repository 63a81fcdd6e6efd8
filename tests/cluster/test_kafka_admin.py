"""Administration by Kafka clients against real nodes: settings, removed records, removed groups."""

import asyncio
import contextlib
import random
import struct
import time
from pathlib import Path
from typing import Any

import kafka_wire as wire
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka_raw import Raw, addresses, kafka_cluster, started

import lognode
from lognode import testing
from lognode.chaos.history import Recorder
from lognode.chaos.process import Pace, Process
from lognode.chaos.workloads.kafka import PARTITIONS, read_topic
from lognode.chaos.workloads.parts import LOG
from lognode.node.kafka import api, codes

pytestmark = pytest.mark.cluster
ALL = -1


@pytest.fixture
def admin(kafka: testing.LocalCluster, client: lognode.Client) -> AdminClient:
    return AdminClient({"bootstrap.servers": addresses(kafka)})


def produced(kafka: testing.LocalCluster, topic: str, partition: int, count: int) -> list[int]:
    """The offsets of so many records."""
    producer = Producer({"bootstrap.servers": addresses(kafka)})
    found: list[int] = []

    def told(error: Any, message: Any) -> None:
        assert error is None
        found.append(message.offset())

    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition, on_delivery=told)
    assert producer.flush(30) == 0
    return found


def consumer(kafka: testing.LocalCluster, group: str = "none") -> Consumer:
    return Consumer({
        "bootstrap.servers": addresses(kafka), "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "session.timeout.ms": 6_000,
    })  # fmt: skip


def read(kafka: testing.LocalCluster, topic: str, count: int) -> list[int]:
    """The offsets of the first records of partition 0."""
    taker = consumer(kafka)
    taker.assign([TopicPartition(topic, 0, 0)])
    found = [message.offset() for message in taker.consume(count, 20)]
    taker.close()
    return found


def begin_of(admin: AdminClient, topic: str, partition: int) -> int:
    at = TopicPartition(topic, partition)
    offset: int = admin.list_offsets({at: OffsetSpec.earliest()})[at].result(20).offset
    return offset


def removed(admin: AdminClient, topic: str, partition: int, offset: int) -> int:
    """The low watermark after the records below an offset are removed."""
    at = TopicPartition(topic, partition, offset)
    low: int = admin.delete_records([at])[at].result(20).low_watermark
    return low


def test_S6_records_below_an_offset_are_removed_and_the_begin_follows(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    client.create_log("trimmed", kafka_partitions=3, ranges=1)
    other = produced(kafka, "trimmed", 1, 5)
    offsets = produced(kafka, "trimmed", 0, 20)
    assert removed(admin, "trimmed", 0, offsets[7]) == offsets[7]
    assert removed(admin, "trimmed", 0, offsets[3]) == offsets[7], "a begin never falls"
    assert begin_of(admin, "trimmed", 0) == offsets[7]
    assert begin_of(admin, "trimmed", 1) == 0
    assert read(kafka, "trimmed", 13) == offsets[7:]
    # The begin goes with the partition through a split, and every node tells it after a restart.
    client.admin.split("trimmed", at=b"\0\1")
    kafka.nodes[0].kill()
    started(kafka)
    testing.wait_healthy(kafka)
    assert begin_of(admin, "trimmed", 0) == offsets[7]
    assert len(list(client.log("trimmed").snapshot().read())) == 13 + len(other)
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        removed(admin, "trimmed", 0, offsets[-1] + 2)
    assert removed(admin, "trimmed", 0, ALL) == offsets[-1] + 1
    more = produced(kafka, "trimmed", 0, 3)
    assert read(kafka, "trimmed", 3) == more
    rows = {("trimmed", 3): codes.UNKNOWN_TOPIC_OR_PARTITION,
            ("no-such-topic", 0): codes.UNKNOWN_TOPIC_OR_PARTITION,
            ("a b", 0): codes.UNKNOWN_TOPIC_OR_PARTITION,
            ("trimmed", 1): codes.OFFSET_OUT_OF_RANGE}  # fmt: skip
    for (topic, partition), code in rows.items():
        asked = wire.text(topic) + wire.array([struct.pack(">iq", partition, 10**6)])
        with Raw(kafka) as raw:
            body = wire.array([asked]) + struct.pack(">i", 1_000)
            answer = raw.ask(wire.request(api.DELETE_RECORDS, 1, body))
        assert struct.unpack(">qh", answer[-10:]) == (-1, code), topic


def test_S6_a_partition_that_never_had_a_record_begins_at_0(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    """The retention of the range has passed the partition: a consumer at 0 is not out of range."""
    client.create_log("scarce", kafka_partitions=2, ranges=1, retention_ms=1)
    offsets = produced(kafka, "scarce", 0, 3)
    testing.eventually(
        lambda: begin_of(admin, "scarce", 0) == offsets[-1] + 1, what="retention", timeout_s=60
    )
    for offset in (ALL, 0):
        assert removed(admin, "scarce", 1, offset) == 0
    assert begin_of(admin, "scarce", 1) == 0


def test_the_last_read_of_a_fault_test_passes_a_record_that_is_lost(
    kafka: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    """The high watermark stays behind the lost record. A read that waited for the record would be
    called too short, and the checker would not look for lost records."""
    log = client.create_log(LOG, kafka_partitions=PARTITIONS, ranges=1)
    log.append("lost", b"1")
    log.delete_key("lost")

    async def run() -> None:
        recorder, rng = Recorder(tmp_path / "history", time.monotonic_ns), random.Random(1)
        process = Process(
            1, kafka.servers, LOG, recorder, rng, pace=Pace(1.0, rng), nodes=3, timeout_s=30.0,
            kafka=addresses(kafka),
        )  # fmt: skip
        await read_topic(process)
        await process.close()
        recorder.close()
        answer = recorder.events[-1].value
        assert [high for _, high in answer["ends"].values() if high] == [2]
        assert answer["left"] == []

    asyncio.run(run())


def alter(
    admin: AdminClient, topic: str, *, whole: bool = False, check: bool = False,
    how: AlterConfigOpType = AlterConfigOpType.SET, **settings: str | None,
) -> None:  # fmt: skip
    """Change settings, whose names have `_` for `.`; None: back to the default."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in settings.items():
        what = AlterConfigOpType.DELETE if value is None else how
        resource.add_incremental_config(
            ConfigEntry(name.replace("_", "."), value, incremental_operation=what)
        )
    if whole:
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, topic,
            set_config={name.replace("_", "."): value for name, value in settings.items()},
        )  # fmt: skip
    call = admin.alter_configs if whole else admin.incremental_alter_configs
    call([resource], validate_only=check)[resource].result(20)


@pytest.mark.filterwarnings("ignore:alter_configs")
def test_settings_of_a_topic_change(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    log = client.create_log("altered", kafka_partitions=2)

    def becomes(cleanup: str, retention_ms: int | None) -> None:
        """A node that did not answer the change may have older metadata for a moment."""

        def is_so() -> bool:
            found = log.describe()["policy"]
            return (found["cleanup"], found["retention_ms"]) == (cleanup, retention_ms)

        testing.eventually(is_so, what=f"{cleanup} and {retention_ms}")

    alter(admin, "altered", retention_ms="3600000")
    becomes("delete", 3_600_000)
    alter(admin, "altered", segment_bytes="1000000")
    becomes("delete", 3_600_000)
    alter(admin, "altered", retention_ms=None, cleanup_policy="compact")
    becomes("compact", None)
    alter(admin, "altered", whole=True, retention_ms="7200000")
    becomes("delete", 7_200_000)  # what is not named becomes the default
    alter(admin, "altered", cleanup_policy="delete,compact")
    becomes("compact,delete", 7_200_000)
    shown = ConfigResource(ConfigResource.Type.TOPIC, "altered")
    found = admin.describe_configs([shown])[shown].result(20)
    assert found["cleanup.policy"].value == "compact,delete"
    alter(admin, "altered", how=AlterConfigOpType.SUBTRACT, cleanup_policy="compact")
    becomes("delete", 7_200_000)
    alter(admin, "altered", how=AlterConfigOpType.APPEND, cleanup_policy="compact")
    becomes("compact,delete", 7_200_000)
    with pytest.raises(KafkaException, match="would have no element"):
        alter(admin, "altered", how=AlterConfigOpType.SUBTRACT, cleanup_policy="delete,compact")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(admin, "altered", how=AlterConfigOpType.APPEND, retention_ms="1")
    alter(admin, "altered", cleanup_policy="delete")
    becomes("delete", 7_200_000)
    for wrong in ({"no_such": "1"}, {"retention_ms": "soon"}, {"cleanup_policy": "compact,never"}):
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            alter(admin, "altered", **wrong)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(admin, "altered", cleanup_policy="compact")  # with a retention
    becomes("delete", 7_200_000)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        alter(admin, "no-such-topic", retention_ms="1")
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions("altered", 5)])["altered"].result(20)
    assert log.describe()["policy"]["kafka_partitions"] == 2


def test_settings_that_are_only_checked_are_refused_like_those_that_change(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    log = client.create_log("checked", kafka_partitions=1, retention_ms=3_600_000)
    alter(admin, "checked", check=True, retention_ms="60000")
    alter(admin, "checked", check=True, retention_ms=None, cleanup_policy="compact")
    for wrong in ({"cleanup_policy": "compact"}, {"retention_ms": "0"}, {"no_such": "1"},
                  {"retention_ms": "9" * 19}):  # fmt: skip
        for check in (True, False):
            with pytest.raises(KafkaException, match="INVALID_CONFIG"):
                alter(admin, "checked", check=check, **wrong)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        alter(admin, "no-such-topic", check=True, retention_ms="60000")
    found = log.describe()["policy"]
    assert (found["cleanup"], found["retention_ms"]) == ("delete", 3_600_000)

    def create(name: str, *, check: bool, **settings: str) -> None:
        config = {each.replace("_", "."): value for each, value in settings.items()}
        topic = NewTopic(name, 1, 3, config=config)
        admin.create_topics([topic], validate_only=check)[name].result(20)

    create("fit", check=True, retention_ms="60000")
    assert "fit" not in admin.list_topics(timeout=20).topics
    for check in (True, False):
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            create("unfit", check=check, retention_ms="60000", cleanup_policy="compact")
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            create("unfit", check=check, retention_ms="0")
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            create("checked", check=check)


def test_a_producer_that_goes_on_needs_keys_once_its_topic_is_compacted(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    """Its own metadata come again after minutes. Until then compaction would drop all but the last
    of the records without a key, though each was acknowledged."""
    client.create_log("tidied", kafka_partitions=1, ranges=1)
    producer = Producer({"bootstrap.servers": addresses(kafka)})
    found: list[int] = []

    def told(error: Any, _: Any) -> None:
        found.append(0 if error is None else error.code())

    def is_refused() -> bool:
        producer.produce("tidied", b"1", on_delivery=told)
        assert producer.flush(30) == 0
        return found[-1] != codes.NONE

    assert not is_refused()
    alter(admin, "tidied", cleanup_policy="compact")
    testing.eventually(is_refused, what="a record without a key is refused", timeout_s=10)
    assert found[-1] == codes.INVALID_RECORD
    alter(admin, "tidied", cleanup_policy=None)
    testing.eventually(lambda: not is_refused(), what="a record is taken", timeout_s=10)


def test_S6_a_compacted_topic_is_consumed_with_the_offsets_of_what_is_left(tmp_path: Path) -> None:
    """Each key keeps its last record, and each partition its end, though most records are gone."""
    flags = ("--wal-file-bytes", "65536")  # so that few records fill a segment
    with kafka_cluster(tmp_path, 1, flags=flags) as kafka:
        admin = AdminClient({"bootstrap.servers": addresses(kafka)})
        config = {"cleanup.policy": "compact"}
        admin.create_topics([NewTopic("state", 2, 1, config=config)])["state"].result(20)
        producer = Producer({"bootstrap.servers": addresses(kafka)})
        last: dict[tuple[int, bytes], int] = {}
        ends: dict[int, int] = {}

        def told(error: Any, message: Any) -> None:
            assert error is None
            last[message.partition(), message.key()] = message.offset()
            ends[message.partition()] = message.offset() + 1

        def consumed() -> dict[tuple[int, bytes], list[int]]:
            taker = consumer(kafka)
            taker.assign([TopicPartition("state", each, 0) for each in range(2)])
            found: dict[tuple[int, bytes], list[int]] = {}
            left = dict(ends)
            while left:
                (message,) = taker.consume(1, 20)
                assert message.error() is None
                own = found.setdefault((message.partition(), message.key()), [])
                assert not own or own[-1] < message.offset()
                own.append(message.offset())
                if message.offset() + 1 == left.get(message.partition()):
                    del left[message.partition()]
            taker.close()
            return found

        rounds: list[int] = []

        def is_compacted() -> bool:
            rounds.append(400)
            for number in range(10 * rounds[-1]):
                producer.produce("state", b"v" * 300, b"%d" % (number % 10), on_delivery=told)
            assert producer.flush(30) == 0
            return all(len(offsets) < sum(rounds) // 2 for offsets in consumed().values())

        testing.eventually(is_compacted, what="old records go", timeout_s=60)
        assert {key: offsets[-1] for key, offsets in consumed().items()} == last


def committed(kafka: testing.LocalCluster, group: str, topic: str) -> int:
    asker = consumer(kafka, group)
    (found,) = asker.committed([TopicPartition(topic, 0)], timeout=20)
    asker.close()
    offset: int = found.offset
    return offset


def used(kafka: testing.LocalCluster, group: str, topic: str) -> Consumer:
    """A member that has committed what partition 0 has."""
    member = consumer(kafka, group)
    member.subscribe([topic])
    got = member.consume(5, 20)
    assert len(got) == 5
    member.commit(asynchronous=False)
    return member


def groups(admin: AdminClient) -> set[str]:
    return {each.group_id for each in admin.list_consumer_groups().result(20).valid}


def test_S2_an_empty_group_is_removed_for_good(
    kafka: testing.LocalCluster, client: lognode.Client, admin: AdminClient
) -> None:
    client.create_log("grouped", kafka_partitions=1)
    offsets = produced(kafka, "grouped", 0, 5)
    member = used(kafka, "leaving", "grouped")
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["leaving"])["leaving"].result(20)
    assert committed(kafka, "leaving", "grouped") == offsets[-1] + 1
    member.close()
    assert "leaving" in groups(admin)
    admin.delete_consumer_groups(["leaving"])["leaving"].result(20)
    for node in kafka.nodes:
        node.kill()
    started(kafka)
    testing.wait_healthy(kafka)
    # librdkafka 2.16 waits for ever for a coordinator that it knew before it lost all nodes.
    admin = AdminClient({"bootstrap.servers": addresses(kafka)})
    assert "leaving" not in groups(admin)
    assert committed(kafka, "leaving", "grouped") < 0
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["leaving"])["leaving"].result(20)
    # The name can be used again.
    used(kafka, "leaving", "grouped").close()
    assert committed(kafka, "leaving", "grouped") == offsets[-1] + 1
    assert "leaving" in groups(admin)


def test_committed_offsets_of_a_group_without_members_are_removed(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("forgotten", kafka_partitions=1)
    offsets = produced(kafka, "forgotten", 0, 5)
    member = used(kafka, "forgetting", "forgotten")

    def forget() -> tuple[int, list[int]]:
        partitions = wire.array([struct.pack(">i", 0), struct.pack(">i", 1)])
        unknown = wire.text("a b") + wire.array([struct.pack(">i", 0)])
        topics = wire.array([wire.text("forgotten") + partitions, unknown])
        request = wire.request(api.OFFSET_DELETE, 0, wire.text("forgetting") + topics)
        for node in (1, 2, 3):
            with Raw(kafka, node) as raw:
                answer = raw.ask(request)
            (error,) = struct.unpack_from(">h", answer, 4)
            if error != codes.NOT_COORDINATOR:
                break
        at = 4 + 2 + 4 + 4 + len(wire.text("forgotten")) + 4
        rows = [struct.unpack_from(">ih", answer, at + 6 * n)[1] for n in range(2)]
        at += 12 + len(wire.text("a b")) + 4
        return error, [*rows, struct.unpack_from(">ih", answer, at)[1]]

    busy = codes.GROUP_SUBSCRIBED_TO_TOPIC
    assert forget() == (codes.NONE, [busy] * 3)
    assert committed(kafka, "forgetting", "forgotten") == offsets[-1] + 1
    member.close()
    assert forget() == (codes.NONE, [0, 0, codes.UNKNOWN_TOPIC_OR_PARTITION])
    assert committed(kafka, "forgetting", "forgotten") < 0


def test_answers_that_repeat_names_have_room_of_their_own(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """Clients of a host that take no answers do not stop those of another host, nor their own host
    once they are gone."""
    resource = b"\x09" + wire.text("x" * 32_000) + wire.array([])
    asked = wire.request(api.DESCRIBE_CONFIGS, 1, wire.array([resource] * 240) + b"\0")
    silent = [Raw(kafka) for _ in range(12)]
    for connection in silent:
        connection.socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError):  # the node reads no more than it has room for
            connection.socket.sendall(asked)
    with Raw(kafka, host="127.0.0.2") as other:
        assert len(other.ask(asked)) > 240 * 32_000
    for connection in silent:
        connection.socket.close()
    with Raw(kafka) as neighbour:
        assert len(neighbour.ask(asked)) > 240 * 32_000
