"""Make the audit records: who asked for what, from where, with what outcome (promise X7).

A record is made for every request for administration, every metadata command, and every refused
client or node. Anybody on the network can cause refusals at any rate. So a refusal is recorded once
for each host and reason, and then counted; the count follows in a record of its own after a minute.
A flood of refusals neither fills a log nor hides the records before it (compare RFC 5424, section
8.6, and the `last message repeated` of syslogd).

A record holds no key, no value and no secret. It has only the numbers and flags of a request, and
the texts whose names are in `TOLD`.

This module does no I/O: `emit` takes the records.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...client.protocol import Operation
from ...client.protocol.errors import LognodeError
from ...partitions import commands

OK: Final = "OK"
CANCELLED: Final = "CANCELLED"
"""The client cancelled the request or its connection ended; the request may have been done."""
INTERNAL: Final = "INTERNAL"
"""A bug ended the request; the request may have been done."""
TOLD: Final = frozenset(
    {"op", "name", "log", "state", "address", "http", "zone", "id", "principal", "cleanup", "verbs",
     "class", "invite", "by"}
)  # fmt: skip
"""Fields whose texts are recorded. They name things, and hold no secret."""
_TEXT_CHARS: Final = 200
_ITEMS: Final = 16
_DEPTH: Final = 2
_HIDDEN: Final = object()
_WINDOW_S: Final = 60.0
"""How long equal refusals are counted and not recorded."""
_REFUSERS_MAX: Final = 1_000
"""The most combinations of principal, host and reason that are counted apart."""
_ELSEWHERE: Final = "others"
_QUIET: Final = frozenset({commands.OPEN_ANONYMOUS, commands.OPEN_NAMED})
"""Commands that every client causes by appending; they administer nothing."""

Record = dict[str, Any]


@dataclass(slots=True)
class _Refusals:
    """Equal refusals since `since`, the first of which was recorded."""

    since: float
    record: Record
    untold: int = 0


class Audit:
    """Makes the records of one node. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], emit: Callable[[Record], None]) -> None:
        self._clock = clock
        self._emit = emit
        self._refusals: dict[tuple[str, str, str], _Refusals] = {}

    async def recorded(
        self, principal: str, address: str, operation: Operation, body: Mapping[str, Any],
        work: Awaitable[dict[str, Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Do the work of a request for administration, and record the request with its outcome."""
        asked = partial(self.asked, principal, address, operation, body)
        try:
            answer = await work
        except LognodeError as error:
            asked(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            asked(None, CANCELLED)
            raise
        except BaseException:
            asked(None, INTERNAL)
            raise
        asked(None)
        return answer

    def asked(
        self, principal: str, address: str, operation: Operation, body: Mapping[str, Any],
        error: LognodeError | None, outcome: str = OK,
    ) -> None:  # fmt: skip
        """Record a request for administration that its handler served or refused.

        Requests that changed nothing are counted like requests that their principal may not make.
        `outcome` is the outcome of a request without an error."""
        record = {
            "event": "request", "operation": operation.name, "principal": principal,
            "address": address, "about": shown(body), **_outcome(error, outcome),
        }  # fmt: skip
        if error is None or error.outcome != "not_applied":
            self._emit(record)
        else:
            self._count(record)

    def commanded(self, node: int, command: Mapping[str, Any], error: LognodeError | None) -> None:
        """Record a node's metadata command that the controller's leader committed or refused.

        Refused commands are counted like refused requests: clients cause them."""
        name = str(command.get("op"))
        if name in _QUIET:
            return
        about = {field: value for field, value in command.items() if field != "op"}
        record = {
            "event": "command", "operation": name, "principal": f"node {node}",
            "address": "", "about": shown(about), **_outcome(error),
        }  # fmt: skip
        if error is None or error.outcome != "not_applied":
            self._emit(record)
        else:
            self._count(record)

    def turned_away(
        self, principal: str, address: str, operation: str, error: LognodeError
    ) -> None:
        """Count a refusal: of a connection before its handshake was done (`operation` is `hello`),
        or of a request that its principal may not make."""
        self._count({
            "event": "refusal", "operation": operation, "principal": principal,
            "address": address, "about": {}, **_outcome(error),
        })  # fmt: skip

    def _count(self, record: Record) -> None:
        """Emit the record, or only count it if an equal record was emitted within a minute."""
        address, now = record["address"], self._clock()
        what = f"{record['event']} {record['operation']} {record['outcome']}"
        kind = (record["principal"], address.rpartition(":")[0] or address, what)
        known = self._refusals.get(kind)
        if known is None and len(self._refusals) >= _REFUSERS_MAX:
            kind = ("", _ELSEWHERE, record["outcome"])
            known = self._refusals.get(kind)
        if known is not None and now - known.since < _WINDOW_S:
            known.untold += 1
            return
        self._refusals[kind] = _Refusals(now, record)
        self._emit({**record, "times": 1 + (0 if known is None else known.untold)})

    def look(self, *, at_end: bool = False) -> None:
        """Emit the counted refusals whose minute is over; call it every few seconds. `at_end`: emit
        all of them, because the node stops."""
        now = self._clock()
        for kind, known in list(self._refusals.items()):
            if now - known.since < _WINDOW_S and not at_end:
                continue
            del self._refusals[kind]
            if known.untold:
                self._emit({**known.record, "times": known.untold})


def shown(body: Mapping[str, Any], depth: int = _DEPTH) -> dict[str, Any]:
    """Return the fields of a request or command that a record may have, bounded in size."""
    found = {}
    for name, value in list(body.items())[:_ITEMS]:
        told = _told(name, value, depth)
        if told is not _HIDDEN:
            found[str(name)[:_TEXT_CHARS]] = told
    return found


def _told(name: object, value: object, depth: int) -> object:
    if type(value) in (int, bool):
        return value
    if type(value) is str and name in TOLD:
        return value[:_TEXT_CHARS]
    if isinstance(value, dict) and depth:
        return shown(value, depth - 1)
    if isinstance(value, list | tuple) and depth and len(value) <= _ITEMS:
        items = [_told(name, item, depth - 1) for item in value]
        return [item for item in items if item is not _HIDDEN] or _HIDDEN
    return _HIDDEN


def _outcome(error: LognodeError | None, outcome: str = OK) -> Record:
    if error is None:
        return {"outcome": outcome}
    return {"outcome": error.code, "message": error.message[:_TEXT_CHARS]}
