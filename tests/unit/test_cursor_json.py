"""The cursors of follows as JSON: another text than that of a cursor is refused, and says why."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode import Cursor
from lognode.client.protocol.errors import InvalidArgument

SPANS = Cursor(spans=((b"", b"m", 5), (b"m", b"\xffm", 7), (b"\xffm", None, 1 << 40)))
KEYS = st.binary(min_size=1, max_size=4)


@given(st.dictionaries(KEYS, st.integers(0, 1 << 60)))
def test_the_positions_of_keys_survive_json(keys: dict[bytes, int]) -> None:
    text = Cursor(keys=keys).to_json()
    assert "\n" not in text
    assert Cursor.from_json(text) == Cursor(keys=keys)


@pytest.mark.parametrize("cursor", [SPANS, Cursor(), Cursor(spans=((b"p", b"q", 3),))])
def test_the_positions_of_spans_survive_json(cursor: Cursor) -> None:
    assert Cursor.from_json(cursor.to_json()) == cursor
    assert Cursor.from_json(json.dumps(json.loads(cursor.to_json()), indent=2)) == cursor


def _spans(*rows: object) -> str:
    return json.dumps({"v": 1, "spans": rows})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[1]", "version 1"),
        (json.dumps({"v": 2, "keys": []}), "version 1"),
        (json.dumps({"v": 1}), "not one list"),
        (json.dumps({"v": 1, "keys": [], "spans": []}), "not one list"),
        (json.dumps({"v": 1, "keys": [3]}), "3 has no 'key'"),
        (json.dumps({"v": 1, "keys": [{"key": "a"}]}), "has no 'next'"),
        (json.dumps({"v": 1, "keys": [{"key": "a", "next": 1}] * 2}), "two positions"),
        (json.dumps({"v": 1, "keys": [{"key": "a", "next": True}]}), "a position is True"),
        (json.dumps({"v": 1, "keys": [{"key": "a", "next": -1}]}), "a position is -1"),
        (json.dumps({"v": 1, "keys": [{"key": "a", "next": 1 << 64}]}), "a position is"),
        (json.dumps({"v": 1, "keys": [{"key": {"b64": "?"}, "next": 1}]}), "a key is"),
        (json.dumps({"v": 1, "keys": [{"key": "\ud800", "next": 1}]}), "a key is"),
        (_spans({"start": "b", "end": "a", "next": 1}), "not in order at key b'b'"),
        (_spans({"start": "a", "end": None, "next": 1}, {"start": "b", "end": None, "next": 1}),
         "not in order at key b'b'"),
        (_spans({"start": "a", "end": "c", "next": 1}, {"start": "b", "end": None, "next": 1}),
         "not in order at key b'b'"),
    ],
)  # fmt: skip
def test_another_text_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match="not a cursor in the form of to_json") as caught:
        Cursor.from_json(text)
    assert why in caught.value.message
