"""Long arrays of rows are checked a column at a time, as strictly as row by row."""

import random
import time

import pytest

from lognode.client.protocol import limits, peers
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.kinds import Array, Binary, Integer, Kind, Nullable, Number, Row, Text

ROW = Row(range=Integer(), at=Binary(4, 1), why=Text(8), seconds=Number(0, 9), node=Integer(1, 5))
MANY = 100
CPU_S = 0.05
"""For the largest list of rows in a message between nodes."""


@pytest.mark.parametrize("kind", [ROW, Nullable(ROW)], ids=["rows", "rows or nil"])
def test_every_fault_of_a_row_among_many_is_refused(kind: Kind) -> None:
    rng = random.Random(1)
    several = Array(kind, 1_000)
    good = [ROW.sample(rng) for _ in range(MANY)]
    assert several.check(good, "rows") == [ROW.check(row, "rows") for row in good]
    for _, fault in ROW.faults():
        at = rng.randrange(MANY)
        with pytest.raises(InvalidArgument, match="`rows`"):
            several.check([*good[:at], fault, *good[at + 1 :]], "rows")


def test_rows_that_are_nil_stay_where_they_are() -> None:
    rows = [None, [1, 2], None, None, (3, 4)] * MANY
    several = Array(Nullable(Row(a=Integer(), b=Integer())), 1_000)
    assert list(several.check(rows, "rows")) == rows
    assert several.check([None] * MANY, "rows") == [None] * MANY
    with pytest.raises(InvalidArgument):
        Array(Row(a=Integer(), b=Integer()), 1_000).check(rows, "rows")


def test_a_checked_element_takes_the_place_of_what_was_given() -> None:
    several = Array(Row(node=Integer(), seconds=Number(0, 9)), 1_000)
    (checked, *_) = several.check([[1, 2]] * MANY, "rows")
    assert checked == [1, 2.0]
    assert type(checked[1]) is float


def test_the_largest_lists_of_rows_are_checked_in_a_moment() -> None:
    """Checked row by row, 65,536 leaders took 80 ms in one turn of the loop."""
    for name, row, many in (
        ("leaders", [7, 1, 1, 1], limits.rows_max),
        ("small", [7, 1, 1, 1], limits.told_rows_max),
        ("large", [7, 1, 1, b"k"], limits.told_rows_max),
    ):
        field = peers.HEARTBEAT.request.shape[name]
        kind = field if isinstance(field, Kind) else field.kind
        rows = [list(row) for _ in range(many)]
        took_s = []
        for _ in range(3):
            began = time.thread_time()
            kind.check(rows, name)
            took_s.append(time.thread_time() - began)
        assert min(took_s) < CPU_S, name
