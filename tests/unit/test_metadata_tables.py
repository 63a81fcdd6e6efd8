"""The tables of the metadata: changes are noted, undone, and rehearsed."""

import random
from dataclasses import replace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol.errors import LognodeError
from lognode.partitions import buckets, generation_commands
from lognode.partitions.metadata import Metadata
from lognode.partitions.tables import BUCKET_RECORDS, Bucket


def test_a_command_that_breaks_off_half_way_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller().nodes(3)
    controller.do("create_log", name="a", ranges=40)
    metadata = controller.metadata
    before, packed = metadata.image(), buckets.pack(metadata, Bucket("ranges", 0))

    def half(state: Metadata, _: dict[str, Any]) -> dict[str, Any]:
        del state.ranges[3]
        state.next_ids["range"] = 99
        state.logs[7] = replace(state.logs[1], log_id=7, name="b")
        state.sealed = True
        raise KeyError("missing")

    monkeypatch.setattr(generation_commands, "HANDLERS", {"half": half})
    answer = metadata.apply(9, 1, {"op": "half"})
    assert answer["error"]["code"] == "INVALID_ARGUMENT"
    assert metadata.image() == before
    assert metadata.log_named("a").log_id == 1
    assert [range_.range_id for range_ in metadata.ranges_of(1)] == list(range(1, 41))
    assert buckets.pack(metadata, Bucket("ranges", 0)) is packed, "nothing is packed again"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ({"op": "create_log", "name": "a", "exist_ok": True}, {"log": 1, "created": False}),
        ({"op": "create_log", "name": "a"}, "LOG_EXISTS"),
        ({"op": "create_log", "name": "b", "replicas": 99}, "INVALID_ARGUMENT"),
        ({"op": "delete_log", "name": "b"}, "LOG_NOT_FOUND"),
        ({"op": "delete_producer", "name": "b"}, "NOT_FOUND"),
        ({"op": "drain_node", "node": 1, "undo": True}, "ACTIVE"),
        ({"op": "alter_log", "name": "a", "changes": {"retention_ms": 5}}, 5),
        ({"op": "alter_log", "name": "a", "changes": {"retention_ms": 6}}, None),
        ({"op": "create_log", "name": "b"}, None),
        ({"op": "open_anonymous"}, None),
        ({"op": "delete_log", "name": "a"}, None),
    ],
)
def test_a_rehearsal_tells_what_would_change_nothing_and_changes_nothing(
    command: dict[str, Any], told: object
) -> None:
    controller = Controller().nodes(3)
    controller.do("create_log", name="a", retention_ms=5)
    metadata = controller.metadata
    before, stamps = metadata.image(), dict(metadata.changes.order)
    answer = metadata.rehearse(9, 1, command)
    assert metadata.image() == before
    assert metadata.changes.order == stamps
    if told is None:
        assert answer is None
    else:
        assert answer is not None
        assert str(told) in str(answer)
        assert answer == metadata.apply(9, 1, command), "as if it had been proposed"


def test_putting_an_equal_record_is_not_a_change() -> None:
    metadata = Controller().nodes(2).metadata
    metadata.nodes[1] = metadata.nodes[1]
    assert not metadata.changes.touched


@pytest.mark.parametrize("write", ["update", "setdefault", "clear", "popitem", "__ior__"])
def test_a_table_has_no_way_around_its_notes(write: str) -> None:
    with pytest.raises(TypeError, match="only by single records"):
        getattr(Metadata().nodes, write)()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_indexes_are_as_if_they_were_made_anew(seed: int) -> None:
    rng = random.Random(seed)
    controller = Controller().nodes(3)
    for _ in range(200):
        name, range_id = rng.choice("abc"), rng.randrange(1, 20)
        match rng.randrange(7):
            case 0:
                controller.do("create_log", name=name, ranges=rng.randrange(1, 50))
            case 1:
                controller.do("delete_log", name=name)
            case 2:
                controller.do("split_range", log=name, at=rng.randbytes(2))
            case 3:
                controller.do("move_range", **{"range": range_id, "from": 1, "to": 2})
            case 4:
                for number in list(controller.metadata.operations)[:1]:
                    controller.do("sealing", operation=number)
            case 5:
                decide(controller)
            case 6:
                for number, operation in list(controller.metadata.operations.items()):
                    if operation.phase == "DECIDED":
                        for node in (1, 2, 3):
                            controller.do("installed", operation=number, node=node)
        check_indexes(controller.metadata)
        check_indexes(buckets.copy(controller.metadata))


def decide(controller: Controller) -> None:
    for number, operation in list(controller.metadata.operations.items()):
        if operation.phase == "SEALING":
            lineage = [[*gid, 5, 1, 6, 7, b"h"] for gid in operation.inputs]
            members = [list(output.members) for output in operation.outputs]
            controller.do("decide", operation=number, lineage=lineage, members=members)


def check_indexes(metadata: Metadata) -> None:
    for record in metadata.logs.values():
        assert metadata.log_named(record.name) == record
        ranges = [r for r in metadata.ranges.values() if r.log_id == record.log_id]
        assert metadata.ranges_of(record.log_id) == sorted(ranges, key=lambda r: r.span.start)
        assert metadata.ranges.count(record.log_id) == len(ranges)
        for range_ in ranges:
            assert metadata.range_at(record.log_id, range_.span.start) == range_
    for name in "abc":
        if all(record.name != name for record in metadata.logs.values()):
            with pytest.raises(LognodeError):
                metadata.log_named(name)
    for range_id in range(1, 20):
        children = [
            range_
            for range_ in metadata.ranges.values()
            if range_.range_id == range_id
            or any(parent.range_id == range_id for parent in range_.lineage)
        ]
        found = metadata.descendants(range_id)
        assert sorted(found, key=lambda r: r.range_id) == sorted(children, key=lambda r: r.range_id)
    for table in metadata.tables.values():
        keys = [key for bucket in table.buckets() for key in table.keys_of(bucket.number)]
        assert sorted(keys) == sorted(table)
        assert all(len(table.keys_of(b.number)) <= BUCKET_RECORDS for b in table.buckets())
