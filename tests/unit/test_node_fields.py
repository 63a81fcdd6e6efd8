"""Fields of bodies: what is no integer, key or text is refused."""

from typing import Any

import pytest

from lognode.client.errors import InvalidArgument, LimitExceeded
from lognode.node import fields


@pytest.mark.parametrize("value", [None, True, -1, 1.0, "1", b"1", [1], {}])
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="`n` must be an integer of 0 or more"):
        fields.integer({"n": value}, "n")


def test_a_default_is_for_what_is_missing_only() -> None:
    assert fields.integer({}, "n", 7) == 7
    assert fields.integer({"n": None}, "n", 7) == 7
    assert fields.integer({"n": 0}, "n", 7) == 0
    with pytest.raises(InvalidArgument):
        fields.integer({"n": "x"}, "n", 7)


@pytest.mark.parametrize("size", [0, 481])
def test_what_cannot_be_a_key(size: int) -> None:
    with pytest.raises(LimitExceeded, match=f"`key` of {size} bytes; a key has 1 to 480"):
        fields.key({"key": bytes(size)})


def test_where_a_span_begins() -> None:
    assert fields.bound({}, "start") == fields.bound({"start": b""}, "start") == b""
    assert fields.bound({"start": b"k"}, "start") == b"k"
    with pytest.raises(InvalidArgument):
        fields.bound({"start": ""}, "start")


def test_pages_are_bounded() -> None:
    assert fields.page_limit({"limit": 10**9}, 100) == 100
    assert fields.page_limit({"limit": 0}, 100) == 1
    assert fields.page_bytes({"bytes": 10**9}) == 4 << 20


@pytest.mark.parametrize(
    "keys",
    [None, b"k", [], [b"k"], [[b"k"]], [[b"k", 1, 2]], [["k", 1]], [[b"k", -1]], [[b"", 1]],
     [[b"k", True]], [[b"k", None]], [[b"k", 1]] * 33, [[b"k", 1], {}], {b"k": 1}],
)  # fmt: skip
def test_what_removes_nothing(keys: Any) -> None:
    with pytest.raises(InvalidArgument):
        fields.removals({"keys": keys})


def test_keys_to_be_removed() -> None:
    assert fields.removals({"keys": [[b"k", 3], [b"l", 1]]}) == [(b"k", 3), (b"l", 1)]
