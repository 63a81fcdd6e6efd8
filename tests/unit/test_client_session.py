"""S7 in a session: positions of prefix reads per span, over members and generations."""

import pytest

from lognode.client.protocol.errors import RangeNotFound, Unavailable
from lognode.client.retry import Attempts
from lognode.client.routing import Range
from lognode.client.session import Session


def known(range_id: int, generation: int, start: bytes = b"", end: bytes | None = None) -> Range:
    return Range(range_id, generation, 1, start, end, (1, 2, 3))


def test_S7_x2_19_a_position_never_falls() -> None:
    session = Session()
    range_ = known(1, 1)
    assert session.position(range_) == 0
    session.saw(range_, 5)
    session.saw(range_, 3)
    assert session.position(range_) == 5
    session.saw(range_, 7)
    assert session.position(range_) == 7


def test_S7_x2_19_a_generation_is_over_once_its_successor_was_read() -> None:
    session = Session()
    session.saw(known(1, 1), 900)
    assert session.position(known(1, 2)) == 0, "its base holds all of the first"
    session.saw(known(1, 2), 4)
    assert session.position(known(1, 2)) == 4
    with pytest.raises(RangeNotFound, match="range 1 generation 1 has ended"):
        session.position(known(1, 1))
    session.saw(known(1, 1), 950)  # an answer that was on its way
    assert session.position(known(1, 2)) == 4


def test_S7_x2_19_a_split_parent_is_over_for_both_children() -> None:
    session = Session()
    parent, left, right = known(1, 1), known(2, 2, b"", b"m"), known(3, 2, b"m", None)
    session.saw(parent, 50)
    session.saw(left, 2)
    assert session.position(left) == 2
    assert session.position(right) == 0
    with pytest.raises(RangeNotFound):
        session.position(parent)
    session.saw(right, 3)
    assert session.position(left) == 2


def test_S7_x2_19_merged_ranges_are_over() -> None:
    session = Session()
    left, right = known(2, 2, b"", b"m"), known(3, 5, b"m", None)
    session.saw(left, 9)
    session.saw(right, 8)
    session.saw(known(4, 6), 1)
    for gone in (left, right):
        with pytest.raises(RangeNotFound):
            session.position(gone)


def test_a_member_that_is_behind_is_left_without_asking_for_metadata() -> None:
    attempts = Attempts("latest", 10.0, writes=False)
    behind = Unavailable("node 2 has applied entry 3", reason="behind")
    first, second = attempts.failed(behind, 0.0), attempts.failed(behind, 0.1)
    assert (first.delay_s, first.refresh, first.elsewhere) == (0.0, False, True)
    assert second.delay_s > 0
    assert attempts.expired() is behind
