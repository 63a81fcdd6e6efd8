"""What the fields of a checked body mean to a node."""

from lognode.node.runtime import fields
from lognode.raft.types import GroupId
from lognode.statemachine.band_reads import Band, Position


def test_a_group_is_its_range_and_generation() -> None:
    assert fields.group({"range": 3, "generation": 2}) == GroupId(3, 2)


def test_an_export_begins_without_a_position_and_goes_on_at_its_bands() -> None:
    assert fields.position(None) == Position()
    assert fields.position([[[1, 9, b"k", 7]], 20]) == Position((Band(1, 9, b"k", 7),), 20)
