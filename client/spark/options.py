"""The options of the source and the sink: strings of a user, checked and converted.

Spark passes option names in lower case. Unknown options are refused by name, since a misspelt
option without effect is worse than an error.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from ..cursor import checked_name
from ..protocol import address, limits
from ..protocol.errors import InvalidArgument
from ..protocol.key_spans import prefix_span
from ..protocol.types import Consistency
from ..vector import Vector

Mode = Literal["changes", "snapshot"]
KeySpan = tuple[bytes, bytes | None]
Starting = Vector | int | Literal["latest"] | None

COLUMNS: Final = ("key", "value", "log", "seq", "timestamp")
EXTRA_COLUMNS: Final = ("headers", "rangeStart", "snapshot")
lease_s_default: Final = 3_600.0
renewed_s_default: Final = 300.0
timeout_s_default: Final = 30.0
trigger_delay_s_default: Final = 900.0
keys_max: Final = 10_000
logs_max: Final = 1_000
_UNITS_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_EVERYTHING: Final[tuple[KeySpan, ...]] = ((b"", None),)
_LATEST: Final = (
    "a stream remembers no start before its first micro-batch is done: after a failure the "
    "latest entry would be another entry, and entries would be lost without an error. Give "
    "earliest, a seq, or startingTimestamp; or give the option cursor too, whose position the "
    "log keeps"
)
_OF_TABLES: Final = "option."
"""With this prefix Spark passes the options of CREATE TABLE once more."""
_NO_TABLE: Final = (
    "Spark does not pass the options of a table to a source written in Python when the table is "
    "read. Use CREATE TEMPORARY VIEW name USING lognode OPTIONS (servers '...', log '...')"
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. At most one start and at most one end is given."""

    servers: str
    log: str = ""
    """The log, unless `logs` or `log_prefix` is given."""
    logs: tuple[str, ...] | None = None
    """Ascending."""
    log_prefix: str | None = None
    mode: Mode = "changes"
    keys: tuple[bytes, ...] | None = None
    """Ascending. At most one of `keys`, `prefix` and `patterns` is given."""
    prefix: bytes | None = None
    patterns: tuple[str | bytes, ...] | None = None
    """Patterns, whose levels are those of the log's hierarchy."""
    columns: tuple[str, ...] = COLUMNS
    starting: "Starting" = None
    """Read the entries after the vector, or from the seq on; None: from the earliest entry on.
    "latest" only with a `cursor`: the end of the log when the cursor begins to exist."""
    ending_seq: int | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    cursor: str | None = None
    """The kept cursor at which a read begins, and with which a stream keeps its progress. For a
    stream, the start is where a new cursor begins."""
    as_of: "Vector | int | None" = None
    """Read up to and including a vector, or a Unix time in milliseconds."""
    partitions_min: int = 1
    entries_max: int | None = None
    entries_min: int | None = None
    """A micro-batch of a stream waits for so many entries, at most `trigger_delay_s` seconds."""
    trigger_delay_s: float = trigger_delay_s_default
    bytes_max: int | None = None
    fail_on_data_loss: bool = True
    consistency: Consistency = "linearizable"
    lease_s: float = lease_s_default
    renews: bool = True
    """Whether the lease of a snapshot is renewed for as long as the driver lives. Otherwise the
    lease takes `lease_s` seconds."""
    renewed_s: float = renewed_s_default
    """How long a renewed lease lasts without a renewal."""
    timeout_s: float = timeout_s_default

    def of_log(self, name: str, count: int = 1) -> "ReadOptions":
        """Return the options for one of `count` logs."""
        return replace(
            self, log=name, logs=None, log_prefix=None,
            partitions_min=-(-self.partitions_min // count),
        )  # fmt: skip

    @property
    def spans(self) -> tuple[KeySpan, ...]:
        """The spans of the keys or of the prefix, or everything: disjoint and ascending. For
        patterns see `wanted`."""
        if self.keys is not None:
            return tuple((key, key + b"\0") for key in self.keys)
        return _EVERYTHING if self.prefix is None else (prefix_span(self.prefix),)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    servers: str
    log: str | None = None
    """The log of all rows, whatever their column `log` says; None: the column names the log."""
    write_id: str | None = None
    """Names a `save()`: another one with this id appends no row that this one has appended."""
    timeout_s: float = timeout_s_default


class _Option(NamedTuple):
    name: str
    kinds: str
    """First letters of the kinds that accept the option: b for batch, s for stream, w for the
    sink, which writes."""
    field: str
    parse: Callable[[str], Any]


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Return the options of a batch or of a stream; `streaming` None: the kind is not known yet.

    Raises InvalidArgument.
    """
    letters = {True: "s", False: "b", None: "bs"}[streaming]
    values = _parsed(options, letters)
    _exclusive(options, "log", "logs", "logPrefix")
    _exclusive(options, "keys", "keyPrefix", "pattern")
    values.pop("pushdown", None)
    columns, headers = values.pop("columns", None), values.pop("headers", False)
    if columns is None:
        columns = (*COLUMNS, "headers") if headers else COLUMNS
    elif headers and "headers" not in columns:
        raise _wrong("includeHeaders", "is true, and columns does not name headers")
    _exclusive(options, "startingSeq", "startingTimestamp")
    _exclusive(options, "endingSeq", "endingTimestamp", "asOf")
    if streaming is False:
        _exclusive(options, "cursor", "startingSeq", "startingTimestamp")
    renews = "lease_s" not in values
    found = ReadOptions(**values, columns=columns, renews=renews)
    if found.starting == "latest" and found.cursor is None:
        raise _wrong("startingSeq", f"is 'latest'; {_LATEST}")
    if found.cursor is not None and isinstance(found.starting, Vector):
        raise _wrong(
            "startingSeq", "is a snapshot, and a cursor is given; a new cursor begins at earliest, "
            "latest, a seq, or startingTimestamp",
        )  # fmt: skip
    if found.entries_min is None and "maxtriggerdelay" in map(str.lower, options):
        raise _wrong("maxTriggerDelay", "is given without minEntriesPerTrigger; give both or none")
    if found.entries_max is not None and (found.entries_min or 0) > found.entries_max:
        raise _wrong(
            "minEntriesPerTrigger", f"is {found.entries_min}, above maxEntriesPerTrigger, which is "
            f"{found.entries_max}; give at most {found.entries_max}",
        )  # fmt: skip
    for name, value in (("startingSeq", found.starting), ("asOf", found.as_of)):
        if isinstance(value, Vector) and not found.log:
            raise _wrong(
                name, "is a snapshot, which is of one log; give a seq or a time, or read each log "
                "with the option log",
            )  # fmt: skip
    begins = found.starting is not None or found.starting_ms is not None
    begins = begins or found.cursor is not None
    if found.mode == "snapshot" and (begins or streaming):
        why = "a stream has mode=changes" if streaming else "it starts with the earliest entry"
        raise _wrong("mode", f"is snapshot, the latest value of each key: {why}")
    return found


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Return the options of a sink, of a stream or of `save()`. Raises InvalidArgument."""
    found = WriteOptions(**_parsed(options, "w"))
    if streaming and found.write_id is not None:
        raise _wrong(
            "writeId", "is an option of save(), but this is a stream, whose checkpoint has an id; "
            "leave the option out",
        )  # fmt: skip
    return found


def age_s(text: str, option: str) -> float:
    """Return the seconds of a time like 90s or 1h, which may be 0. Raises InvalidArgument."""
    try:
        return 0.0 if text in ("0", "0s") else _seconds(text)
    except ValueError as error:
        raise InvalidArgument(f"{option} is {text!r}; {error}", what=option.lstrip("-")) from None


def _parsed(options: Mapping[str, str], letters: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if any(name.lower().startswith(_OF_TABLES) for name in options):
        raise InvalidArgument(f"lognode has no CREATE TABLE: {_NO_TABLE}")
    for given, text in options.items():
        name = given.lower()
        if letters == "w" and name in _OF_SPARK:
            continue
        for refused, why in _REFUSED.items():
            if name == refused.lower():
                raise _wrong(refused, why)
        option = _BY_NAME.get(name)
        if option is None:
            allowed = ", ".join(o.name for o in _OPTIONS if set(o.kinds) & set(letters))
            raise _wrong(given, f"is not an option of lognode; the options are {allowed}")
        if not set(option.kinds) & set(letters):
            where, here = (" or ".join(map(_KINDS.__getitem__, k)) for k in (option.kinds, letters))
            raise _wrong(option.name, f"is an option of {where}, but this is {here}")
        try:
            values[option.field] = option.parse(text.strip())
        except InvalidArgument as error:
            raise _wrong(option.name, error.message) from None
        except ValueError as error:
            raise _wrong(option.name, f"is {text!r}; {error}") from None
    if "servers" not in values:
        raise _wrong("servers", f"is not given; write .option('servers', ...). In SQL: {_NO_TABLE}")
    if letters != "w" and not values.keys() & {"log", "logs", "log_prefix"}:
        raise _wrong("log", "is not given; write .option('log', ...), or give logs or logPrefix")
    return values


def _exclusive(options: Mapping[str, str], *names: str) -> None:
    given = [name for name in names if name.lower() in {each.lower() for each in options}]
    if len(given) > 1:
        raise _wrong(given[0], f"and {given[1]} are both given; give one of them")


def _wrong(name: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"option {name}: {what}", what=name)


# Values. Each function raises ValueError that says what is allowed.


def _servers(text: str) -> str:
    address.parse(text)
    address.tls_of(text)
    address.token_file_of(text)
    return text


def _text(text: str) -> str:
    if not text:
        raise ValueError("the value is empty; give a value")
    return text


def _logs(text: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    is_list = type(names) is list and all(type(name) is str and name for name in names)
    if not is_list or not 1 <= len(names) <= logs_max:
        raise ValueError(f'give a JSON array of 1 to {logs_max} names: ["orders", "returns"]')
    return tuple(sorted(set(names)))


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"give {' or '.join(allowed)}")
        return text.lower()

    return parse


def _flag(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise ValueError(f"give a whole number of {least} or more")
        return int(text)

    return parse


def _starting(text: str) -> Starting:
    if text.lower() == "latest":
        return "latest"
    if text.lower() == "earliest":
        return None
    if text.startswith("{"):
        return Vector.from_json(text)
    try:
        return _whole(0)(text)
    except ValueError:
        raise ValueError("give earliest, a seq, or the JSON of a snapshot") from None


def _milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("give Unix milliseconds, or ISO 8601 with a zone: 2026-01-31T12:00:00Z")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return round(since.total_seconds() * 1000)


def _as_of(text: str) -> Vector | int:
    return Vector.from_json(text) if text.startswith("{") else _milliseconds(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or float(match[1]) <= 0:
        raise ValueError("give 90s, 30m, 1h or 7d")
    return float(match[1]) * _UNITS_S[match[2]]


def _lease_s(text: str) -> float:
    seconds = _seconds(text)
    if seconds * 1000 > limits.lease_ms_max:
        raise ValueError(f"a lease takes at most {limits.lease_ms_max // 86_400_000} days")
    return seconds


def _prefix(text: str) -> bytes:
    return _key(json.loads(text)) if text.startswith("{") else _key(text)


def _keys(text: str) -> tuple[bytes, ...]:
    """Return the keys of a JSON array of keys, each text or {"b64": ...}, or one literal key."""
    rows = [text]
    if text.startswith("["):
        try:
            rows = json.loads(text)
        except ValueError:
            raise ValueError('give a key, or a JSON array: ["a", {"b64": "/w=="}]') from None
    keys = sorted({_key(row) for row in rows})
    if not keys or len(keys) > keys_max or b"" in keys:
        raise ValueError(f"give 1 to {keys_max} keys, all with at least one byte, or keyPrefix")
    return tuple(keys)


def _patterns(text: str) -> tuple[str | bytes, ...]:
    """Return the patterns of a JSON array, or one literal pattern. The log's hierarchy, which says
    whether a pattern is valid, is not known yet."""
    if not text.startswith("["):
        return (text,)
    try:
        rows = json.loads(text)
    except ValueError:
        raise ValueError('give a pattern, or a JSON array: ["eu/>", "!eu/7/>"]') from None
    return tuple(_key(row) if isinstance(row, dict) else row for row in rows)


def _key(value: Any) -> bytes:
    if isinstance(value, str):
        key = value.encode()
    else:
        try:
            key = base64.b64decode(value["b64"], validate=True)
        except (TypeError, KeyError, ValueError):
            raise ValueError('a key is text, or {"b64": ...}') from None
    if len(key) > limits.key_bytes_max:
        raise ValueError(f"a key has at most {limits.key_bytes_max} bytes")
    return key


def _columns(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in (*COLUMNS, *EXTRA_COLUMNS)}
    names = [name.strip().lower() for name in text.split(",")]
    if not set(names) <= known.keys() or len(set(names)) < len(names):
        raise ValueError(f"give some of {', '.join(known.values())}, each once")
    return tuple(known[name] for name in names)


def _write_id(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", text) is None:
        raise ValueError("give 1 to 128 of the characters A-Z, a-z, 0-9, '.', '_', ':' and '-'")
    return text


def _no_pushdown(text: str) -> None:
    if _flag(text):
        raise ValueError(
            "Spark 4.3 gives the filters of one query to all others of the same DataFrame, which "
            "then miss rows. Leave the option out: Spark filters by itself. Give keys, keyPrefix, "
            "pattern or a start to read less"
        )


_OPTIONS: Final = (
    _Option("servers", "bsw", "servers", _servers),
    _Option("log", "bsw", "log", _text),
    _Option("logs", "bs", "logs", _logs),
    _Option("logPrefix", "bs", "log_prefix", _text),
    _Option("mode", "bs", "mode", _one_of("changes", "snapshot")),
    _Option("keys", "bs", "keys", _keys),
    _Option("keyPrefix", "bs", "prefix", _prefix),
    _Option("pattern", "bs", "patterns", _patterns),
    _Option("columns", "bs", "columns", _columns),
    _Option("includeHeaders", "bs", "headers", _flag),
    _Option("startingSeq", "bs", "starting", _starting),
    _Option("startingTimestamp", "bs", "starting_ms", _milliseconds),
    _Option("cursor", "bs", "cursor", checked_name),
    _Option("endingSeq", "b", "ending_seq", _whole(1)),
    _Option("endingTimestamp", "b", "ending_ms", _milliseconds),
    _Option("asOf", "b", "as_of", _as_of),
    _Option("minPartitions", "bs", "partitions_min", _whole(1)),
    _Option("snapshotLease", "b", "lease_s", _lease_s),
    _Option("maxEntriesPerTrigger", "s", "entries_max", _whole(1)),
    _Option("minEntriesPerTrigger", "s", "entries_min", _whole(1)),
    _Option("maxTriggerDelay", "s", "trigger_delay_s", _seconds),
    _Option("maxBytesPerTrigger", "s", "bytes_max", _whole(1)),
    _Option("failOnDataLoss", "bs", "fail_on_data_loss", _flag),
    _Option("consistency", "bs", "consistency", _one_of("linearizable", "prefix")),
    _Option("writeId", "w", "write_id", _write_id),
    _Option("timeout", "bsw", "timeout_s", _seconds),
    _Option("pushdown", "bs", "pushdown", _no_pushdown),
)
_BY_NAME: Final = {option.name.lower(): option for option in _OPTIONS}
_KINDS: Final = {"b": "a batch", "s": "a stream", "w": "a sink"}
_REFUSED: Final = {
    "credentialsFile": "does not exist: give the file of a token in servers, as "
    "lognodes://host:port?ca=FILE&token=FILE",
    "path": "is not for lognode: call load() and save() without a path, and give the option log",
}
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which it passes to a sink."""
