"""Values of spans of keys against a plain map of every key."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lognode.statemachine.span_map import Steps

KEYS = [b"", *(bytes([n]) for n in range(8)), b"\x08"]
BOUND = st.integers(0, 8)


@given(st.lists(st.tuples(BOUND, BOUND | st.none(), st.integers(1, 5)), max_size=12))
def test_x12_spans_are_raised_one_by_one(raises: list[tuple[int, int | None, int]]) -> None:
    steps = Steps([b""], [0])
    plain = [0] * 9
    for start, end, to in raises:
        if end is not None and end <= start:
            continue
        before = steps.to_wire()
        raised = steps.raised(KEYS[start], None if end is None else KEYS[end], to, max)
        assert steps.to_wire() == before
        steps = raised
        for at in range(start, 9 if end is None else end):
            plain[at] = max(plain[at], to)
    assert [steps.at(key) for key in KEYS[:9]] == plain
    assert list(steps.starts) == [
        key for at, key in enumerate(KEYS[:9]) if not at or plain[at] != plain[at - 1]
    ]
    for first in range(9):
        for last in range(first, 9):
            over = steps.over(KEYS[first], KEYS[last])
            assert set(over) == set(plain[first : last + 1])
            within = list(steps.within(KEYS[first], KEYS[last + 1] if last < 8 else None))
            assert [value for *_, value in within] == list(over)
            assert (within[0][0], within[-1][1]) == (
                KEYS[first], KEYS[last + 1] if last < 8 else None,
            )  # fmt: skip
            if last > first:
                below = steps.over(KEYS[first], KEYS[8], KEYS[last])
                assert list(below) == [value for *_, value in steps.within(KEYS[first], KEYS[last])]
            clipped = steps.clipped(KEYS[first], KEYS[last + 1] if last < 8 else None, 9)
            assert [clipped.at(key) for key in KEYS[:9]] == [
                value if first <= at <= last else 9 for at, value in enumerate(plain)
            ]
            assert all(a != b for a, b in pairwise(clipped.values))
