"""Consumer groups of Kafka clients against real nodes: kcat, librdkafka, and single requests."""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import kafka_wire as wire
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from http_asking import asked
from kafka_raw import Raw, addresses

import lognode
from lognode import testing
from lognode.client.protocol.key_partitions import partition_of, prefix
from lognode.node.kafka import api, codes
from lognode.node.kafka.group_store import PARTITIONS

pytestmark = pytest.mark.cluster

KCAT: Final = shutil.which("kcat") or "/usr/bin/kcat"
LOG: Final = "_kafka_groups"


def produce(
    kafka: testing.LocalCluster, topic: str, values: Sequence[int], partitions: int
) -> None:
    producer = Producer({"bootstrap.servers": addresses(kafka)})
    failed: list[Any] = []
    for value in values:
        producer.produce(
            topic, b"%d" % value, partition=value % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(30) == 0
    assert not failed


Event = tuple[str, int, int]
"""`commit` when a commit was acknowledged, or `start` for the first record after an assignment;
the partition; the offset."""


class Member:
    """A consumer with a subscription, in a thread; what it has seen."""

    def __init__(
        self, kafka: testing.LocalCluster, group: str, topic: str, events: list[Event]
    ) -> None:
        self.seen: list[tuple[int, int, int]] = []
        """(partition, offset, value)"""
        self.assigned: set[int] = set()
        self._events = events
        self._fresh: set[int] = set()
        self._consumer = Consumer({
            "bootstrap.servers": addresses(kafka), "group.id": group,
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "session.timeout.ms": 6_000, "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "range", "topic.metadata.refresh.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = {each.partition for each in partitions}
        self._fresh = set(self.assigned)

    def _revoke(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.assigned = set()

    def _run(self) -> None:
        while not self.stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            self.seen.append((message.partition(), message.offset(), int(message.value())))
            if message.partition() in self._fresh:
                self._fresh.discard(message.partition())
                self._events.append(("start", message.partition(), message.offset()))
            with contextlib.suppress(KafkaException):
                for each in self._consumer.commit(message, asynchronous=False):
                    if each.error is None:
                        self._events.append(("commit", each.partition, each.offset))
        self._consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self.stopping.set()
        self._thread.join(40)
        assert not self._thread.is_alive()

    @property
    def values(self) -> set[int]:
        return {value for _, _, value in self.seen}


@contextlib.contextmanager
def members(
    kafka: testing.LocalCluster, group: str, topic: str, count: int
) -> Iterator[list[Member]]:
    """Members of a group. In the end, no member began before an offset that was committed."""
    events: list[Event] = []
    found = [Member(kafka, group, topic, events) for _ in range(count)]
    try:
        yield found
    finally:
        for each in found:
            each.stop()
    newest: dict[int, int] = {}
    for what, partition, offset in events:
        if what == "start":
            assert offset >= newest.get(partition, 0), "a committed offset is lost or went back"
        newest[partition] = max(newest.get(partition, 0), offset if what == "commit" else 0)
    for partition, offset in enumerate(committed(kafka, group, topic, len(newest))):
        assert offset >= newest[partition], "an acknowledged commit is lost"


def committed(kafka: testing.LocalCluster, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": addresses(kafka), "group.id": group})
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [each.offset for each in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()


def coordinator_of(kafka: testing.LocalCluster, group: str) -> int:
    """The number of the node that coordinates the group, as a node says."""

    def ask() -> int | None:
        for node in range(1, 1 + len(kafka.nodes)):
            with contextlib.suppress(OSError), Raw(kafka, node) as connection:
                answer = connection.ask(wire.request(api.FIND_COORDINATOR, 0, wire.text(group)))
                if answer:
                    _, error, found = struct.unpack_from(">ihi", answer)
                    if error == codes.NONE:
                        return int(found)
        return None

    return int(testing.eventually(ask, what="a node says which node coordinates the group"))


@contextlib.contextmanager
def at_coordinator(kafka: testing.LocalCluster, group: str) -> Iterator[Raw]:
    with Raw(kafka, coordinator_of(kafka, group)) as connection:
        yield connection


def metrics(kafka: testing.LocalCluster) -> Counter[str]:
    """The metrics of all nodes together, by name and labels."""
    found: Counter[str] = Counter()
    for node in kafka.nodes:
        for line in asked(node.http, "GET", "/metrics").body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("lognode_kafka"):
                found[name] += int(float(value))
    return found


def test_two_members_share_partitions_and_one_takes_over_from_the_other(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("shared", kafka_partitions=4)
    produce(kafka, "shared", range(200), 4)
    with members(kafka, "pair", "shared", 2) as (first, second):
        testing.eventually(
            lambda: len(first.assigned) == len(second.assigned) == 2, what="both have partitions"
        )
        assert first.assigned | second.assigned == {0, 1, 2, 3}
        testing.eventually(
            lambda: first.values | second.values == set(range(200)), what="all records are seen"
        )
        admin = AdminClient({"bootstrap.servers": addresses(kafka)})
        group = admin.describe_consumer_groups(["pair"])["pair"].result(20)
        assert (group.state.name, group.partition_assignor) == ("STABLE", "range")
        assert [member.host for member in group.members] == ["/127.0.0.1"] * 2
        shares = [member.assignment.topic_partitions for member in group.members]
        assert sorted(each.partition for share in shares for each in share) == [0, 1, 2, 3]
        listed = admin.list_consumer_groups().result(20)
        assert not listed.errors
        assert "pair" in {each.group_id for each in listed.valid}
        shown = metrics(kafka)
        assert shown['lognode_kafka{what="members"}'] >= 2
        assert shown['lognode_kafka{what="connections"}'] >= 2
        assert client.status()["kafka"].keys() == {"connections", "groups", "members", "topics"}
        assert shown['lognode_kafka_requests_total{api="join_group"}'] >= 2
        second.stop()
        testing.eventually(lambda: len(first.assigned) == 4, what="one has all partitions")
        produce(kafka, "shared", range(200, 300), 4)
        testing.eventually(lambda: first.values >= set(range(200, 300)), what="new ones are seen")
    seen = [value for member in (first, second) for _, _, value in member.seen]
    assert len(seen) == len(set(seen)) == 300, "a record was seen twice without a failure"


def test_a_group_goes_on_where_it_has_committed(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("resumed", kafka_partitions=2)
    produce(kafka, "resumed", range(50), 2)
    with members(kafka, "resuming", "resumed", 1) as (first,):
        testing.eventually(lambda: len(first.seen) == 50, what="all are seen")
    produce(kafka, "resumed", range(50, 80), 2)
    with members(kafka, "resuming", "resumed", 1) as (second,):
        testing.eventually(lambda: len(second.seen) >= 30, what="the new records are seen")
    assert sorted(second.values) == list(range(50, 80))
    assert committed(kafka, "resuming", "resumed", 2) == [
        max(offset for partition, offset, _ in second.seen if partition == number) + 1
        for number in range(2)
    ]
    # A topic that was created again has no committed offsets.
    client.delete_log("resumed")
    client.create_log("resumed", kafka_partitions=2)
    assert committed(kafka, "resuming", "resumed", 2) == [-1001, -1001]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_S2_no_committed_offset_is_lost_or_goes_back_while_coordinators_die(
    kafka: testing.LocalCluster, client: lognode.Client, how: signal.Signals
) -> None:
    topic, group = f"dying-{how.name}", f"mourning-{how.name}"
    client.create_log(topic, kafka_partitions=4)
    produce(kafka, topic, range(100), 4)
    with members(kafka, group, topic, 2) as both:

        def seen() -> set[int]:
            return both[0].values | both[1].values

        testing.eventually(lambda: len(seen()) >= 20, what="the members work")
        victim = kafka.nodes[coordinator_of(kafka, group) - 1]
        os.kill(victim.pid, how)
        try:
            produce(kafka, topic, range(100, 400), 4)
            testing.eventually(lambda: seen() == set(range(400)), timeout_s=90, what="all are seen")
        finally:
            if how is signal.SIGSTOP:
                os.kill(victim.pid, signal.SIGCONT)
            else:
                victim.kill()
                victim.start()
                victim.wait_ready()
        produce(kafka, topic, range(400, 500), 4)
        testing.eventually(lambda: seen() == set(range(500)), timeout_s=90, what="all are seen")


def test_members_follow_their_coordinator_to_another_node(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """Its range gets another leader, while all nodes live."""
    client.create_log("followed", kafka_partitions=2)
    with members(kafka, "followers", "followed", 2) as (first, second):
        for turn in range(3):
            produce(kafka, "followed", range(turn * 20, turn * 20 + 20), 2)
            testing.eventually(
                lambda turn=turn: first.values | second.values == set(range(turn * 20 + 20)),
                what="all records are seen",
            )
            own = coordinator_of(kafka, "followers")
            key = prefix(partition_of(b"followers", PARTITIONS))
            ranges = client.log(LOG).describe()["ranges"]
            found = [row for row in ranges if row["start"] <= key][-1]
            client.admin.transfer(found["id"], to_node=own % 3 + 1)
            testing.eventually(
                lambda own=own: coordinator_of(kafka, "followers") == own % 3 + 1,
                what="the new leader coordinates the group",
            )


def test_kcat_consumes_as_a_member_of_a_group(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    if not os.path.exists(KCAT):
        if os.environ.get("CI") == "true":
            pytest.fail("kcat is missing; .ci/run installs the package kcat")
        pytest.skip("kcat is not installed")
    client.create_log("cats", kafka_partitions=2)
    produce(kafka, "cats", range(20), 2)
    command = [KCAT, "-b", addresses(kafka), "-G", "litter", "-e", "-q", "-X",
               "auto.offset.reset=earliest", "-f", "%s\n", "cats"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == list(range(20))


# Single requests.


def outcomes(answer: bytes) -> list[int]:
    """The error of each partition of the only topic of an answer to a commit."""
    size = int.from_bytes(answer[12:14], "big")
    count = int.from_bytes(answer[14 + size : 18 + size], "big")
    return [struct.unpack_from(">ih", answer, 18 + size + 6 * at)[1] for at in range(count)]


def offset_of(answer: bytes) -> tuple[int, bytes]:
    """The offset and the metadata of the only partition of an answer to a request for offsets."""
    size = int.from_bytes(answer[12:14], "big")
    offset, _, length = struct.unpack_from(">qih", answer, 18 + size + 4)
    begin = 18 + size + 4 + 14
    return offset, answer[begin : begin + max(length, 0)]


def test_commits_keep_metadata_and_bad_ones_are_refused(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("marked", kafka_partitions=2)
    with at_coordinator(kafka, "marks") as raw:
        good = wire.commit("marks", [("marked", 0, 7, "h\u00e9llo"), ("marked", 1, 8, None)])
        assert outcomes(raw.ask(good)) == [codes.NONE, codes.NONE]
        found = raw.ask(wire.positions("marks", [("marked", 0)]))
        assert offset_of(found) == (7, "h\u00e9llo".encode())
        assert struct.unpack_from(">h", found, len(found) - 2) == (codes.NONE,)
        everything = raw.ask(wire.positions("marks", None))
        assert int.from_bytes(everything[8:12], "big") == 1, "one topic"
        for marks, code in (
            ([("marked", 2, 7, "")], codes.UNKNOWN_TOPIC_OR_PARTITION),
            ([("marked", -1, 7, "")], codes.UNKNOWN_TOPIC_OR_PARTITION),
            ([("nothing", 0, 7, "")], codes.UNKNOWN_TOPIC_OR_PARTITION),
            ([(LOG, 0, 7, "")], codes.UNKNOWN_TOPIC_OR_PARTITION),
            ([("marked", 0, -7, "")], codes.INVALID_REQUEST),
            ([("marked", 0, 9, "m" * 4_097)], codes.OFFSET_METADATA_TOO_LARGE),
        ):
            assert outcomes(raw.ask(wire.commit("marks", marks))) == [code]
        mixed = wire.commit("marks", [("marked", 0, 9, ""), ("marked", 5, 9, "")])
        assert outcomes(raw.ask(mixed)) == [codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION]
        assert offset_of(raw.ask(wire.positions("marks", [("marked", 0)])))[0] == 9
        for group in ("", "g" * 256, "a\0b"):
            refused = raw.ask(wire.commit(group, [("marked", 0, 9, "")]))
            assert outcomes(refused) == [codes.INVALID_GROUP_ID]
        stranger = wire.commit("marks", [("marked", 0, 1, "")], member="nobody", generation=1)
        assert outcomes(raw.ask(stranger)) == [codes.UNKNOWN_MEMBER_ID]
        many = [("marked", 0, 1, "")] * 5_001
        assert raw.ask(wire.commit("marks", many)) == b"", "the connection ends"


def test_another_node_is_not_the_coordinator(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("elsewhere", kafka_partitions=1)
    own = coordinator_of(kafka, "wanderers")
    for node in (1, 2, 3):
        with Raw(kafka, node) as raw:
            answer = raw.ask(wire.commit("wanderers", [("elsewhere", 0, 3, "")]))
            assert outcomes(answer) == [codes.NONE if node == own else codes.NOT_COORDINATOR]


def test_S9_an_earlier_coordinator_cannot_commit_after_a_later_one_has_claimed(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    """The head of the group moves on, as another coordinator would move it."""
    client.create_log("fenced", kafka_partitions=1)
    # A group whose head the SDK finds: the key of the head is in the partition of the group.
    group = next(
        name for name in map(str, range(10_000))
        if partition_of(f"g{name}".encode(), PARTITIONS) == partition_of(name.encode(), PARTITIONS)
    )  # fmt: skip
    with at_coordinator(kafka, group) as raw:
        assert outcomes(raw.ask(wire.commit(group, [("fenced", 0, 5, "")]))) == [codes.NONE]
        client.log(LOG).append(f"g{group}", b"another claim")
        refused = raw.ask(wire.commit(group, [("fenced", 0, 6, "")]))
        assert outcomes(refused) == [codes.NOT_COORDINATOR]
        assert offset_of(raw.ask(wire.positions(group, [("fenced", 0)])))[0] == 5
        assert outcomes(raw.ask(wire.commit(group, [("fenced", 0, 7, "")]))) == [codes.NONE]


def test_members_join_by_single_requests_and_a_client_that_leaves_frees_the_group(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("raw", kafka_partitions=1)

    def joined(answer: bytes) -> tuple[int, int, str]:
        _, _, error, generation = struct.unpack_from(">iihi", answer)
        at, names = 14, []
        for _ in range(3):
            size = int.from_bytes(answer[at : at + 2], "big")
            names.append(answer[at + 2 : at + 2 + size].decode())
            at += 2 + size
        return error, generation, names[2]

    with at_coordinator(kafka, "single") as raw:
        wish = wire.join("single", protocols=[("range", b"m")])
        error, generation, member = joined(raw.ask(wish))
        assert (error, member.startswith("test-")) == (codes.NONE, True)
        given = raw.ask(wire.sync("single", member, generation, {member: b"assignment"}))
        assert given.endswith(b"assignment")
        with at_coordinator(kafka, "single") as other:
            other.socket.sendall(wish)
            testing.eventually(
                lambda: (
                    raw.ask(wire.heartbeat("single", member, generation))[-2:]
                    == codes.REBALANCE_IN_PROGRESS.to_bytes(2, "big")
                ),
                what="the second member waits",
            )
        error, generation, _ = joined(
            raw.ask(wire.join("single", member, protocols=[("range", b"m")]))
        )
        assert error == codes.NONE, "the second member has left"
        assert raw.ask(wire.heartbeat("single", member, generation))[-2:] == b"\0\0"
        short = raw.ask(wire.join("single", protocols=[("range", b"m")], session_ms=10))
        assert joined(short)[0] == codes.INVALID_SESSION_TIMEOUT
        unlike = raw.ask(wire.join("single", protocols=[("sticky", b"m")]))
        assert joined(unlike)[0] == codes.INCONSISTENT_GROUP_PROTOCOL
        assert raw.ask(wire.join("single", protocols=[("p", b"")] * 33)) == b""


def test_kafka_clients_do_not_see_the_log_of_groups(
    kafka: testing.LocalCluster, client: lognode.Client
) -> None:
    coordinator_of(kafka, "any")
    admin = AdminClient({"bootstrap.servers": addresses(kafka)})
    assert LOG not in admin.list_topics(timeout=20).topics
    with Raw(kafka) as raw:
        answer = raw.ask(wire.produce(LOG, 0, wire.batch([(b"k", b"v")])))
        size = int.from_bytes(answer[8:10], "big")
        assert struct.unpack_from(">ih", answer, 10 + size + 4)[1] == (
            codes.UNKNOWN_TOPIC_OR_PARTITION
        )
    with pytest.raises(KafkaException) as error:
        admin.delete_topics([LOG])[LOG].result(20)
    assert error.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("restarts", [False, True], ids=["up", "restarted"])
def test_S2_a_commit_is_about_the_topic_that_exists_now(
    kafka: testing.LocalCluster, client: lognode.Client, restarts: bool
) -> None:
    """Somebody else has deleted the topic and created it again: what the coordinator knew of the
    topic is old. A consumer that began at the offset in the earlier topic would pass over records.
    """
    topic, group = f"again{restarts:d}", f"repeaters{restarts:d}"
    client.create_log(topic, kafka_partitions=1)
    asked = wire.positions(group, [(topic, 0)])
    with at_coordinator(kafka, group) as raw:
        assert outcomes(raw.ask(wire.commit(group, [(topic, 0, 50, "")]))) == [codes.NONE]
        assert offset_of(raw.ask(asked))[0] == 50
        client.delete_log(topic)
        client.create_log(topic, kafka_partitions=2)
        if not restarts:
            testing.eventually(
                lambda: offset_of(raw.ask(asked))[0] == -1,
                what="the offset of the earlier topic is gone",
            )
        testing.eventually(
            lambda: outcomes(raw.ask(wire.commit(group, [(topic, 1, 7, "")]))) == [codes.NONE],
            what="the node knows of the second partition",
        )
        again = wire.positions(group, [(topic, 1)])
        assert offset_of(raw.ask(again))[0] == 7
    if restarts:
        own = kafka.nodes[coordinator_of(kafka, group) - 1]
        own.kill()
        own.start()
        own.wait_ready()
        with at_coordinator(kafka, group) as raw:
            testing.eventually(lambda: offset_of(raw.ask(again))[0] == 7, what="the commit is kept")
