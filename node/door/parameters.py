"""Parameters of requests, in the path, the query or the header: each reads its bytes, and describes
itself for OpenAPI.

A path and a query are bytes with percent-encoding: a key that is not UTF-8 can be given in them.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from ...client.durations import unix_ms
from ...client.protocol.errors import InvalidArgument
from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.types import Tail, Timestamp
from .json_kinds import Schema, refused

_QUERY_PARTS_MAX: Final = 2_048
_START: Final = re.compile(r"(?:(tail|time):)?([0-9]{1,19})")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d.{0,30}", re.ASCII)
_SHOWN: Final = "a seq, time:MS or 2026-11-28T16:00:00Z"
Where = Literal["path", "query", "header"]


class Parameter(NamedTuple):
    """A parameter. `read` returns the value for the SDK, and raises InvalidArgument. The value of a
    `repeated` parameter is a list."""

    name: str
    where: Where
    about: str
    schema: Schema
    read: Callable[[bytes, str], Any]
    required: bool = False
    repeated: bool = False
    default: Any = None


def read_text(value: bytes, name: str) -> str:
    """Return the text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise refused(name, value, "text in UTF-8") from None


def _read_bytes(value: bytes, _: str) -> bytes:
    return value


def _read_flag(value: bytes, name: str) -> bool:
    if value not in (b"true", b"false"):
        raise refused(name, value, "true or false")
    return value == b"true"


def read_start(value: bytes, name: str) -> Any:
    """Return where to begin: a seq, a word, Tail or Timestamp."""
    text = value.decode("utf-8", "replace")
    if text in ("earliest", "latest", "snapshot"):
        return text
    match = _START.fullmatch(text)
    if match is None and (at := _date(text)):
        return at
    if match is None or int(match[2]) > INTEGER_MAX:
        raise refused(name, value, f"earliest, latest, snapshot, tail:COUNT, {_SHOWN}")
    number = int(match[2])
    return {None: number, "tail": Tail(number), "time": Timestamp(number)}[match[1]]


def _read_end(value: bytes, name: str) -> Any:
    text = value.decode("utf-8", "replace")
    match = _START.fullmatch(text)
    if match is None and (at := _date(text)):
        return at
    if match is None or match[1] == "tail" or int(match[2]) > INTEGER_MAX:
        raise refused(name, value, _SHOWN)
    return int(match[2]) if match[1] is None else Timestamp(int(match[2]))


def _date(text: str) -> Timestamp | None:
    """Return the time of a text in ISO 8601, None for other texts. A query has a blank for `+`."""
    if _DATE.fullmatch(text) is None:
        return None
    try:
        return Timestamp(unix_ms(text.replace(" ", "+")))
    except ValueError:
        return None


def text(name: str, about: str, where: Where = "query") -> Parameter:
    """Return a parameter of text."""
    return Parameter(name, where, about, {"type": "string"}, read_text, where == "path")


def raw(name: str, about: str, where: Where = "query", *, repeated: bool = False) -> Parameter:
    """Return a parameter of bytes, such as a key."""
    return Parameter(name, where, about, {"type": "string"}, _read_bytes, where == "path", repeated)


def flag(name: str, about: str) -> Parameter:
    """Return a parameter that is true or false."""
    return Parameter(name, "query", about, {"type": "boolean"}, _read_flag, default=False)


def number(name: str, about: str, low: int, high: int, default: int | None = None) -> Parameter:
    """Return a parameter of an integer."""

    def read(value: bytes, name: str) -> int:
        if not value.isdigit() or len(value) > 19 or not low <= int(value) <= high:
            raise refused(name, value, f"an integer from {low} to {high}")
        return int(value)

    schema: Schema = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name, "query", about, schema, read, default=default)


START: Final = Parameter(
    "from", "query",
    "Where to begin: a seq, `earliest`, `latest`, `snapshot` (the newest entry with this mark), "
    "`tail:COUNT`, `time:MS` (Unix time in milliseconds) or a time in ISO 8601.",
    {"type": "string", "default": "earliest"}, read_start, default="earliest",
)  # fmt: skip
END: Final = Parameter(
    "to", "query", "The end, which is left out: a seq, `time:MS` or a time in ISO 8601.",
    {"type": "string"}, _read_end,
)  # fmt: skip


def read_query(raw_query: str) -> dict[str, list[bytes]]:
    """Return the values of each parameter of a query, as bytes. Raises InvalidArgument."""
    found: dict[str, list[bytes]] = {}
    if not raw_query:
        return found
    parts = raw_query.split("&", _QUERY_PARTS_MAX)
    if len(parts) > _QUERY_PARTS_MAX:
        raise InvalidArgument(f"the query has over {_QUERY_PARTS_MAX} parameters; give fewer")
    for part in parts:
        if part:
            name, _, value = part.partition("=")
            decoded = decoded_bytes(name.replace("+", " ")).decode("utf-8", "replace")
            found.setdefault(decoded, []).append(decoded_bytes(value.replace("+", " ")))
    return found


def decoded_bytes(part: str) -> bytes:
    """Return the bytes of a part of an address, without its percent-encoding."""
    return unquote_to_bytes(part.encode("utf-8", "surrogateescape"))
