"""Requests of administrators: what they ask, what is refused by name, and the bytes of answers."""

import asyncio
import struct
from typing import Any

import kafka_wire as wire
import pytest

from lognode.node.kafka import admin, admin_answers, admin_requests, api, codes
from lognode.node.kafka.admin_answers import Forgotten, Trimmed
from lognode.node.kafka.admin_requests import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Altered,
    Change,
    Trim,
)
from lognode.node.kafka.answers import Done, Settings
from lognode.node.kafka.describing import Describing
from lognode.node.kafka.refused import Refused
from lognode.node.kafka.wire import Reader
from lognode.node.runtime.slices import in_slices


def reader(number: int, version: int, body: bytes) -> Reader:
    found = Reader(wire.request(number, version, body)[4:])
    assert api.head_of(found).api == number
    return found


def test_settings_that_change_are_decoded() -> None:
    config = wire.text("retention.ms") + wire.text("5")
    body = wire.array([b"\2" + wire.text("orders") + wire.array([config])]) + b"\1"
    asked = admin_requests.alter_configs(reader(api.ALTER_CONFIGS, 1, body), 1)
    change = Change("retention.ms", SET, "5")
    assert asked == ([Altered(2, "orders", [change], is_whole=True)], True)
    config = wire.text("retention.ms") + b"\1" + wire.text(None)
    body = wire.array([b"\2" + wire.text("orders") + wire.array([config])]) + b"\0"
    found = admin_requests.incremental_alter_configs(
        reader(api.INCREMENTAL_ALTER_CONFIGS, 0, body), 0
    )
    change = Change("retention.ms", DELETE, None)
    assert found == ([Altered(2, "orders", [change], is_whole=False)], False)


def test_partitions_records_groups_and_offsets_are_decoded() -> None:
    topic = wire.text("orders") + struct.pack(">i", 9) + struct.pack(">i", -1)
    body = wire.array([topic]) + struct.pack(">i?", 1_000, False)
    grown = admin_requests.create_partitions(reader(api.CREATE_PARTITIONS, 1, body), 1)
    assert grown == [("orders", 9)]
    body = wire.array([wire.text("orders") + wire.array([struct.pack(">iq", 3, 99)])])
    trims = admin_requests.delete_records(
        reader(api.DELETE_RECORDS, 1, body + struct.pack(">i", 1_000)), 1
    )
    assert trims == [Trim("orders", 3, 99)]
    body = wire.array([wire.text("billing"), wire.text("other")])
    groups = admin_requests.delete_groups(reader(api.DELETE_GROUPS, 1, body), 1)
    assert groups == ["billing", "other"]
    body = wire.text("billing") + wire.array(
        [wire.text("orders") + wire.array([struct.pack(">i", 3)])]
    )
    forgotten = admin_requests.offset_delete(reader(api.OFFSET_DELETE, 0, body), 0)
    assert forgotten == ("billing", [("orders", 3)])


def altered(*changes: Change, whole: bool = False) -> Altered:
    return Altered(2, "orders", list(changes), is_whole=whole)


def changes(asked: Altered) -> dict[str, Any]:
    return admin._changes(asked, "delete")


def test_rules_follow_from_settings() -> None:
    retention = Change("retention.ms", SET, "60000")
    assert changes(altered(retention)) == {"retention_ms": 60_000}
    assert changes(altered(retention, whole=True)) == {
        "retention_ms": 60_000, "cleanup": "delete",
    }  # fmt: skip
    assert changes(altered(Change("retention.ms", SET, "-1"))) == {"retention_ms": None}
    assert changes(altered(Change("retention.ms", DELETE, "7"))) == {"retention_ms": None}
    assert changes(altered(Change("cleanup.policy", DELETE, None))) == {"cleanup": "delete"}
    assert changes(altered(Change("segment.bytes", SET, "1"))) == {}
    for policy in ("compact,delete", "delete, compact", "compact,delete,compact"):
        change = Change("cleanup.policy", SET, policy)
        assert changes(altered(change)) == {"cleanup": "compact,delete"}


