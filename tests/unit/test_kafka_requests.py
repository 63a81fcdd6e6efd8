"""Requests and answers of Kafka's protocol by their bytes."""

import asyncio
import struct
from typing import Any

import kafka_wire as wire
import pytest
from fuzz_targets import KAFKA_REQUESTS
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.protocol import errors
from lognode.node.kafka import answers, api, codes, group_answers, many, requests
from lognode.node.kafka.codes import code_of
from lognode.node.kafka.group import Joined, Synced
from lognode.node.kafka.wire import Malformed, Reader

DECODERS = KAFKA_REQUESTS


FETCH_HEAD = struct.pack(">iiiib", -1, 0, 1, 1, 0)


def topic_of(partitions: int) -> bytes:
    """A topic of a fetch, with so many partitions."""
    return wire.text("a") + wire.array([struct.pack(">iqi", 1, 2, 3)] * partitions)


def decoded(data: bytes) -> tuple[api.Head, Any]:
    reader = Reader(data[4:])
    head = api.head_of(reader)
    return head, DECODERS[head.api](reader, head.version)


def test_every_request_of_the_table_has_a_decoder() -> None:
    assert DECODERS.keys() | {api.API_VERSIONS} == api.VERSIONS.keys()


def test_a_produce_request_has_its_batches() -> None:
    head, found = decoded(wire.produce("orders", 3, b"records", acks=1))
    assert head == (api.PRODUCE, 7, 7, "test")
    assert found == (False, 1, 5_000, [("orders", 3, b"records")])


def test_a_fetch_request_has_its_partitions_in_each_version() -> None:
    _, found = decoded(wire.fetch("orders", 3, 99, wait_ms=500))
    assert found == (500, 1, 1 << 20, False, [("orders", 3, 99, 1 << 20)])
    row = struct.pack(">iiqqi", 3, -1, 99, 0, 64)
    head = struct.pack(">iiiibii", -1, 9, 1, 64, 0, 5, 2)
    body = head + wire.array([wire.text("orders") + wire.array([row])]) + wire.array([])
    _, found = decoded(wire.request(api.FETCH, 10, body))
    assert found == (9, 1, 64, True, [("orders", 3, 99, 64)])


@pytest.mark.parametrize(
    ("session", "epoch", "is_incremental"),
    [(0, -1, False), (0, 0, False), (-1, -1, False), (5, 0, False), (0, 1, True), (5, 7, True)],
)
def test_a_fetch_with_a_first_or_final_epoch_names_all_of_its_partitions(
    session: int, epoch: int, is_incremental: bool
) -> None:
    """kafka-go gives -1 for both."""
    head = struct.pack(">iiiibii", -1, 9, 1, 64, 0, session, epoch)
    _, found = decoded(wire.request(api.FETCH, 7, head + wire.array([]) + wire.array([])))
    assert found.is_incremental is is_incremental


def test_a_request_for_offsets_has_its_times() -> None:
    row = struct.pack(">iiq", 3, -1, -2)
    body = struct.pack(">ib", -1, 0) + wire.array([wire.text("orders") + wire.array([row])])
    assert decoded(wire.request(api.LIST_OFFSETS, 4, body))[1] == [("orders", 3, -2)]


def test_metadata_of_all_topics_are_asked_for_in_two_ways() -> None:
    assert decoded(wire.request(api.METADATA, 0, wire.array([])))[1] == (None, True)
    assert decoded(wire.request(api.METADATA, 7, struct.pack(">i", -1) + b"\1"))[1] == (None, True)
    assert decoded(wire.request(api.METADATA, 7, wire.array([]) + b"\0"))[1] == ([], False)
    assert decoded(wire.request(api.METADATA, 1, wire.array([wire.text("a")])))[1] == (["a"], True)


def test_topics_are_created_with_settings() -> None:
    settings = wire.array([wire.text("cleanup.policy") + wire.text("compact")])
    topic = wire.text("a") + struct.pack(">ih", 6, 3) + wire.array([]) + settings
    body = wire.array([topic]) + struct.pack(">i", 900) + b"\1"
    for version in (3, 4):
        _, found = decoded(wire.request(api.CREATE_TOPICS, version, body))
        assert found == ([("a", 6, 3, False, {"cleanup.policy": "compact"})], 900, True)


