"""Kafka partitions in front of keys: the hash, the bounds of ranges, and the splits that they
allow."""

import pytest

from lognode.client.protocol import key_partitions, limits
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded
from lognode.partitions.metadata import Metadata
from lognode.partitions.planner import Large, plan
from lognode.partitions.policy import Policy, altered

MIB = limits.MIB


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_partitioner(key: bytes, hashed: int) -> None:
    """The values are those of Kafka's own tests of its hash."""
    assert key_partitions.murmur2(key) == hashed & 0xFFFF_FFFF
    assert key_partitions.partition_of(key, 7) == (hashed & 0x7FFF_FFFF) % 7


def test_a_stored_key_lies_in_the_span_of_its_partition() -> None:
    for key in (b"a", b"\xff" * 9, b"k" * key_partitions.KEY_BYTES_MAX):
        stored = key_partitions.stored(key, 300)
        low, high = key_partitions.span(key_partitions.partition_of(key, 300))
        assert low <= stored < high
        assert stored[key_partitions.PREFIX_BYTES :] == key
    with pytest.raises(LimitExceeded, match="479 bytes"):
        key_partitions.stored(b"k" * 479, 300)


@pytest.mark.parametrize(
    ("at", "start", "end", "expected"),
    [
        (b"\0\3key", b"", None, b"\0\3"),
        (b"\0\0key", b"", None, b"\0\1"),  # the first partition alone is the left half
        (b"\0\7key", b"", None, b"\0\7"),
        (b"\xff\xff", b"", None, b"\0\7"),
        (b"\0\2", b"\0\2", b"\0\5", b"\0\3"),
        (b"\0\5x", b"\0\2", b"\0\5", b"\0\4"),
        (b"", b"\0\2", b"\0\4", b"\0\3"),
        (b"\0\2x", b"\0\2", b"\0\3", None),  # one partition is never split
        (b"\0\7x", b"\0\7", None, None),
    ],
)
def test_a_split_is_moved_to_a_bound_of_partitions(
    at: bytes, start: bytes, end: bytes | None, expected: bytes | None
) -> None:
    assert key_partitions.bound_near(at, start, end, 8) == expected


def of_partitions(count: int, **more: object) -> Metadata:
    metadata = Metadata()
    applied(metadata, "found", cluster="c", node=1, level=4)
    applied(metadata, "register", incarnation=1, boot=1, levels=[1, 4])
    applied(metadata, "create_log", name="a", kafka_partitions=count, **more)
    return metadata


def applied(metadata: Metadata, op: str, **fields: object) -> dict[str, object]:
    answer = metadata.apply(1, 1, {"op": op, **fields})
    assert "ok" in answer, answer
    return answer


def starts(metadata: Metadata) -> list[bytes]:
    return sorted(range_.span.start for range_ in metadata.ranges.values())


def test_ranges_of_a_new_log_begin_at_partitions() -> None:
    assert starts(of_partitions(8)) == [b""]
    assert starts(of_partitions(8, ranges=3)) == [b"", b"\0\2", b"\0\5"]
    assert starts(of_partitions(2, ranges=9)) == [b"", b"\0\1"]
    assert starts(of_partitions(8, split_at=[b"\0\7"])) == [b"", b"\0\7"]
    for wrong in (b"\0", b"\0\0", b"\0\10", b"\0\1k", b"order"):
        with pytest.raises(AssertionError, match="first key of a"):
            of_partitions(8, split_at=[wrong])


def test_an_operator_splits_only_at_partitions() -> None:
    metadata = of_partitions(8)
    refused = metadata.apply(1, 1, {"op": "split_range", "log": "a", "at": b"\0\3key"})
    assert refused["error"]["code"] == InvalidArgument.code
    applied(metadata, "split_range", log="a", at=b"\0\3")


@pytest.mark.parametrize(("at", "expected"), [(b"\0\3key", [b"\0\3"]), (b"\0\0x", [b"\0\1"])])
def test_the_planner_splits_only_at_partitions(at: bytes, expected: list[bytes]) -> None:
    planned = plan(of_partitions(8), {1}, {}, large=[Large(1, 1, 600 * MIB, at)])
    assert [each.at for each in planned] == expected


def test_the_planner_leaves_a_single_partition_whole() -> None:
    assert plan(of_partitions(1), {1}, {}, large=[Large(1, 1, 600 * MIB, b"\0\0x")]) == []


def test_the_number_of_partitions_never_changes() -> None:
    with pytest.raises(InvalidArgument, match="cannot change"):
        altered(Policy(kafka_partitions=3), {"kafka_partitions": 4})


@pytest.mark.parametrize("count", [0, -1, 4_097, 1_000_000, True])
def test_a_log_has_a_bounded_number_of_partitions(count: int) -> None:
    metadata = of_partitions(1)
    answer = metadata.apply(1, 1, {"op": "create_log", "name": "b", "kafka_partitions": count})
    assert answer["error"]["code"] == InvalidArgument.code


def test_a_cluster_of_an_earlier_level_has_no_partitions() -> None:
    metadata = Metadata()
    applied(metadata, "found", cluster="c", node=1, level=3)
    applied(metadata, "register", incarnation=1, boot=1, levels=[1, 4])
    answer = metadata.apply(1, 1, {"op": "create_log", "name": "b", "kafka_partitions": 2})
    assert answer["error"]["code"] == "UNSUPPORTED"


def test_a_policy_without_partitions_is_as_earlier_versions_write_it() -> None:
    assert "kafka_partitions" not in Policy().to_image()
    image = Policy(kafka_partitions=5).to_image()
    assert Policy(**image) == Policy(kafka_partitions=5)
