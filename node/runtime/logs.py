"""Structured logs on stderr: JSON lines, or aligned text when stderr is a terminal.

Fields travel in `extra={"fields": {...}}`; the message itself is constant text, so that a log
can be searched by it.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

RESERVED: Final = frozenset({"time", "level", "logger", "message", "exception"})
"""Names that a formatter writes itself. No field of a record may replace them: an alert on
`level` or `message` must see the value of the record."""


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
    """`12:00:00.000 info  message field=value`."""

    def format(self, record: logging.LogRecord) -> str:
        tail = "".join(f" {name}={value}" for name, value in _fields(record))
        text = f"{timestamp(record.created)[11:23]} {record.levelname.lower():7} "
        text += record.getMessage() + tail
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def set_up(level: str = "INFO") -> None:
    """Send all logs of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if sys.stderr.isatty() else JsonFormatter())
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


def timestamp(seconds: float) -> str:
    """Return the time in UTC, ISO 8601 with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