@pytest.mark.parametrize(
    "data",
    [
        wire.request(99, 0, b""),
        wire.request(api.PRODUCE, 2, b""),
        wire.request(api.PRODUCE, 8, b""),
        wire.request(api.METADATA, 9, b""),
        wire.request(api.FETCH, 13, b""),
        wire.request(api.PRODUCE, 7, b""),
        wire.request(api.METADATA, 7, struct.pack(">i", 1 << 30)),
        wire.request(api.METADATA, 7, struct.pack(">i", -2)),
        wire.request(api.METADATA, 7, wire.array([b"\0\4\xff\xff\xff\xff"])),
        wire.request(api.METADATA, 7, wire.array([b"\x7f\xff"])),
        wire.request(api.METADATA, 7, wire.array([wire.text(None)])),
        wire.request(api.METADATA, 7, wire.array([wire.text("a")] * 10_001) + b"\0"),
        wire.request(api.METADATA, 7, wire.array([b"\0\0"] * 4_000_000) + b"\0"),
        wire.request(api.DELETE_TOPICS, 1, wire.array([wire.text("a")] * 10_001) + bytes(4)),
        wire.request(api.FETCH, 4, FETCH_HEAD + wire.array([topic_of(5_000), topic_of(5_000)])),
    ],
)
def test_a_request_that_breaks_the_protocol_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(data)


@given(st.sampled_from(sorted(DECODERS)), st.data())
def test_any_bytes_are_a_request_or_malformed(number: int, data: st.DataObject) -> None:
    low, high = api.VERSIONS[number]
    version, body = data.draw(st.integers(low, high)), data.draw(st.binary(max_size=120))
    try:
        decoded(wire.request(number, version, body))
    except Malformed:
        return


def test_a_flexible_request_for_versions_is_answered_with_version_0() -> None:
    for version in (3, 4, 99):
        head = api.head_of(Reader(wire.request(api.API_VERSIONS, version, b"\1\2\3")[4:]))
        answer = api.versions(head.version)
        assert answer[:2] == struct.pack(">h", codes.UNSUPPORTED_VERSION)
        assert len(answer) == 2 + 4 + 6 * len(api.VERSIONS)
    assert api.versions(0)[:6] == struct.pack(">hi", 0, len(api.VERSIONS))
    assert api.versions(1) == api.versions(0) + bytes(4)


def test_an_answer_groups_partitions_by_topic() -> None:
    rows = [answers.Appended("a", 0, 0, 5, 77), answers.Appended("a", 1, 7),
            answers.Appended("b", 0, 3)]  # fmt: skip
    assert answers.produce(rows, 3) == wire.array([
        wire.text("a") + wire.array([
            struct.pack(">ihqq", 0, 0, 5, 77), struct.pack(">ihqq", 1, 7, -1, -1),
        ]),
        wire.text("b") + wire.array([struct.pack(">ihqq", 0, 3, -1, -1)]),
    ]) + bytes(4)  # fmt: skip


def test_a_fetch_is_answered_in_each_version() -> None:
    rows = [answers.Fetched("a", 2, 0, 9, 4, [b"xy", b"z"])]
    old = struct.pack(">ihqqi", 2, 0, 9, 9, -1) + wire.data(b"xyz")
    new = struct.pack(">ihqqqi", 2, 0, 9, 9, 4, -1) + wire.data(b"xyz")
    assert answers.fetch(rows, 4) == bytes(4) + wire.array([wire.text("a") + wire.array([old])])
    expected = bytes(10) + wire.array([wire.text("a") + wire.array([new])])
    assert answers.fetch(rows, 10) == expected


