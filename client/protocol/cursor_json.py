"""The JSON of a follow's cursor: positions per key, or per span of keys."""

import base64
from collections.abc import Mapping
from typing import Any, Final

from .errors import InvalidArgument
from .kinds import INTEGER_MAX

_VERSION: Final = 1
Spans = tuple[tuple[bytes, bytes | None, int], ...]


def cursor_text(keys: Mapping[bytes, int] | None, spans: Spans) -> str:
    """Return one line of JSON. Keys are text, or base64 when they are not UTF-8."""
    import json  # imported here because it takes long to load

    body: dict[str, Any] = {"v": _VERSION}
    if keys is not None:
        body["keys"] = [{"key": _shown(key), "next": at} for key, at in keys.items()]
    else:
        body["spans"] = [
            {"start": _shown(start), "end": None if end is None else _shown(end), "next": at}
            for start, end, at in spans
        ]
    return json.dumps(body, ensure_ascii=False)


def cursor_parts(text: str) -> tuple[dict[bytes, int] | None, Spans]:
    """Return the keys and the spans of a text of `cursor_text`. Raises InvalidArgument."""
    try:
        import json

        body = json.loads(text)
    except (TypeError, ValueError) as error:
        raise _none(f"the text is not JSON: {error}") from None
    if type(body) is not dict or body.get("v") != _VERSION:
        raise _none(f"the text is not an object of version {_VERSION}")
    if (type(body.get("keys")) is list) == (type(body.get("spans")) is list):
        raise _none("the text has not one list, `keys` or `spans`")
    if type(body.get("keys")) is list:
        rows = [(_key(_field(row, "key")), _next(row)) for row in body["keys"]]
        if len(dict(rows)) < len(rows):
            raise _none("a key has two positions")
        return dict(rows), ()
    return None, tuple(_ordered(body["spans"]))


def _ordered(rows: list[Any]) -> list[tuple[bytes, bytes | None, int]]:
    spans: list[tuple[bytes, bytes | None, int]] = []
    before: bytes | None = b""
    for row in rows:
        start, end = _key(_field(row, "start")), _field(row, "end")
        stop = None if end is None else _key(end)
        if before is None or start < before or (stop is not None and stop <= start):
            raise _none(f"the spans are not in order at key {start!r}")
        spans.append((start, stop, _next(row)))
        before = stop
    return spans


def _shown(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(key).decode("ascii")}


def _key(value: Any) -> bytes:
    try:
        if type(value) is str:
            return value.encode("utf-8")
        return base64.b64decode(value["b64"], validate=True)
    except (TypeError, KeyError, ValueError):
        raise _none(f"a key is {value!r}") from None


def _field(row: Any, name: str) -> Any:
    if type(row) is not dict or name not in row:
        raise _none(f"{row!r} has no {name!r}")
    return row[name]


def _next(row: Any) -> int:
    at = _field(row, "next")
    if type(at) is not int or not 0 <= at <= INTEGER_MAX:
        raise _none(f"a position is {at!r}")
    return at


def _none(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the text is not a cursor in the form of to_json(): {why}", what="cursor"
    )
