"""Vectors as JSON: what is none is refused, and says why."""

import json
from typing import Any

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.vector import Part, Vector

WHOLE = Vector(
    "c", "flights", 3, "lease", 1_000, (Part(b"", b"\xffm", 0), Part(b"\xffm", None, 1 << 40))
)


def test_a_vector_survives_json() -> None:
    text = WHOLE.to_json()
    assert "\n" not in text
    assert Vector.from_json(text) == WHOLE
    assert Vector.from_json(json.dumps(json.loads(text), indent=2)) == WHOLE


def _without(name: str) -> dict[str, Any]:
    return {n: value for n, value in WHOLE.to_document().items() if n != name}


def _with(**changed: Any) -> dict[str, Any]:
    return {**WHOLE.to_document(), **changed}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "not JSON"),
        ("[1]", "not an object"),
        (_with(v=2), "version is 2; this lognode knows 1"),
        (_without("lease"), "lease is None"),
        (_with(log_id=True), "log_id is True"),
        (_with(parts=[]), "do not cover"),
        (_with(parts=[None]), "a part is None"),
        (_with(parts=[{"start": "", "end": None, "through_seq": -1}]), "through seq -1"),
        (_with(parts=[{"start": "", "end": "m", "through_seq": 1}]), "end at key b'm'"),
        (_with(parts=[{"start": "a", "end": None, "through_seq": 1}]), "at key b'a'"),
        (_with(parts=[{"start": "", "end": "", "through_seq": 1}]), "at key b''"),
        (_with(parts=[{"start": {"b64": "!"}, "end": None, "through_seq": 1}]), "a key is"),
        (_with(parts=[{"start": 5, "end": None, "through_seq": 1}]), "a key is 5"),
    ],
)
def test_a_malformed_vector_is_refused(given: Any, why: str) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(
        InvalidArgument, match=r"the text is not a snapshot in the form of to_json\(\)"
    ) as caught:
        Vector.from_json(text)
    assert why.replace("do not cover", "the parts end at key b''") in caught.value.message