def test_metadata_have_the_fields_of_their_version() -> None:
    brokers = [answers.Broker(1, "h", 9092)]
    topics = [answers.Topic("a", 0, [answers.Partition(0, 1, [1, 2])])]
    nodes = struct.pack(">ii", 1, 2)
    oldest = struct.pack(">hii", 0, 0, 1) + 2 * (struct.pack(">i", 2) + nodes)
    assert answers.metadata(brokers, "c", 1, topics, 0) == (
        wire.array([struct.pack(">i", 1) + wire.text("h") + struct.pack(">i", 9092)])
        + wire.array([struct.pack(">h", 0) + wire.text("a") + wire.array([oldest])])
    )
    newest = struct.pack(">hiii", 0, 0, 1, -1) + 2 * (struct.pack(">i", 2) + nodes) + wire.array([])
    assert answers.metadata(brokers, "c", 1, topics, 7) == (
        bytes(4)
        + wire.array([struct.pack(">i", 1) + wire.text("h") + struct.pack(">ih", 9092, -1)])
        + wire.text("c") + struct.pack(">i", 1)
        + wire.array([struct.pack(">h", 0) + wire.text("a") + b"\0" + wire.array([newest])])
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.LogNotFound("x"), codes.UNKNOWN_TOPIC_OR_PARTITION),
        (errors.NotLeader("x"), codes.NOT_LEADER_OR_FOLLOWER),
        (errors.Unavailable("x"), codes.NOT_LEADER_OR_FOLLOWER),
        (errors.Unavailable("x", outcome="unknown"), codes.REQUEST_TIMED_OUT),
        (errors.Timeout("x", outcome="unknown"), codes.REQUEST_TIMED_OUT),
        (errors.Timeout("x", outcome="not_applied"), codes.NOT_LEADER_OR_FOLLOWER),
        (errors.Overloaded("x"), codes.NOT_ENOUGH_REPLICAS),
        (errors.Unauthorized("x"), codes.TOPIC_AUTHORIZATION_FAILED),
        (errors.LimitExceeded("x", limit="batch_bytes_max"), codes.MESSAGE_TOO_LARGE),
        (errors.LimitExceeded("x", limit="key_bytes_max"), codes.INVALID_RECORD),
        (errors.LognodeError("x", outcome="unknown"), codes.REQUEST_TIMED_OUT),
    ],
)
def test_S11_a_code_never_says_not_appended_of_an_unknown_outcome(
    error: errors.LognodeError, code: int
) -> None:
    assert code_of(error) == code


def test_a_request_with_many_elements_is_decoded_beside_the_loop() -> None:
    turns: list[int] = []

    async def run(partitions: int) -> int:
        body = FETCH_HEAD + wire.array([topic_of(partitions)])
        asyncio.get_running_loop().call_soon(turns.append, partitions)
        data = wire.request(api.FETCH, 4, body)[4:]
        found = len((await many.decoded(data, requests.fetch)).partitions)
        assert (partitions in turns) == (partitions > 1_000)
        return found

    assert asyncio.run(run(500)) == 500
    assert asyncio.run(run(9_999)) == 9_999


def test_a_message_that_repeats_a_long_name_fits_into_an_answer() -> None:
    done = answers.Done("a", 40, "x" * 40_000)
    assert answers.create_topics([done], 1).endswith(wire.text("x" * 1_000))
    row = answers.Settings(2, "a", 17, "x" * 40_000)
    assert wire.text("x" * 1_000) in answers.describe_configs([row], 1)


# Groups.


def test_requests_of_groups_have_their_fields_in_each_version() -> None:
    _, found = decoded(wire.join("g", "m", protocols=[("range", b"x")], session_ms=7))
    assert found == ("g", "m", 7, 10_000, "consumer", [("range", b"x")])
    old = wire.text("g") + struct.pack(">i", 7) + wire.text("m") + wire.text("connect")
    _, found = decoded(wire.request(api.JOIN_GROUP, 0, old + wire.array([])))
    assert found == ("g", "m", 7, 7, "connect", [])
    assert decoded(wire.sync("g", "m", 3, {"a": b"1"}))[1] == ("g", 3, "m", {"a": b"1"})
    assert decoded(wire.heartbeat("g", "m", 3))[1] == ("g", 3, "m")
    leave = wire.request(api.LEAVE_GROUP, 1, wire.text("g") + wire.text("m"))
    assert decoded(leave)[1] == ("g", "m")
    _, found = decoded(wire.commit("g", [("t", 1, 9, None)], member="m", generation=3))
    assert found == ("g", 3, "m", [("t", 1, 9, -1, None)])
    row = struct.pack(">iq", 1, 9) + wire.text("x")
    head = wire.text("g") + struct.pack(">i", 3) + wire.text("m") + bytes(8)
    body = head + wire.array([wire.text("t") + wire.array([row])])
    assert decoded(wire.request(api.OFFSET_COMMIT, 2, body))[1].marks == [("t", 1, 9, -1, "x")]
    assert decoded(wire.positions("g", [("t", 1)]))[1] == ("g", [("t", 1)])
    assert decoded(wire.positions("g", None))[1] == ("g", None)
    null = wire.request(api.OFFSET_FETCH, 1, wire.text("g") + struct.pack(">i", -1))
    assert decoded(null)[1] == ("g", [])
    assert decoded(wire.request(api.FIND_COORDINATOR, 0, wire.text("g")))[1] == ("g", 0)
    assert decoded(wire.request(api.FIND_COORDINATOR, 1, wire.text("g") + b"\1"))[1] == ("g", 1)


