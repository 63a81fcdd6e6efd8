"""Histories of other systems, as text: registers of Jepsen's etcd test, and key-value stores.

A line is an event, and its number is its time. `:invoke` begins an operation, `:ok` ends it.
`:fail` says that the operation did not happen. `:info`, or no end, says that it may have happened
at any later time. A read that ended without an answer or a refusal is ignored.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..client.protocol.errors import InvalidArgument
from .checkers.wgl import Act, Call, shorten

_REGISTER: Final = re.compile(
    r"INFO\s+jepsen\.util\s+-\s+(?P<process>\d+|:nemesis)\s+:(?P<type>invoke|ok|fail|info)"
    r"\s+:(?P<f>[\w-]+)\s*(?P<value>.*)"
)
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_STORE: Final = re.compile(
    r"\{:process (?P<process>\d+), :type :(?P<type>invoke|ok|fail|info), :f :(?P<f>\w+), "
    rf":key (?P<key>{_TEXT}), :value (?P<value>nil|{_TEXT})\}}"
)
ONE_KEY: Final = "register"
"""The key of a history that has only one key."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    process: str
    type: str
    f: str
    key: str
    value: Any


def register(lines: Iterable[str]) -> dict[str, list[Call]]:
    """Return calls by key, from lines `INFO jepsen.util - PROCESS :TYPE :read|:write|:cas VALUE`.

    Raises InvalidArgument with the line that cannot be read.
    """
    return _calls(_lines(lines, _REGISTER, _register_value), _register_act)


def store(lines: Iterable[str]) -> dict[str, list[Call]]:
    """Return calls by key, from `{:process N, :type :T, :f :get|:put|:append, :key K, :value V}`.

    Raises InvalidArgument with the line that cannot be read.
    """
    return _calls(_lines(lines, _STORE, _store_value), _store_act)


def _lines(
    lines: Iterable[str], shape: re.Pattern[str], value_of: Callable[[str, str, str], Any]
) -> Iterator[_Line]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = shape.fullmatch(line.strip())
        if found is None:
            raise _unreadable(number, f"{line.strip()[:80]!r} is not an event of this format")
        parts = found.groupdict()
        if parts["process"] == ":nemesis":
            continue
        try:
            value = value_of(parts["f"], parts["type"], parts["value"])
        except (ValueError, KeyError):
            raise _unreadable(
                number, f"{parts['value']!r} is not a value of :{parts['type']} :{parts['f']}"
            ) from None
        key = json.loads(parts["key"]) if "key" in parts else ONE_KEY
        yield _Line(number, parts["process"], parts["type"], parts["f"], key, value)


def _register_value(f: str, kind: str, text: str) -> Any:
    """Parse nil, a number, or two numbers for cas; a word such as :timed-out replaces a value."""
    if text.startswith(":") and kind in ("fail", "info"):
        return None
    if f == "cas":
        found = re.fullmatch(r"\[(-?\d+) (-?\d+)\]", text)
        if found is None:
            raise ValueError(text)
        return int(found[1]), int(found[2])
    if f not in ("read", "write"):
        raise ValueError(f)
    return None if text == "nil" and f == "read" else int(text)


def _register_act(asked: _Line, end: _Line | None) -> Act:
    if asked.f == "read":
        return "read", end.value if end is not None else None
    return ("write", asked.value) if asked.f == "write" else ("cas", *asked.value)


def _store_value(f: str, kind: str, text: str) -> str | None:
    if f not in ("get", "put", "append"):
        raise ValueError(f)
    if text == "nil":
        if f != "get" and kind == "invoke":
            raise ValueError(text)
        return None
    value: str = json.loads(text)
    return value


def _store_act(asked: _Line, end: _Line | None) -> Act:
    # A key that was never put reads as nil in some stores, and as an empty value in others.
    return asked.f, (end.value or "") if asked.f == "get" and end is not None else asked.value


def _calls(
    lines: Iterable[_Line], act: Callable[[_Line, _Line | None], Act]
) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    pending: dict[str, _Line] = {}

    def add(asked: _Line, end: _Line | None) -> None:
        """Add a call; with `end` None it may or may not have happened."""
        done = act(asked, end)
        shown = " ".join("nil" if part is None else shorten(str(part)) for part in done)
        until = f"to {end.number}" if end is not None else "on, without an answer"
        calls.setdefault(asked.key, []).append(
            Call(
                asked.number, None if end is None else end.number, done,
                f"{shown} of process {asked.process} (line {asked.number} {until})", asked.number,
            )
        )  # fmt: skip

    for line in lines:
        if line.type == "invoke":
            if line.process in pending:
                raise _unreadable(
                    line.number, f"process {line.process} has not ended its operation before"
                )
            pending[line.process] = line
            continue
        asked = pending.pop(line.process, None)
        if asked is None or (asked.f, asked.key) != (line.f, line.key):
            raise _unreadable(line.number, f"process {line.process} did not ask for this operation")
        if line.type != "fail":
            add(asked, line if line.type == "ok" else None)
    for asked in pending.values():
        add(asked, None)
    return calls


def _unreadable(number: int, why: str) -> InvalidArgument:
    return InvalidArgument(f"line {number}: {why}", what="history")
