"""The leaders of ranges: which statement holds, and that only changes travel."""

from dataclasses import replace
from pathlib import Path

from lognode.node.metadata.leaders import NOBODY, Leaders, Told
from lognode.node.metadata.view import View
from lognode.node.runtime.sync_thread import SyncThread
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, Descriptor, Span
from lognode.raft.types import GroupId
from lognode.statemachine.meta import LmdbMeta


def test_the_higher_generation_and_term_hold() -> None:
    table = Leaders()
    for told in (Told(2, 5, 1), Told(2, 4, 2), Told(1, 9, 3), Told(2, 5, 3)):
        table.learn(7, told)
    assert table[7] == Told(2, 5, 1)
    table.learn(7, Told(3, 1, 2))
    assert table[7] == Told(3, 1, 2)
    assert table[8] is None


def test_a_leader_that_stepped_down_in_a_term_does_not_lead_in_that_term_again() -> None:
    table = Leaders()
    table.learn(7, Told(1, 5, 1))
    table.learn(7, Told(1, 5, NOBODY))
    table.learn(7, Told(1, 5, 1))  # said by one who has not heard
    assert table[7] == Told(1, 5, NOBODY)
    table.learn(7, Told(1, 6, 1))
    assert table[7] == Told(1, 6, 1)


def test_only_what_changed_since_a_number_travels() -> None:
    table = Leaders()
    for range_id in range(1000):
        table.learn(range_id, Told(1, 1, 1))
    number = table.number
    assert len(table.since(0)) == 1000
    assert not table.since(number)
    table.learn(500, Told(1, 1, 2))  # no news
    assert not table.since(number)
    table.learn(500, Told(1, 2, 2))
    table.learn(3, Told(1, 2, 3))
    assert table.since(number) == [[3, 1, 2, 3], [500, 1, 2, 2]]
    assert table.since(number + 1) == [[3, 1, 2, 3]]


def test_a_wrong_leader_is_forgotten_and_may_be_learnt_again() -> None:
    table = Leaders()
    table.learn(0, Told(1, 5, 1))
    table.forget(0)
    assert table[0] is None
    table.learn(0, Told(1, 0, 2))
    assert table[0] == Told(1, 0, 2)


def test_the_leader_of_an_ended_range_is_forgotten(tmp_path: Path) -> None:
    """The rows of deleted logs' ranges stayed for as long as the process."""
    sync = SyncThread("files")
    meta = LmdbMeta(tmp_path / "meta", map_bytes=1 << 20)
    view = View(meta, sync, on_change=lambda: None, present=lambda _: True)
    for range_id in (CONTROLLER_RANGE, 1, 2, 3):
        view.learn(GroupId(range_id, 4), 1, 1)
    metadata = Metadata()
    metadata.version = 1
    metadata.ranges[1] = Descriptor(1, 4, 1, Span(b"", None), (1,))
    metadata.done[1], metadata.next_ids["range"] = 3, 3
    view.follow_replica(metadata)
    known = view.leaders.range_ids()
    assert known == {CONTROLLER_RANGE, 1, 3}, "3 may be one that this image does not know yet"
    sync.close()
    meta.close()


def test_x29_a_named_leader_is_asked_and_not_believed_to_be_elected(tmp_path: Path) -> None:
    """The founder was named as leader of a generation that had begun nowhere but there."""
    sync = SyncThread("files")
    meta = LmdbMeta(tmp_path / "meta", map_bytes=1 << 20)
    view = View(meta, sync, on_change=lambda: None, present=lambda node: node != 3)
    view.metadata.controller = replace(view.metadata.controller, generation=2, members=(1, 2, 3))
    assert view.elected(CONTROLLER_RANGE, 2) is None
    view.learn_leaders([(CONTROLLER_RANGE, 2, 0, 1)])
    assert view.leader(CONTROLLER_RANGE, 2) == 1
    assert view.elected(CONTROLLER_RANGE, 2) is None
    view.learn_leaders([(CONTROLLER_RANGE, 2, 1, 1)])
    assert view.elected(CONTROLLER_RANGE, 2) == 1
    assert view.elected(CONTROLLER_RANGE, 3) is None
    view.learn_leaders([(CONTROLLER_RANGE, 2, 2, 3)])
    assert view.elected(CONTROLLER_RANGE, 2) is None, "its node is missing"
    sync.close()
    meta.close()
