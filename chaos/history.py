"""The events of a test: what the clients did, their answers, and the faults meanwhile.

The words are Jepsen's. A process is one client that does one thing at a time. It `invoke`s an
operation, which ends `ok`, `fail` (it surely did not happen) or `info` (it may have happened, at
any later time, or never). A process whose operation ended `info` is retired: it does nothing more.
Process None is the nemesis. On disk a history is `history.jsonl`, one event a line, in the order of
time.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TextIO

from ..client.protocol.errors import InvalidArgument

Type = Literal["invoke", "ok", "fail", "info"]
Outcome = Literal["ok", "fail", "info"]
_TYPES: Final = ("invoke", "ok", "fail", "info")
CLUSTER: Final = "cluster"
"""The `f` of an observation of the cluster, not a fault: `value` is {leaders: {range: node}}."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history. `time` is in nanoseconds since the start of the test."""

    index: int
    time: int
    process: int | None
    type: Type
    f: str
    """The operation: `append`, `read`, ...; for the nemesis, the name of the package."""
    value: Any = None
    """JSON: the request, and in the completion also the answer."""
    error: str | None = None
    node: int | None = None
    """The node that was asked, if the request names a node."""

    def to_line(self) -> str:
        """Return one line of JSON, without its line end; None values are left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        kept = {n: v for n, v in fields.items() if v is not None or n == "process"}
        return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read an event. Raises ValueError, KeyError or TypeError for any other line."""
        event = cls(**json.loads(line))
        if event.type not in _TYPES:
            raise ValueError(
                f"type {event.type!r} is not allowed; the types are {', '.join(_TYPES)}"
            )
        return event


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation with its completion. Without a completion the operation is `info`, for ever."""

    index: int
    """The index of the invocation among the events."""
    process: int
    f: str
    asked: Any
    """The value of the invocation."""
    began: int
    """Nanoseconds since the start of the test."""
    ended: int | None
    outcome: Outcome
    answer: Any
    """The completion's value; None for an operation that never completed."""
    error: str | None
    node: int | None


@dataclass(frozen=True, slots=True)
class Band:
    """A fault from its begin to its end; `ended` None: it went on until the end of the test."""

    package: str
    what: str
    """A description such as `kill of a minority`."""
    nodes: tuple[int, ...]
    began: int
    ended: int | None


class History:
    """All events of one test, in order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read `history.jsonl`.

        Raises InvalidArgument, with the line, for a file that is not a history.
        """
        events = []
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    events.append(Event.from_line(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidArgument(
                        f"{path} line {number} is not an event: {error}", what="history"
                    ) from None
        return cls(events)

    def operations(self, *fs: str) -> list[Operation]:
        """Return the clients' operations, in the order of their invocations.

        With `fs`, return only these kinds.
        """
        return [one for one in pair(self.events) if not fs or one.f in fs]

    def bands(self) -> list[Band]:
        """Return the faults, in the order of their begins."""
        return list(_bands(self.events))


def pair(events: Iterable[Event]) -> list[Operation]:
    """Pair invocations with completions. Raises ValueError if a process does not alternate them."""
    pending: dict[int, Event] = {}
    found: list[Operation] = []

    def close(asked: Event, end: Event | None) -> None:
        assert asked.process is not None
        outcome: Outcome = "info" if end is None or end.type == "invoke" else end.type
        found.append(
            Operation(
                asked.index, asked.process, asked.f, asked.value, asked.time,
                None if end is None or outcome == "info" else end.time, outcome,
                None if end is None else end.value, None if end is None else end.error, asked.node,
            )
        )  # fmt: skip

    for event in events:
        if event.process is None:
            continue
        if event.type == "invoke":
            if event.process in pending:
                raise ValueError(
                    f"event {event.index}: process {event.process} has not ended its operation "
                    "before"
                )
            pending[event.process] = event
        elif (asked := pending.pop(event.process, None)) is None:
            raise ValueError(
                f"event {event.index}: process {event.process} has no operation to end"
            )
        else:
            close(asked, event)
    for asked in pending.values():
        close(asked, None)
    return sorted(found, key=lambda one: one.index)


def _bands(events: Iterable[Event]) -> Iterator[Band]:
    """Yield the faults. The nemesis writes two events a fault.

    The first has the `value` {id, what, nodes, since}, the last {id}. A fault begins when its
    injection starts, not when the injection is complete: a killed leader leads nothing by then.
    """
    began: dict[int, Event] = {}
    ended: dict[int, int] = {}
    for event in events:
        if event.process is None and event.f != CLUSTER:
            if event.value["id"] in began:
                ended[event.value["id"]] = event.time
            else:
                began[event.value["id"]] = event
    for number, event in began.items():
        yield Band(
            event.f, event.value["what"], tuple(event.value["nodes"]),
            event.value.get("since", event.time), ended.get(number),
        )  # fmt: skip


class Recorder:
    """Writes the history of a running test, event by event; `now_ns` counts from its start."""

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self.events: list[Event] = []
        self.now_ns: Callable[[], int] = now_ns
        self._file: TextIO = open(path, "w", encoding="utf-8")  # noqa: SIM115  `close` closes it

    def record(
        self,
        process: int | None,
        type: Type,  # noqa: A002  the word of Jepsen's histories
        f: str,
        value: Any = None,
        *,
        error: str | None = None,
        node: int | None = None,
    ) -> Event:
        """Record an event that happens now."""
        event = Event(len(self.events), self.now_ns(), process, type, f, value, error, node)
        self.events.append(event)
        self._file.write(event.to_line() + "\n")
        return event

    def close(self) -> History:
        """Return the history so far; nothing more is recorded."""
        self._file.close()
        return History(self.events)
