"""A topic that was deleted and created again by others than the client that asks for offsets."""

import struct
from pathlib import Path

import kafka_wire as wire
import pytest
from kafka_raw import Raw, kafka_cluster

import lognode
from lognode.node.kafka import api, codes

pytestmark = pytest.mark.cluster


def end_of(raw: Raw, topic: str) -> tuple[int, int]:
    """The error and the end of the first partition."""
    row = wire.array([struct.pack(">iq", 0, -1)])
    body = struct.pack(">i", -1) + wire.array([wire.text(topic) + row])
    answer = raw.ask(wire.request(api.LIST_OFFSETS, 1, body))
    error, _, offset = struct.unpack_from(">hqq", answer, 8 + 2 + len(topic) + 8)
    return error, offset


def test_S12_the_end_of_a_topic_is_that_of_the_topic_that_exists_now(tmp_path: Path) -> None:
    with (
        kafka_cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers) as client,
        Raw(cluster) as raw,
    ):
        log = client.create_log("again", kafka_partitions=1)
        for _ in range(5):
            log.append("k", b"v")
        error, end = end_of(raw, "again")
        assert (error, end >= 5) == (codes.NONE, True)
        client.delete_log("again")
        log = client.create_log("again", kafka_partitions=1)
        last = [log.append("k", b"v").seq for _ in range(2)][-1]
        found = [end_of(raw, "again") for _ in range(3)]
        assert [each for each in found if each[0] == codes.NONE] == [(0, last + 1)] * 3, found