@pytest.mark.parametrize(
    "data",
    [
        wire.join("g", protocols=[("p", b"")] * 33),
        wire.sync("g", "m", 1, {str(n): b"" for n in range(10_001)}),
        wire.commit("g", [("t", n, 1, "") for n in range(5_001)]),
        wire.positions("g", [("t", n) for n in range(5_001)]),
        wire.request(api.DESCRIBE_GROUPS, 0, wire.array([wire.text("g")] * 1_001)),
    ],
)
def test_requests_of_groups_with_too_many_elements_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decoded(data)


def test_answers_of_groups_have_their_fields_in_each_version() -> None:
    joined = Joined(codes.NONE, "m", 3, "range", "l", [("l", b"1"), ("m", b"2")])
    body = struct.pack(">hi", 0, 3) + b"".join(map(wire.text, ("range", "l", "m")))
    rows = wire.array([wire.text("l") + wire.data(b"1"), wire.text("m") + wire.data(b"2")])
    assert group_answers.join_group(joined, 1) == body + rows
    assert group_answers.join_group(joined, 2) == bytes(4) + body + rows
    synced = struct.pack(">h", 27) + wire.data(b"")
    assert group_answers.sync_group(Synced(27), 0) == synced
    assert group_answers.sync_group(Synced(27), 1) == bytes(4) + synced
    assert group_answers.outcome(25, 0) == b"\0\x19"
    assert group_answers.outcome(25, 2) == bytes(4) + b"\0\x19"
    where = struct.pack(">i", 2) + wire.text("h") + struct.pack(">i", 9092)
    broker = answers.Broker(2, "h", 9092)
    assert group_answers.find_coordinator(0, broker, 0) == bytes(2) + where
    assert group_answers.find_coordinator(0, broker, 1) == bytes(6) + wire.text(None) + where
    found = [group_answers.Position("t", 1, 9, 4, "x")]
    old = struct.pack(">iq", 1, 9) + wire.text("x") + bytes(2)
    new = struct.pack(">iqi", 1, 9, 4) + wire.text("x") + bytes(2)
    topic = wire.text("t")
    assert group_answers.offset_fetch(0, found, 1) == wire.array([topic + wire.array([old])])
    assert group_answers.offset_fetch(0, found, 5) == (
        bytes(4) + wire.array([topic + wire.array([new])]) + bytes(2)
    )
    refused = struct.pack(">iq", 1, 9) + wire.text("x") + struct.pack(">h", 16)
    assert group_answers.offset_fetch(16, found, 2) == (
        wire.array([topic + wire.array([refused])]) + struct.pack(">h", 16)
    )
    done = [group_answers.Committed("t", 1, 12)]
    assert group_answers.offset_commit(done, 3) == (
        bytes(4) + wire.array([topic + wire.array([struct.pack(">ih", 1, 12)])])
    )
    listed = wire.array([wire.text("g") + wire.text("consumer")])
    assert group_answers.list_groups(0, [("g", "consumer")], 0) == bytes(2) + listed
    member = group_answers.MemberRow("m", "c", "/h", b"1", b"2")
    row = group_answers.GroupRow("g", 0, "Stable", "consumer", "range", [member])
    texts = b"".join(map(wire.text, ("g", "Stable", "consumer", "range")))
    own = b"".join(map(wire.text, ("m", "c", "/h"))) + wire.data(b"1") + wire.data(b"2")
    assert group_answers.describe_groups([row], 0) == (
        wire.array([bytes(2) + texts + wire.array([own])])
    )
