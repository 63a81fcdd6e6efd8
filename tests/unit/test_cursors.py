"""Cursors in the state of a range: bounds, feature levels, refusals, and what bases store."""

from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, InvalidArgument
from lognode.client.protocol.levels import CURSORS_FROM
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.segments import SegmentStore


class Range:
    """A range at the level that has cursors."""

    def __init__(self, path: Path, *, end: bytes | None = None, level: int = CURSORS_FROM) -> None:
        self.state = RangeState(start=b"", end=end, store=SegmentStore(path))
        assert self.do(commands.LEVEL, level) == {"status": "ok"}
        batch = encode_batch([b"a"] * 9, [b"v"] * 9, producer=0, epoch=0, low=0, numbers=0)
        assert self.do(commands.APPEND, [batch])["status"] == "ok"

    def do(self, kind: int, payload: Any) -> dict[str, Any]:
        """Apply an entry; return its reply."""
        entry = commands.proposal(kind, 1, payload)
        (reply,) = self.state.apply(self.state.applied_index + 1, 1, entry).replies or ()
        return reply

    def refused(self, kind: int, payload: Any) -> dict[str, Any]:
        """Apply an entry that is refused without an effect; return the error."""
        before = self.state.cursors.to_wire()
        error: dict[str, Any] = self.do(kind, payload)["error"]
        assert self.state.cursors.to_wire() == before
        return error

    def base(self) -> Base:
        """Freeze, and return the base that then becomes durable."""
        self.do(commands.FREEZE, None)
        return self.state.base_with(self.state.queue[0], None)


@pytest.fixture
def range_(tmp_path: Path) -> Range:
    return Range(tmp_path)


def test_an_older_holder_is_refused_once_a_newer_has_opened_the_cursor(range_: Range) -> None:
    assert range_.do(commands.OPEN_CURSOR, ["c", 5, [[b"", None, 1]]])["status"] == "ok"
    assert range_.do(commands.COMMIT_CURSOR, ["c", 5, [[b"", None, 4]], []])["status"] == "ok"
    assert range_.do(commands.OPEN_CURSOR, ["c", 7, [[b"", None, 1]]])["status"] == "ok"
    error = range_.refused(commands.COMMIT_CURSOR, ["c", 5, [[b"", None, 6]], []])
    assert (error["code"], error["fields"]) == ("FENCED", {"cursor": "c", "holder": 7})
    assert "open the cursor again" in error["message"]
    assert range_.refused(commands.OPEN_CURSOR, ["c", 6, [[b"", None, 1]]])["code"] == "FENCED"
    assert range_.refused(commands.COMMIT_CURSOR, ["c", 9, [[b"", b"b", 6]], []])["code"] == (
        "FENCED"
    )  # a number that nobody has opened
    assert range_.state.cursors.found["c"].position(b"a") == 4


def test_x2_27_a_commit_takes_the_maximum_and_stays_within_the_range(range_: Range) -> None:
    range_.do(commands.OPEN_CURSOR, ["c", 1, [[b"", None, 0]]])
    cursors = range_.state.cursors
    assert cursors.found["c"].position(b"a") == 1
    range_.do(commands.COMMIT_CURSOR, ["c", 1, [[b"", None, 6]], [[b"k", 8]]])
    range_.do(commands.COMMIT_CURSOR, ["c", 1, [[b"", None, 3]], [[b"k", 7], [b"a", 2]]])
    assert list(map(cursors.found["c"].position, (b"a", b"k"))) == [6, 8]
    range_.do(commands.COMMIT_CURSOR, ["c", 1, [[b"", b"b", 1 << 60]], []])
    assert cursors.found["c"].position(b"a") == range_.state.next_seq == 10
    range_.do(commands.COMMIT_CURSOR, ["c", 1, [[b"", None, 9]], []])
    assert cursors.found["c"].keys == {}, "the span has reached the key"


def test_an_operator_sets_positions_back_and_fences_the_reader(range_: Range) -> None:
    range_.do(commands.OPEN_CURSOR, ["c", 1, [[b"", None, 0]]])
    range_.do(commands.COMMIT_CURSOR, ["c", 1, [[b"", None, 6]], [[b"k", 8]]])
    assert range_.do(commands.SET_CURSOR, ["c", 2, [[b"b", None, 2]]])["status"] == "ok"
    cursor = range_.state.cursors.found["c"]
    assert list(map(cursor.position, (b"a", b"k"))) == [6, 2]
    assert range_.refused(commands.COMMIT_CURSOR, ["c", 1, [], [[b"k", 9]]])["code"] == "FENCED"
    assert range_.refused(commands.SET_CURSOR, ["c", 1, [[b"b", None, 2]]])["code"] == "FENCED"


def test_a_commit_of_a_deleted_cursor_is_refused(range_: Range) -> None:
    assert range_.refused(commands.COMMIT_CURSOR, ["c", 1, [], [[b"a", 2]]])["code"] == "NOT_FOUND"
    range_.do(commands.OPEN_CURSOR, ["c", 1, [[b"a", b"c", 0]]])
    assert range_.do(commands.DELETE_CURSOR, ["c", b"", b"b"])["status"] == "ok"
    assert range_.refused(commands.COMMIT_CURSOR, ["c", 1, [], [[b"a", 2]]])["code"] == "NOT_FOUND"
    assert range_.do(commands.COMMIT_CURSOR, ["c", 1, [], [[b"b", 2]]])["status"] == "ok"
    assert range_.do(commands.DELETE_CURSOR, ["c", b"", None])["status"] == "ok"
    assert range_.state.cursors.found == {}


