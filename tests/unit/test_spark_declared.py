"""Typed columns: which values fit a declared JSON schema, which columns they have, and why others
do not fit."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.spark.jobs import declared

EVERY: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "of the aircraft"},
        "count": {"type": "integer"},
        "delay": {"type": ["number", "null"]},
        "late": {"type": "boolean"},
        "timestamp": {"type": "string", "format": "date-time", "x-column": "event_time"},
        "day": {"type": "string", "format": "date", "x-column": "event_day"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "place": {
            "type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat"], "additionalProperties": False,
        },
    },
    "required": ["name"],
}  # fmt: skip


def made(body: Any = EVERY) -> declared.Declared:
    return declared.declared(json.dumps(body))


def of(kind: Any, **more: Any) -> declared.Declared:
    """The schema of one column."""
    return made({"type": "object", "properties": {"a": kind}, **more})


def test_each_kind_has_a_column() -> None:
    assert made().schema == pa.schema([
        ("name", pa.string()), ("count", pa.int64()), ("delay", pa.float64()),
        ("late", pa.bool_()), ("event_time", pa.timestamp("us", "UTC")),
        ("event_day", pa.date32()), ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
    ])  # fmt: skip


def test_values_that_fit_have_their_columns_and_tombstones_none() -> None:
    value = {
        "name": "Ä", "count": 2.0, "delay": 3, "late": True,
        "timestamp": "2026-01-02T03:04:05.000006+01:00", "day": "2026-01-02",
        "tags": ["x", None], "place": {"lat": 1}, "other": {"is": "ignored"},
    }  # fmt: skip
    values = [json.dumps(value).encode(), None, b'{"name":"b","delay":null}']
    arrays, reasons = made().arrays(values)
    assert reasons == [None, None, None]
    rows = pa.table(arrays, schema=made().schema).to_pylist()
    none = dict.fromkeys(made().schema.names)
    assert rows == [
        {
            "name": "Ä", "count": 2, "delay": 3.0, "late": True,
            "event_time": datetime(2026, 1, 2, 2, 4, 5, 6, UTC), "event_day": date(2026, 1, 2),
            "tags": ["x", None], "place": {"lat": 1.0, "lon": None},
        },
        none,
        {**none, "name": "b"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("string", b"\xff", "the value is not UTF-8"),
        ("string", b"", "the value is not JSON: Expecting value at character 0"),
        ("string", b'{"a":', "the value is not JSON: Expecting value at character 5"),
        ("string", b"[" * 100_000, "the value is nested too deep"),
        ("string", b"[1]", "$ is an array; the schema has an object"),
        ("string", b"null", "$ is null; the schema has an object"),
        ("string", b'{"a":1}', "$.a is an integer; the schema has a string"),
        ("string", b'{"a":null}', "$.a is null; the schema has a string"),
        ("string", b'{"a":"\\ud800"}', "$.a has half of a surrogate pair"),
        ("integer", b'{"a":true}', "$.a is a boolean; the schema has an integer"),
        ("integer", b'{"a":1.5}', "$.a is a number; the schema has an integer"),
        ("integer", b'{"a":1e400}', "$.a is a number; the schema has an integer"),
        ("integer", b'{"a":9223372036854775808}', "$.a is an integer of more than 64 bits"),
        ("integer", b'{"a":' + b"9" * 5_000 + b"}", "the value has a number with too many digits"),
        ("number", b'{"a":NaN}', "the value is not JSON: NaN is not a number of JSON"),
        ("number", b'{"a":1e400}', "$.a is a number beyond 64 bits"),
        ("number", b'{"a":' + b"9" * 400 + b"}", "$.a is a number beyond 64 bits"),
        ("boolean", b'{"a":0}', "$.a is an integer; the schema has a boolean"),
    ],
)
def test_a_value_that_does_not_fit_has_a_reason_without_its_text(
    kind: str, value: bytes, reason: str
) -> None:
    assert of({"type": kind}).fit(value) == (None, reason)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00",
         "$.a is not a time of ISO 8601 with a zone"),
        ({"type": "string", "format": "date"}, "1.1.2026", "$.a is not a date of ISO 8601"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"],
         "$.a[] is a string; the schema has an integer"),
        (EVERY["properties"]["place"], {"lon": 1}, "$.a lacks the required property 'lat'"),
        (EVERY["properties"]["place"], {"lat": 1, "secret": 2},
         "$.a has a property that the schema does not have"),
    ],
)  # fmt: skip
def test_nested_values_that_do_not_fit_name_their_place(kind: Any, value: Any, reason: str) -> None:
    assert of(kind).fit(json.dumps({"a": value}).encode()) == (None, reason)
    assert of(kind).fit(b"{}") == ({}, None)
    assert of(kind, required=["a"]).fit(b"{}") == (None, "$ lacks the required property 'a'")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], '$ is not an object; write "type": "object" and "properties"'),
        ({"type": "object"}, "$ has no properties"),
        ({"type": "object", "properties": {"a": 1}}, "$.a is not a schema"),
        ({"type": "object", "properties": {"a": {"type": "blob"}}}, "$.a has the type 'blob'"),
        ({"type": "object", "properties": {"a": {"type": [{}, "null"]}}}, "$.a has the type"),
        ({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}},
         "$.a has the keyword 'minimum', which is not checked"),
        ({"type": "object", "properties": {"Key": {"type": "string"}}},
         """$.Key cannot be the column 'Key': the export has a column 'key'. Add "x-column\""""),
        ({"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string"}}},
         "another property has the column 'a'"),
        ({"type": "object", "properties": {"a b": {"type": "string"}}},
         "has letters, digits and _"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
         '"required" that is not a list of its properties'),
        ({"type": "object", "properties": {f"a{n}": {"type": "null"} for n in range(2)}},
         "$.a0 has the type 'null'"),
        ({"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(1_001)}},
         "has 1001 properties; the limit is 1000"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused_by_name(body: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        made(body)
    assert said in raised.value.message


def test_a_schema_that_is_not_json_or_too_deep_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="the schema is not JSON"):
        declared.declared("{")
    body: Any = {"type": "string"}
    for _ in range(20):
        body = {"type": "array", "items": body}
    with pytest.raises(InvalidArgument, match="nested 17 deep; the limit is 16"):
        of(body)


def test_a_later_schema_adds_columns_and_takes_none_away() -> None:
    first = of({"type": "integer"})
    more = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
    declared.check_follows(first, made(more))
    with pytest.raises(InvalidArgument, match="lacks the column 'b', which the export has"):
        declared.check_follows(made(more), first)
    with pytest.raises(InvalidArgument, match="has string for column 'a'; the export has int64"):
        declared.check_follows(first, of({"type": "string"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from([*EVERY["properties"], "lat", "lon", "x"]), inner
    ),
)  # fmt: skip


@given(st.lists(st.binary() | st.none() | JSON.map(lambda value: json.dumps(value).encode())))
def test_no_value_stops_the_export(values: list[bytes | None]) -> None:
    """Each value has either a reason or columns of the right types."""
    arrays, reasons = made().arrays(values)
    assert len(reasons) == len(values)
    pa.table(arrays, schema=made().schema).validate(full=True)
    for value, reason in zip(values, reasons, strict=True):
        assert reason is None or (value is not None and len(reason) < 200)
