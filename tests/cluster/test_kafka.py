"""Kafka clients against real nodes: kcat, librdkafka, and bytes that no client sends."""

import asyncio
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kafka_wire as wire
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka_raw import Raw, addresses

import lognode
from lognode import testing
from lognode.client.protocol.errors import Unsupported
from lognode.node.kafka import api, codes, sending

pytestmark = pytest.mark.cluster

KCAT: Final = shutil.which("kcat") or "/usr/bin/kcat"
COUNT: Final = 2_000
MURMUR2: Final = ("-X", "partitioner=murmur2_random")
"""The partitioner of Java's clients, and of lognode."""
LOGNODE: Final = (sys.executable, "-m", "lognode.node.main")


def kcat(cluster: testing.LocalCluster, *arguments: str, given: str = "") -> str:
    if not os.path.exists(KCAT):
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is missing; .ci/run installs the package kcat")
        pytest.skip("kcat is not installed")
    done = subprocess.run(
        [KCAT, "-b", addresses(cluster), *arguments], input=given, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Records:
    """What a producer sent, by the acknowledgements that it got."""

    def __init__(self, cluster: testing.LocalCluster, **options: Any) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[KafkaError] = []
        self.producer = Producer({
            "bootstrap.servers": addresses(cluster), "partitioner": "murmur2_random",
            "message.timeout.ms": 30_000, **options,
        })  # fmt: skip

    def send(self, topic: str, key: bytes | None, value: bytes, **more: Any) -> None:
        self.producer.produce(topic, value, key, on_delivery=self._told, **more)
        self.producer.poll(0)

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acked[message.partition(), message.offset()] = message.value()

    def flush(self) -> None:
        assert self.producer.flush(40) == 0


def read_all(
    cluster: testing.LocalCluster, topic: str, partitions: int, **options: Any
) -> list[Any]:
    """All records of a topic, read from the begin to the end by a consumer with assigned
    partitions."""
    consumer = Consumer({
        "bootstrap.servers": addresses(cluster), "group.id": "none", "enable.auto.commit": False,
        "auto.offset.reset": "error", "enable.partition.eof": True, **options,
    })  # fmt: skip
    try:
        begins = []
        for partition in range(partitions):
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            begins.append(TopicPartition(topic, partition, low))
        consumer.assign(begins)
        found, left, deadline = [], set(range(partitions)), time.monotonic() + 40
        while left:
            assert time.monotonic() < deadline, f"partitions {left} did not end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
        return found
    finally:
        consumer.close()


def offsets_of(cluster: testing.LocalCluster, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": addresses(cluster), "group.id": "none"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        return low, high
    finally:
        consumer.close()


@pytest.fixture
def raw(kafka: testing.LocalCluster, client: lognode.Client) -> Iterator[Raw]:
    with Raw(kafka) as connection:
        yield connection
    with Raw(kafka) as connection:
        answer = connection.ask(wire.request(api.API_VERSIONS, 0, b""))
    assert answer, "the node still serves"


def outcome(answer: bytes) -> tuple[int, int]:
    """The error and the offset of the only partition of an answer to a produce request."""
    size = int.from_bytes(answer[8:10], "big")
    _, error, offset = struct.unpack_from(">ihq", answer, 10 + size + 4)
    return error, offset


def create(client: lognode.Client, name: str, partitions: int = 3, **more: Any) -> Any:
    return client.create_log(name, kafka_partitions=partitions, **more)


def test_kcat_produces_consumes_and_lists(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    create(client, "flights", 2)
    kcat(kafka, "-P", "-t", "flights", "-K:", given="N14228:departed\nN24211:landed\n")
    told = kcat(kafka, "-C", "-t", "flights", "-o", "beginning", "-e", "-q", "-f", "%k=%s\n")
    assert sorted(told.split()) == ["N14228=departed", "N24211=landed"]
    listed = kcat(kafka, "-L", "-t", "flights")
    assert "3 brokers" in listed
    assert 'topic "flights" with 2 partitions' in listed
    for name in ("gzip", "zstd", "lz4", "snappy"):
        kcat(kafka, "-P", "-t", "flights", "-z", name, "-k", name, *MURMUR2, given="x" * 99)
        latest = client.log("flights").latest(name)
        assert latest is not None
        assert latest.value == b"x" * 99


def test_S1_S6_librdkafka_gets_back_what_it_sent_and_offsets_are_seqs(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "orders")
    records = Records(kafka)
    for n in range(COUNT):
        records.send("orders", b"%d" % (n % 50), b"%d" % n, headers=[("a", b"1"), ("a", None)])
    records.send("orders", None, b"no key")
    records.send("orders", b"", b"empty key")
    records.send("orders", b"7", b"")
    records.flush()
    assert not records.failed
    assert len(records.acked) == COUNT + 3
    found = read_all(kafka, "orders", 3)
    assert {(m.partition(), m.offset()): m.value() for m in found} == records.acked
    assert {m.value(): m.key() for m in found if m.value() in (b"no key", b"empty key")} == {
        b"no key": None, b"empty key": b"",
    }  # fmt: skip
    assert all(m.headers() == [("a", b"1"), ("a", None)] for m in found if m.key() not in
               (None, b"") and m.value())  # fmt: skip
    by_partition: dict[int, list[int]] = {}
    for message in found:
        by_partition.setdefault(message.partition(), []).append(message.offset())
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())
    # The high watermark is behind the last record, though other partitions of the range go on.
    ends = {partition: offsets_of(kafka, "orders", partition)[1] for partition in by_partition}
    assert ends == {partition: offsets[-1] + 1 for partition, offsets in by_partition.items()}
    # The same records by key, with the same seqs.
    seqs = {(m.offset(), m.value()) for m in found if m.key() == b"7"}
    assert {(entry.seq, entry.value) for entry in log.scan("7")} == seqs
    assert log.count("7") == COUNT // 50 + 1


def test_entries_of_the_sdk_appear_to_kafka_clients(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "both")
    seq = log.append("customer-7", b"1", headers={"h": "x"}).seq
    log.append_many([(f"k{n}", b"%d" % n) for n in range(100)])
    log.append("customer-7", None, expect=seq)
    with pytest.raises(lognode.SequenceMismatch) as error:
        log.append("customer-7", b"2", expect=seq)
    assert error.value.key == b"customer-7"
    with log.producer() as producer:
        producer.submit("customer-8", b"3")
    assert log.update("customer-8", lambda value: (value or b"") + b"4").value == b"34"
    found = read_all(kafka, "both", 3)
    assert len(found) == 104
    assert [(m.value(), m.headers()) for m in found if m.key() == b"customer-7"] == [
        (b"1", [("h", b"x")]), (None, None),
    ]  # fmt: skip
    # And a Kafka client finds the partition that the SDK has chosen.
    records = Records(kafka)
    records.send("both", b"customer-8", b"5")
    records.flush()
    assert log.latest("customer-8").value == b"5"


def test_users_of_the_sdk_see_no_partitions(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "hidden")
    log.append_many([(f"k{n}", b"%d" % n) for n in range(20)])
    keys = {b"k%d" % n for n in range(20)}
    assert {entry.key for entry in log.snapshot().read()} == keys
    assert {entry.key for entry in log.snapshot().read("k7")} == {b"k7"}
    assert {key for columns in log.scan_columns() for key in columns.keys} == keys
    with log.follow(start="earliest") as feed:
        seen: set[bytes] = set()
        while seen != keys:
            seen |= {entry.key for entry in next(feed)}
    with log.follow(keys=["k3", "k4"], start="earliest") as feed:
        found: list[Any] = []
        while len(found) < 2:
            batch = next(feed)
            found += batch
        assert sorted(entry.key for entry in found) == [b"k3", b"k4"]
        cursor = batch.cursor
    log.append("k4", b"more")
    with log.follow(start=cursor) as feed:
        batch = next(feed)
        while not list(batch):
            batch = next(feed)
        assert [(entry.key, entry.value) for entry in batch] == [(b"k4", b"more")]
    log.trim("k5", 1 << 40)
    log.delete_key("k6")
    assert log.latest("k5") is log.latest("k6") is None
    for refused in (
        lambda: list(log.keys()), lambda: list(log.scan_columns(prefix="k")),
        lambda: log.consume("billing").open(), lambda: log.cursor("c").open(),
        lambda: list(log.snapshot().read(prefix="k")),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match="Kafka partitions"):
            refused()


def test_the_admin_client_creates_describes_and_deletes_topics(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    admin = AdminClient({"bootstrap.servers": addresses(kafka)})
    new = NewTopic("made", 6, 3, config={"cleanup.policy": "compact"})
    admin.create_topics([new])["made"].result(20)
    described = client.log("made").describe()
    assert described["policy"]["kafka_partitions"] == 6
    assert described["policy"]["cleanup"] == "compact"
    assert [row["start"] for row in described["ranges"]] == [b"", b"\0\2", b"\0\4"]
    assert len(admin.list_topics("made", timeout=20).topics["made"].partitions) == 6
    resource = ConfigResource(ConfigResource.Type.TOPIC, "made")
    settings = admin.describe_configs([resource])[resource].result(20)
    assert settings["message.timestamp.type"].value == "LogAppendTime"
    assert settings["cleanup.policy"].value == "compact"
    for name, topic in (
        ("TOPIC_ALREADY_EXISTS", new),
        ("INVALID_PARTITIONS", NewTopic("many", 100_000, 3)),
        ("INVALID_REPLICATION_FACTOR", NewTopic("many", 1, 99)),
        ("INVALID_CONFIG", NewTopic("many", 1, 3, config={"no.such": "1"})),
        ("TOPIC_EXCEPTION", NewTopic("a b", 1, 3)),
    ):
        with pytest.raises(Exception, match=name):
            admin.create_topics([topic])[topic.topic].result(20)
    records = Records(kafka)
    records.send("made", None, b"a compacted topic needs keys", partition=1)
    records.flush()
    assert [error.code() for error in records.failed] == [codes.INVALID_RECORD]
    admin.delete_topics(["made"])["made"].result(20)
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):
        admin.delete_topics(["made"])["made"].result(20)


def test_S6_offsets_stay_through_splits_a_merge_and_restarts(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "moved", 4)
    records = Records(kafka)

    def send(count: int) -> None:
        for n in range(count):
            records.send("moved", b"%d" % n, b"%d-%d" % (len(records.acked), n))
        records.flush()
        assert not records.failed

    send(200)
    before = dict(records.acked)
    ends = [offsets_of(kafka, "moved", partition) for partition in range(4)]
    client.admin.split("moved", at=b"\0\2")
    assert [offsets_of(kafka, "moved", partition) for partition in range(4)] == ends
    send(200)
    client.admin.split("moved", at=b"\0\3")
    client.admin.merge("moved", at=b"\0\2")
    send(200)
    for node in kafka.nodes:
        node.kill()
    for node in kafka.nodes:
        node.start()
    for node in kafka.nodes:
        node.wait_ready()
    send(200)
    found = {(m.partition(), m.offset()): m.value() for m in read_all(kafka, "moved", 4)}
    assert found == records.acked
    assert found.items() >= before.items()
    assert len(found) == 800
    with pytest.raises(lognode.InvalidArgument, match="first key of a"):
        client.admin.split("moved", at=b"\0\1key")
    assert log.count("7") == 4


def test_S2_acknowledged_records_survive_the_kill_of_a_leader_in_order(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    create(client, "killed", 3)
    records = Records(kafka, **{"linger.ms": 5, "max.in.flight": 1})
    leader = testing.leader_of(client, "killed")
    for n in range(COUNT):
        records.send("killed", b"%d" % (n % 9), b"%d" % n)
        if n == COUNT // 2:
            kafka.nodes[leader - 1].kill()
        time.sleep(0.0005)
    records.flush()
    assert not records.failed
    found = {(m.partition(), m.offset()): m.value() for m in read_all(kafka, "killed", 3)}
    assert found.items() >= records.acked.items(), "an acknowledged record is lost"
    for partition in range(3):
        values = [int(found[at]) for at in sorted(found) if at[0] == partition]
        firsts = list(dict.fromkeys(values))  # a record sent twice may be there twice
        assert firsts == sorted(firsts)


def test_a_fetch_that_waits_is_answered_by_the_next_record(
    raw: Raw, client: lognode.Client
) -> None:
    log = create(client, "waiting", 1)
    raw.socket.sendall(wire.fetch("waiting", 0, 0, wait_ms=19_000))
    raw.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        raw.answer()
    raw.socket.settimeout(10)
    sent = threading.Timer(0.0, lambda: log.append("k", b"the record"))
    sent.start()
    assert b"the record" in raw.answer(), "the fetch waited for its time to pass"
    sent.join()


def test_a_consumer_passes_the_end_of_a_partition_whose_last_records_are_gone(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "gone", 1)
    log.append("a", b"1")
    last = log.append("b", b"2").seq
    log.delete_key("b")
    low, high = offsets_of(kafka, "gone", 0)
    assert (low, high) == (0, last + 1)
    assert [m.value() for m in read_all(kafka, "gone", 1)] == [b"1"]


def test_offsets_are_found_by_time(kafka: testing.LocalCluster, client: lognode.Client) -> None:
    log = create(client, "times", 1)
    first = log.append("a", b"1")
    time.sleep(0.01)
    second = log.append("a", b"2")
    consumer = Consumer({"bootstrap.servers": addresses(kafka), "group.id": "none"})
    asked = [TopicPartition("times", 0, at) for at in
             (first.timestamp_ms, first.timestamp_ms + 1, second.timestamp_ms + 1)]  # fmt: skip
    found = [consumer.offsets_for_times([each], timeout=20)[0].offset for each in asked]
    consumer.close()
    assert found == [first.seq, second.seq, -1]


def test_batches_of_ten_thousand_records_are_appended(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    log = create(client, "large", 1)
    records = Records(kafka, **{"linger.ms": 200, "batch.num.messages": 10_000})
    for n in range(30_000):
        records.send("large", b"k%d" % (n % 7), b"%d" % n)
    records.flush()
    assert not records.failed
    assert sorted(int(value) for value in records.acked.values()) == list(range(30_000))
    assert sum(log.count(f"k{n}") for n in range(7)) == 30_000


# Bytes that no client sends.


@pytest.mark.parametrize(
    "data",
    [
        wire.request(99, 0, b""),
        wire.request(api.PRODUCE, 99, b""),
        wire.request(api.METADATA, 7, struct.pack(">i", 1 << 30)),
        struct.pack(">i", 1 << 30),
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_request_that_breaks_the_protocol_ends_its_connection(raw: Raw, data: bytes) -> None:
    assert raw.ask(data) == b""


def test_a_flexible_version_gets_error_35(raw: Raw) -> None:
    answer = raw.ask(wire.request(api.API_VERSIONS, 3, b"\2a\2b\0", client="java"))
    assert struct.unpack_from(">ih", answer) == (7, codes.UNSUPPORTED_VERSION)
    assert raw.ask(wire.request(api.API_VERSIONS, 2, b""))


def test_bad_batches_are_refused_and_good_ones_appended(raw: Raw, client: lognode.Client) -> None:
    log = create(client, "bytes", 2)
    good = wire.batch([(b"k", b"v"), (None, None)])
    for records, code in (
        (wire.batch([(b"k", b"v")], crc=5), codes.CORRUPT_MESSAGE),
        (wire.batch([(b"k" * 479, b"v")]), codes.INVALID_RECORD),
        (wire.batch([(b"k", b"v" * (1 << 21))]), codes.MESSAGE_TOO_LARGE),
        (wire.batch([(b"k", b"v")] * 10_001), codes.MESSAGE_TOO_LARGE),
        (b"", codes.CORRUPT_MESSAGE),
    ):
        assert outcome(raw.ask(wire.produce("bytes", 1, records)))[0] == code
    for topic, partition in (("bytes", 2), ("bytes", -1), ("nothing", 0)):
        refused = outcome(raw.ask(wire.produce(topic, partition, good)))
        assert refused[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    error, offset = outcome(raw.ask(wire.produce("bytes", 1, good)))
    assert (error, offset) == (codes.NONE, 1)
    assert sorted(entry.seq for entry in log.snapshot().read()) == [1, 2]


def test_appends_without_acknowledgement_are_appended(raw: Raw, client: lognode.Client) -> None:
    log = create(client, "unasked", 1)
    for n in range(20):
        raw.socket.sendall(wire.produce("unasked", 0, wire.batch([(b"k", b"%d" % n)]), acks=0))
    testing.eventually(lambda: log.count("k") == 20, what="all are appended")
    assert [entry.value for entry in log.scan("k")] == [b"%d" % n for n in range(20)]
    assert raw.ask(wire.request(api.API_VERSIONS, 0, b"")), "no answer came before"
    assert raw.ask(wire.produce("unasked", 9, wire.batch([(b"k", b"v")]), acks=0)) == b""


def test_answers_come_in_the_order_of_requests(raw: Raw, client: lognode.Client) -> None:
    create(client, "order", 1)
    requests = [
        wire.request(0, 7, wire.produce("order", 0, wire.batch([(b"k", b"%d" % n)]))[18:], number=n)
        for n in range(50)
    ]
    raw.socket.sendall(b"".join(requests))
    answers = [raw.answer() for _ in requests]
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == list(range(50))
    offsets = [outcome(answer)[1] for answer in answers]
    assert offsets == sorted(offsets)


def test_a_fetch_beyond_the_end_is_out_of_range(raw: Raw, client: lognode.Client) -> None:
    create(client, "short", 1).append("k", b"v")
    for offset, code in ((99, codes.OFFSET_OUT_OF_RANGE), (-1, codes.OFFSET_OUT_OF_RANGE),
                         (0, codes.NONE), (2, codes.NONE)):  # fmt: skip
        answer = raw.ask(wire.fetch("short", 0, offset))
        assert struct.unpack_from(">h", answer, 4 + 4 + 4 + 7 + 4 + 4)[0] == code, offset


def test_clients_that_never_read_cost_a_bounded_amount(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """Their answers wait in their sockets and have all memory of their host. Others of the host
    are served before the answers end."""
    log = create(client, "unread", 1)
    log.append_many([("k", bytes(100_000)) for _ in range(50)])
    silent = []
    for _ in range(40):
        connection = Raw(kafka, testing.leader_of(client, "unread"))
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with contextlib.suppress(BlockingIOError):
            connection.socket.setblocking(False)
            connection.socket.sendall(wire.fetch("unread", 0, 0) * 20)
        silent.append(connection)
    begin = time.monotonic()
    assert len(read_all(kafka, "unread", 1)) == 50
    assert time.monotonic() - begin < sending.ANSWER_S
    for connection in silent:
        connection.socket.close()


def test_a_backup_keeps_partitions_and_offsets(
    kafka: testing.LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    create(client, "kept", 3, ranges=2)
    records = Records(kafka)
    for n in range(60):
        records.send("kept", b"%d" % n, b"%d" % n)
    records.flush()

    def run(*arguments: str) -> None:
        command = [*LOGNODE, "--server", kafka.servers, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run("backup", "create", str(tmp_path / "backups"), "--log", "kept")
    client.delete_log("kept")
    run("backup", "restore", str(tmp_path / "backups"), "--log", "kept")
    found = {(m.partition(), m.offset()): m.value() for m in read_all(kafka, "kept", 3)}
    assert found == records.acked


def test_many_idle_consumers_share_the_requests_of_a_node(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """A waiting fetch asks no range; a record wakes all. A node had room for 384 connections of a
    host."""
    log = create(client, "idle", 1)

    async def run() -> list[bytes]:
        host, port = kafka.nodes[0]._flags[-1].split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(600)]
        for _, writer in opened:
            writer.write(wire.fetch("idle", 0, 0, wait_ms=20_000))
        await asyncio.sleep(0.5)
        log.append("k", b"v")
        answers = [await asyncio.wait_for(reader.readexactly(44), 10) for reader, _ in opened]
        for _, writer in opened:
            writer.close()
        return answers

    assert len(set(asyncio.run(run()))) == 1


def test_S8_an_idempotent_producer_appends_each_record_once_through_kills(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    create(client, "once", 3)
    records = Records(kafka, **{"linger.ms": 5, "enable.idempotence": True})
    for n in range(COUNT):
        records.send("once", b"%d" % (n % 9), b"%d" % n)
        if n in (COUNT // 3, 2 * COUNT // 3):
            for node in kafka.nodes:
                node.start()
                node.wait_ready()
            kafka.nodes[testing.leader_of(client, "once") - 1].kill()
        time.sleep(0.0005)
    records.flush()
    assert not records.failed
    found = read_all(kafka, "once", 3)
    assert sorted(int(m.value()) for m in found) == list(range(COUNT))
    assert {(m.partition(), m.offset()): m.value() for m in found} == records.acked
    for partition in range(3):
        values = [int(m.value()) for m in found if m.partition() == partition]
        assert values == sorted(values)


def test_S8_a_batch_that_is_sent_again_gets_the_offset_of_the_first(
    raw: Raw, client: lognode.Client
) -> None:
    log = create(client, "again", 2)
    answer = raw.ask(wire.request(api.INIT_PRODUCER_ID, 1, wire.text(None) + bytes(4)))
    _, _, error, producer, epoch = struct.unpack(">iihqh", answer)
    assert (error, epoch) == (codes.NONE, 0)

    def send(value: bytes, sequence: int, *, epoch: int = 0, count: int = 2) -> tuple[int, int]:
        rows = [(b"k", value)] * count
        batch = wire.batch(rows, producer=producer, epoch=epoch, sequence=sequence)
        return outcome(raw.ask(wire.produce("again", 1, batch)))

    assert send(b"a", 0) == (codes.NONE, 1)
    assert send(b"b", 2) == (codes.NONE, 3)
    assert send(b"a", 0) == (codes.NONE, 1)
    assert send(b"b", 2) == (codes.NONE, 3)
    assert send(b"gap", 9)[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    client.admin.split("again", at=b"\0\1")
    assert send(b"b", 2) == (codes.NONE, 3)
    assert send(b"c", 4) == (codes.NONE, 5)
    assert send(b"epoch", 0, epoch=1) == (codes.NONE, 7)
    assert send(b"c", 4)[0] == codes.INVALID_PRODUCER_EPOCH
    assert send(b"far", (1 << 31) - 1, epoch=1)[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    found = [entry.value for entry in log.snapshot().read()]
    assert found == [b"a"] * 2 + [b"b"] * 2 + [b"c"] * 2 + [b"epoch"] * 2
    other = wire.batch([(b"k", b"v")], producer=1 << 60, epoch=0, sequence=0)
    assert outcome(raw.ask(wire.produce("again", 1, other)))[0] == codes.UNKNOWN_PRODUCER_ID


def test_S8_the_last_five_batches_may_come_again_and_older_ones_cost_no_memory(
    raw: Raw, client: lognode.Client
) -> None:
    """A range remembered 50,000 records of each producer and partition, and refused producers above
    a million."""
    log = create(client, "window", 1)
    answer = raw.ask(wire.request(api.INIT_PRODUCER_ID, 1, wire.text(None) + bytes(4)))
    producer = struct.unpack(">iihqh", answer)[3]

    def send(number: int) -> tuple[int, int]:
        batch = wire.batch([(b"k", b"%d" % number)] * 100, producer=producer, epoch=0,
                           sequence=100 * number)  # fmt: skip
        return outcome(raw.ask(wire.produce("window", 0, batch)))

    first = [send(number) for number in range(20)]
    assert first == [(codes.NONE, 1 + 100 * number) for number in range(20)]
    assert [send(number) for number in range(15, 20)] == first[15:]
    assert send(0)[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(20) == (codes.NONE, 2_001)
    assert len(list(log.snapshot().read())) == 2_100


def test_a_producer_goes_on_after_its_topic_was_made_anew(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """The new ranges know no producer, as after a day without a record. librdkafka had failed for
    good."""
    create(client, "anew", 2)
    records = Records(kafka, **{"enable.idempotence": True})
    for begin in (0, 20):
        for n in range(begin, begin + 20):
            records.send("anew", b"%d" % n, b"%d" % n)
        records.flush()
        assert not records.failed
        if not begin:
            client.delete_log("anew")
            create(client, "anew", 2)
    found = read_all(kafka, "anew", 2)
    assert sorted(int(m.value()) for m in found) == list(range(20, 40))


def test_a_host_whose_requests_never_arrive_does_not_stop_others(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """Each announces 8 MiB: eight of them had all memory for requests."""
    create(client, "others", 1)
    small = wire.produce("others", 0, wire.batch([(b"k", b"v")]))
    large = wire.produce("others", 0, wire.batch([(b"k", b"v" * 500_000)]))
    silent = [Raw(kafka) for _ in range(16)]
    for connection in silent:
        connection.socket.sendall(struct.pack(">i", 8 << 20))
    with Raw(kafka, host="127.0.0.2") as other, Raw(kafka) as neighbour:
        assert outcome(other.ask(large))[0] == codes.NONE
        assert outcome(neighbour.ask(small))[0] == codes.NONE
    for connection in silent:
        connection.socket.close()


def test_S1_a_request_of_20_MB_is_appended_a_batch_at_a_time(
    raw: Raw, kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """Some clients put a batch of each partition into one request. Kafka takes 100 MiB, and
    such a request ended the connection."""
    create(client, "wide", 24)
    values = {n: (b"%02d" % n) * 430_000 for n in range(24)}
    values[7] = b"x" * (9 << 20)
    rows = [
        struct.pack(">i", n) + wire.data(wire.batch([(b"k%d" % n, value)]))
        for n, value in values.items()
    ]
    topics = wire.array([wire.text("wide") + wire.array(rows)])
    body = wire.text(None) + struct.pack(">hi", -1, 20_000) + topics
    answer = raw.ask(wire.request(api.PRODUCE, 7, body))
    assert struct.unpack_from(">ih4si", answer, 4) == (1, 4, b"wide", 24)
    found = list(struct.iter_unpack(">ihqqq", answer[18:-4]))
    errors = {partition: error for partition, error, *_ in found}
    assert errors == dict.fromkeys(range(24), codes.NONE) | {7: codes.MESSAGE_TOO_LARGE}
    offsets = {partition: offset for partition, _, offset, *_ in found}
    del values[7]
    assert {
        message.partition(): (message.offset(), message.value())
        for message in read_all(kafka, "wide", 24)
    } == {n: (offsets[n], value) for n, value in values.items()}
    # The connection goes on.
    assert outcome(raw.ask(wire.produce("wide", 7, wire.batch([(b"k", b"v")]))))[0] == codes.NONE
    assert raw.ask(struct.pack(">i", (100 << 20) + 1)) == b""


def test_requests_with_many_elements_are_answered_or_refused(
    raw: Raw, client: lognode.Client
) -> None:
    create(client, "some", 3)
    rows = [struct.pack(">iqi", n, 0, 1 << 20) for n in range(3_000)]
    head = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0)
    answer = raw.ask(wire.request(api.FETCH, 4, head + wire.array([wire.text("some") +
                                                                  wire.array(rows)])))  # fmt: skip
    assert int.from_bytes(answer[18:22], "big") == 3_000
    names = [wire.text(f" {n}") for n in range(1_500)]
    answer = raw.ask(wire.request(api.METADATA, 4, wire.array(names) + b"\0"))
    assert answer.count(struct.pack(">h", codes.INVALID_TOPIC) + names[7]) == 1
    assert raw.ask(wire.request(api.METADATA, 4, wire.array(names * 7) + b"\0")) == b""


def test_settings_of_any_length_are_refused_by_name(raw: Raw, client: lognode.Client) -> None:
    for name, value in (("retention.ms", "9" * 5_000), ("retention.ms", "9" * 25),
                        ("x" * 32_767, "y" * 32_767)):  # fmt: skip
        settings = wire.array([wire.text(name) + wire.text(value)])
        topic = wire.text("new") + struct.pack(">ih", 1, 1) + wire.array([]) + settings
        answer = raw.ask(wire.request(api.CREATE_TOPICS, 1, wire.array([topic]) + bytes(5)))
        assert struct.unpack_from(">h", answer, 4 + 4 + 5) == (codes.INVALID_CONFIG,)


def test_a_topic_that_a_request_names_twice_is_not_created(
    raw: Raw, client: lognode.Client
) -> None:
    topics = [
        wire.text(name) + struct.pack(">ih", partitions, 1) + wire.array([]) + wire.array([])
        for name, partitions in (("double", 1), ("single", 1), ("double", 2))
    ]
    answer = raw.ask(wire.request(api.CREATE_TOPICS, 0, wire.array(topics) + bytes(4)))
    assert answer[4:] == wire.array([
        wire.text("double") + struct.pack(">h", codes.INVALID_REQUEST),
        wire.text("single") + struct.pack(">h", codes.NONE),
    ])  # fmt: skip
    assert [row["name"] for row in client.logs() if row["name"] in ("single", "double")] == [
        "single"
    ]


def test_a_fetch_outside_of_a_session_gets_records_whatever_its_session_id(
    raw: Raw, client: lognode.Client
) -> None:
    create(client, "sessions", 1)
    assert outcome(raw.ask(wire.produce("sessions", 0, wire.batch([(b"k", b"here")]))))[0] == 0

    def ask(session: int, epoch: int) -> bytes:
        row = struct.pack(">iqqi", 0, 0, -1, 1 << 20)
        head = struct.pack(">iiiibii", -1, 100, 1, 1 << 20, 0, session, epoch)
        topics = wire.array([wire.text("sessions") + wire.array([row])])
        return raw.ask(wire.request(api.FETCH, 7, head + topics + wire.array([])))

    assert b"here" in ask(-1, -1)
    assert b"here" in ask(0, 0)
    refused = ask(5, 7)
    assert struct.unpack_from(">h", refused, 8) == (codes.FETCH_SESSION_ID_NOT_FOUND,)
    assert b"here" not in refused


def test_a_producer_with_transactions_fails_at_once(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    producer = Producer({"bootstrap.servers": addresses(kafka), "transactional.id": "payments"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(20)
    assert caught.value.args[0].code() == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()
