"""Structured logs on stderr: JSON lines, logfmt, or aligned text.

Fields travel in `extra={"fields": {...}}`; the message itself is constant text, so that a log
can be searched by it.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

RESERVED: Final = frozenset({"time", "level", "logger", "message", "exception"})
"""Names that a formatter writes itself. No field of a record may replace them: an alert on
`level` or `message` must see the value of the record."""
_NOT_IN_NAMES: Final = re.compile(r'[\s="\x00-\x1f\x7f]')
_BARE: Final = re.compile(r'[^\s="\\\x00-\x1f\x7f-\xa0\u2028\u2029]+')
"""Values that need no quotes."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields, then exception."""

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        body.update(_fields(record))
        if record.exc_info:
            body["exception"] = self.formatException(record.exc_info)
        return json.dumps(body, default=str)


class TextFormatter(logging.Formatter):
    """`12:00:00.000 info  message field=value`, with the fields of logfmt."""

    def format(self, record: logging.LogRecord) -> str:
        tail = "".join(f" {_name(name)}={_value(value)}" for name, value in _flat(record))
        text = f"{timestamp(record.created)[11:23]} {record.levelname.lower():7} "
        text += record.getMessage() + tail
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class LogfmtFormatter(logging.Formatter):
    """`time=... level=info logger=... message="..." field=value`, one line for each record."""

    def format(self, record: logging.LogRecord) -> str:
        pairs: list[tuple[str, Any]] = [
            ("time", timestamp(record.created)), ("level", record.levelname.lower()),
            ("logger", record.name), ("message", record.getMessage()), *_flat(record),
        ]  # fmt: skip
        if record.exc_info:
            pairs.append(("exception", self.formatException(record.exc_info)))
        return " ".join(f"{_name(name)}={_value(value)}" for name, value in pairs)


def _name(name: str) -> str:
    """Return the name of a field without the characters that end a name in logfmt."""
    return _NOT_IN_NAMES.sub("_", name) or "_"


def _value(value: Any) -> str:
    """Return a value in logfmt: as it is, or in quotes with the escapes of JSON. A list is JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        value = json.dumps(value, default=str, separators=(",", ":"))
    text = value if isinstance(value, str) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)


FORMATS: Final = ("auto", "json", "logfmt", "text")
"""The formats of a log; `auto` is `text` on a terminal and `json` elsewhere."""


def set_up(level: str = "INFO", form: str = "auto") -> None:
    """Send all logs of the process to stderr, in one of `FORMATS`."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    made = {"json": JsonFormatter, "logfmt": LogfmtFormatter, "text": TextFormatter}
    handler.setFormatter(made[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the record. A field with a reserved name gets the prefix `field_`."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    taken = {*RESERVED, *fields}
    for name, value in fields.items():
        shown = name
        if name in RESERVED:
            while shown in taken:
                shown = f"field_{shown}"
            taken.add(shown)
        yield shown, value


def _flat(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the record, and in place of a mapping its own fields, whose names begin
    with the name of the mapping: `record.principal`."""
    waiting = [iter(list(_fields(record)))]
    while waiting:
        for name, value in waiting[-1]:
            if isinstance(value, Mapping):
                waiting.append(iter([(f"{name}.{of}", each) for of, each in value.items()]))
                break
            yield name, value
        else:
            waiting.pop()


def timestamp(seconds: float) -> str:
    """Return the time in UTC, ISO 8601 with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