def test_x2_22_no_range_has_cursors_before_their_level(tmp_path: Path) -> None:
    range_ = Range(tmp_path, level=CURSORS_FROM - 1)
    error = range_.refused(commands.OPEN_CURSOR, ["c", 1, [[b"", None, 0]]])
    assert (error["code"], error["fields"]["allowed"]) == ("LIMIT_EXCEEDED", 0)


def test_the_cursors_of_a_range_are_bounded(range_: Range, monkeypatch: pytest.MonkeyPatch) -> None:
    cursors = range_.state.cursors
    rules = cursors.rules._replace(cursors_max=2, cursor_spans_max=3, cursor_keys_max=2)
    monkeypatch.setattr(cursors, "rules", rules)
    for name in ("c", "d"):
        range_.do(commands.OPEN_CURSOR, [name, 1, [[b"", None, 0]]])
    error = range_.refused(commands.OPEN_CURSOR, ["e", 1, [[b"", None, 0]]])
    assert error["fields"] == {"limit": "cursors_max", "value": 3, "allowed": 2}
    assert "Delete cursors that no reader uses" in error["message"]
    keys = [[b"a", 2], [b"b", 2], [b"c", 2]]
    error = range_.refused(commands.COMMIT_CURSOR, ["c", 1, [], keys])
    assert error["fields"]["limit"] == "cursor_keys_max"
    assert range_.do(commands.COMMIT_CURSOR, ["c", 1, [], keys[:2]])["status"] == "ok"
    error = range_.refused(commands.COMMIT_CURSOR, ["d", 1, [[b"a", b"b", 3]], []])
    assert error["fields"]["limit"] == "cursor_spans_max"
    # What needs no more room is taken, also at the bound.
    assert range_.do(commands.OPEN_CURSOR, ["c", 2, [[b"", None, 0]]])["status"] == "ok"
    assert range_.do(commands.COMMIT_CURSOR, ["c", 2, [[b"", None, 3]], []])["status"] == "ok"
    assert cursors.found["c"].keys == {}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (commands.OPEN_CURSOR, ["", 1, [[b"", None, 0]]]),
        (commands.OPEN_CURSOR, ["x" * (limits.cursor_name_chars_max + 1), 1, [[b"", None, 0]]]),
        (commands.OPEN_CURSOR, ["c", -1, [[b"", None, 0]]]),
        (commands.OPEN_CURSOR, ["c", 1, [[b"b", b"a", 0]]]),
        (commands.OPEN_CURSOR, ["c", 1, [[b"", None]]]),
        (commands.COMMIT_CURSOR, ["c", 1, [[b"", None]], []]),
        (commands.COMMIT_CURSOR, ["c", 1, [[b"", None, 1]] * 65, []]),
        (commands.COMMIT_CURSOR, ["c", 1, [], [[b"k", 1]] * 1_025]),
        (commands.COMMIT_CURSOR, ["c", 1, [], [[b"", 1]]]),
        (commands.COMMIT_CURSOR, ["c", 1, []]),
        (commands.SET_CURSOR, ["c", 1, []]),
        (commands.SET_CURSOR, ["c", 1 << 63, [[b"", None, 1]]]),
        (commands.DELETE_CURSOR, ["c", b""]),
        (commands.DELETE_CURSOR, [b"c", b"", None]),
    ],
)
def test_no_leader_proposes_a_malformed_command(kind: int, payload: Any) -> None:
    with pytest.raises(InvalidArgument):
        commands.proposal(kind, 1, payload)


def test_x22_a_key_outside_of_the_range_is_refused_by_every_member(tmp_path: Path) -> None:
    range_ = Range(tmp_path, end=b"m")
    range_.do(commands.OPEN_CURSOR, ["c", 1, [[b"", None, 0]]])
    for kind, payload in (
        (commands.COMMIT_CURSOR, ["c", 1, [], [[b"z", 2]]]),
        (commands.OPEN_CURSOR, ["c", 1, [[b"z", None, 0]]]),
        (commands.DELETE_CURSOR, ["c", b"z", None]),
    ):
        assert range_.refused(kind, payload)["code"] == "GENERATION_MISMATCH"


def test_a_base_without_cursors_is_as_earlier_versions_write_it(range_: Range) -> None:
    assert "cursors" not in range_.base().tables
    range_.do(commands.OPEN_CURSOR, ["c", 1, [[b"", b"b", 0]]])
    base = Base(2, 1, [], range_.state._tables(range_.state.producers.capture()))
    assert "cursors" in base.tables
    assert "cursors" in clipped(base, b"a", None).tables
    assert "cursors" not in clipped(base, b"b", None).tables


@pytest.mark.parametrize(
    "table",
    [
        [], {b"c": [[b""], [[1, 1]], {}]}, {"c": [[b""], [[1, 1]]]}, {"c": [[b""], [[1]], {}]},
        {"c": [[b"a"], [[1, 1]], {}]}, {"c": [[b""], [[1, "x"]], {}]}, {"c": [[], [], {}]},
        {"c": [[b""], [[1, 1]], {"k": 1}]}, {"c": [[b""], [[1, 1]], {b"k": -1}]},
        {"c": [[b""], [[1, 1 << 63]], {}]}, {"c": [[b""], [1], {}]},
    ],
)  # fmt: skip
def test_a_received_base_with_malformed_cursors_is_refused(table: Any) -> None:
    wire = {**Base(5, 1).to_wire(), "tables": {"cursors": table}}
    with pytest.raises(CorruptData, match="cursors"):
        received(wire)
