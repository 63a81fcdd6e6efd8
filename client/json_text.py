"""Bytes in JSON: text when they are valid UTF-8, else `{"b64": ...}`."""

import base64
from typing import Any


def printable(value: bytes) -> str | dict[str, str]:
    """Return the bytes as text, or as a base64 object."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode("ascii")}


def bytes_of(value: Any) -> bytes:
    """Undo `printable`. Raises ValueError."""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{value!r} is neither text nor base64") from None


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return the JSON of a value that may hold bytes anywhere but in dictionary keys."""
    import json  # imported here because it takes long to load

    return json.dumps(value, default=_default, indent=indent, ensure_ascii=False)


def _default(value: Any) -> Any:
    if isinstance(value, bytes):
        return printable(value)
    raise TypeError(
        f"{type(value).__name__} has no JSON form; give text, numbers, lists, maps or bytes"
    )