@pytest.mark.parametrize(
    ("now", "made", "becomes"),
    [
        ("delete", [(APPEND, "compact")], "compact,delete"),
        ("delete", [(APPEND, "delete")], "delete"),
        ("compact,delete", [(SUBTRACT, "delete")], "compact"),
        ("compact", [(SUBTRACT, "delete, ")], "compact"),
        ("compact", [(APPEND, "delete"), (SUBTRACT, "compact")], "delete"),
        ("compact", [(APPEND, None)], "compact"),
        ("compact", [(SET, "delete"), (APPEND, "compact")], "compact,delete"),
        ("compact", [(DELETE, None), (APPEND, "compact")], "compact,delete"),
    ],
)
def test_the_list_of_policies_grows_and_shrinks(
    now: str, made: list[tuple[int, str | None]], becomes: str
) -> None:
    asked = altered(*(Change("cleanup.policy", *each) for each in made))
    assert admin._changes(asked, now) == {"cleanup": becomes}


@pytest.mark.parametrize(
    "change",
    [
        Change("no.such", SET, "1"), Change("no.such", DELETE, None),
        Change("retention.ms", SET, "soon"), Change("cleanup.policy", SET, "compact,never"),
        Change("cleanup.policy", 4, "compact"), Change("cleanup.policy", APPEND, "never"),
        Change("cleanup.policy", SUBTRACT, "delete"), Change("retention.ms", APPEND, "60000"),
        Change("segment.bytes", SUBTRACT, "1"),
    ],
    ids=lambda change: f"{change.name}-{change.action}",
)  # fmt: skip
def test_a_setting_that_lognode_does_not_know_is_refused(change: Change) -> None:
    with pytest.raises(Refused) as refused:
        changes(altered(change))
    assert refused.value.code == codes.INVALID_CONFIG
    assert change.name in str(refused.value)


def test_answers_are_encoded() -> None:
    topic, none = wire.text("orders"), struct.pack(">i", 0)
    assert admin_answers.alter_configs([Settings(2, "orders", 40, "no")]) == none + wire.array(
        [struct.pack(">h", 40) + wire.text("no") + b"\2" + topic]
    )
    assert admin_answers.create_partitions([Done("orders", 37, "no")]) == none + wire.array(
        [topic + struct.pack(">h", 37) + wire.text("no")]
    )
    rows = [Trimmed("orders", 1, 0, 7), Trimmed("orders", 2, 3)]
    partitions = [struct.pack(">iqh", 1, 7, 0), struct.pack(">iqh", 2, -1, 3)]
    assert admin_answers.delete_records(rows) == none + wire.array([topic + wire.array(partitions)])
    assert admin_answers.delete_groups([("orders", 69)]) == none + wire.array(
        [topic + struct.pack(">h", 69)]
    )
    assert admin_answers.offset_delete(0, [Forgotten("orders", 1)]) == struct.pack(
        ">hi", 0, 0
    ) + wire.array([topic + wire.array([struct.pack(">ih", 1, 0)])])


def described_by(node: int) -> Describing:
    """What a node without a cluster tells."""
    absent: Any = None
    return Describing(absent, absent, node_id=node, brokers=dict, auto_partitions=0)


def test_the_partitions_of_a_topic_are_those_of_its_ranges() -> None:
    """Nodes without a port for Kafka clients are in no list; a range without any is served here."""
    ranges = [
        {"start": b"", "end": b"\0\2", "members": [1, 2, 3], "leader": 2},
        {"start": b"\0\2", "end": b"\0\3", "members": [3], "leader": 3},
        {"start": b"\0\3", "end": None, "members": [1, 3], "leader": 3},
    ]
    log = {"policy": {"kafka_partitions": 5}, "ranges": ranges}
    describing = described_by(7)
    found = list(describing._partitions(log, {1, 2}))
    assert [(row.partition, row.leader, row.replicas) for row in found] == [
        (0, 2, [1, 2]), (1, 2, [1, 2]), (2, 7, [7]), (3, 1, [1]), (4, 1, [1]),
    ]  # fmt: skip


def test_no_turn_of_the_loop_describes_many_partitions() -> None:
    """Sixteen topics of 4,096 partitions at the same time; others have turns in between."""
    ranges = [{"start": b"", "end": None, "members": [1], "leader": 1}]
    log = {"policy": {"kafka_partitions": 4_096}, "ranges": ranges}
    turns = 0

    async def run() -> None:
        nonlocal turns
        describing = described_by(1)
        topics = [in_slices(describing._partitions(log, {1})) for _ in range(16)]
        asked = asyncio.gather(*topics)
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        assert {len(rows) for rows in await asked} == {4_096}

    asyncio.run(run())
    assert turns > 2
