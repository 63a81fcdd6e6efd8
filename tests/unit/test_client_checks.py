"""Values from elsewhere: each of its type and within its bounds, or an error that says so."""

from typing import Any

import pytest

from lognode.client import checks, limits
from lognode.client.errors import InvalidArgument, LimitExceeded

BIG = "x" * 1_000_000


@pytest.mark.parametrize("value", [0, 1, 7, limits.number_max])
def test_numbers(value: int) -> None:
    assert checks.number(value, "n") == value


@pytest.mark.parametrize(
    "value", [-1, limits.number_max + 1, 1 << 64, True, 1.0, "1", None, [], {}]
)
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="`n` must be an integer of 0 or more, and at most"):
        checks.number(value, "n")


def test_a_number_has_the_bounds_that_are_given() -> None:
    assert checks.number(3, "n", least=3, most=3) == 3
    for value in (2, 4):
        with pytest.raises(InvalidArgument, match="of 3 or more, and at most 3"):
            checks.number(value, "n", least=3, most=3)


def test_arrays_of_numbers() -> None:
    assert checks.numbers((1, 2), "n", count_max=2) == [1, 2]
    for value in ([1, 2, 3], "12", None, [1, "2"], [-1], {1: 2}):
        with pytest.raises(InvalidArgument):
            checks.numbers(value, "n", count_max=2)


def test_texts() -> None:
    assert checks.text("", "t", bytes_max=0) == ""
    assert checks.text("\u00e9\n\0", "t", bytes_max=4) == "\u00e9\n\0"
    with pytest.raises(LimitExceeded, match="`t` has 2 bytes; at most 1 are allowed: shorten it"):
        checks.text("\u00e9", "t", bytes_max=1)
    for value in (None, b"t", 5, "\ud800"):
        with pytest.raises(InvalidArgument):
            checks.text(value, "t", bytes_max=10)


def test_a_line_has_no_control_characters() -> None:
    assert checks.line("eu west 1", "zone", bytes_max=9) == "eu west 1"
    for value in ("a\nb", "a\0", "\x1b[31m", "a\u202e", "\x7f"):
        with pytest.raises(InvalidArgument, match="with an unprintable character"):
            checks.line(value, "zone", bytes_max=20)


def test_keys() -> None:
    assert checks.key(b"k" * 480, "k") == b"k" * 480
    for value in (b"", b"k" * 481):
        with pytest.raises(LimitExceeded, match="a key has 1 to 480"):
            checks.key(value, "k")
    with pytest.raises(InvalidArgument):
        checks.key("k", "k")


@pytest.mark.parametrize("value", [BIG, BIG.encode(), [BIG], {BIG: BIG}, "\ud800" * 999, 1 << 600])
def test_an_error_shows_the_beginning_of_what_was_given(value: Any) -> None:
    told = checks.shown(value)
    assert len(told) < 500
    told.encode()
