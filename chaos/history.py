"""What the clients of a test did and were told, and what was done to the cluster meanwhile.

Jepsen's words: a process is one client that does one thing at a time; it `invoke`s an operation,
which ends `ok`, `fail` (it surely did not happen) or `info` (it may have happened, at any time
from then on, or never). A process whose operation ended `info` is retired: it does nothing more.
Process None is the nemesis. On disk a history is `history.jsonl`, one event a line, in the order
in which things happened.
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
"""`f` of what is no fault but seen of the cluster: `value` is {leaders: {range: node}}."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history. `time` is in nanoseconds since the test began."""

    index: int
    time: int
    process: int | None
    type: Type
    f: str
    """What is done: `append`, `read`, ...; of the nemesis the name of the package."""
    value: Any = None
    """JSON: what was asked, and in the completion also what was answered."""
    error: str | None = None
    node: int | None = None
    """The node that was asked, where one was named."""

    def to_line(self) -> str:
        """One line of JSON, without its end; what is None is left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        kept = {n: v for n, v in fields.items() if v is not None or n == "process"}
        return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Raises ValueError, KeyError or TypeError for a line that is no event."""
        event = cls(**json.loads(line))
        if event.type not in _TYPES:
            raise ValueError(f"type {event.type!r} is none of {', '.join(_TYPES)}")
        return event


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation with its completion. One that never completed is `info` and ended never."""

    index: int
    """Of its invocation among the events."""
    process: int
    f: str
    asked: Any
    """The invocation's value."""
    began: int
    """Nanoseconds since the test began."""
    ended: int | None
    outcome: Outcome
    answer: Any
    """The completion's value; None for an operation that never completed."""
    error: str | None
    node: int | None


@dataclass(frozen=True, slots=True)
class Band:
    """A fault from its begin to its end; `ended` None: it went on until the test ended."""

    package: str
    what: str
    """In words, such as `kill of a minority`."""
    nodes: tuple[int, ...]
    began: int
    ended: int | None


class History:
    """All events of one test, in order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    @classmethod
    def read(cls, path: Path) -> Self:
        """From `history.jsonl`. Raises InvalidArgument, with the line, for what is no history."""
        events = []
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    events.append(Event.from_line(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidArgument(
                        f"{path} line {number} is no event: {error}", what="history"
                    ) from None
        return cls(events)

    def operations(self, *fs: str) -> list[Operation]:
        """Those of clients, in the order of their invocations; `fs`: of these kinds only."""
        return [one for one in pair(self.events) if not fs or one.f in fs]

    def bands(self) -> list[Band]:
        """The faults, in the order of their begins."""
        return list(_bands(self.events))


def pair(events: Iterable[Event]) -> list[Operation]:
    """Operations of clients, by their invocations; raises ValueError if they do not alternate."""
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
                raise ValueError(f"event {event.index}: process {event.process} is not done")
            pending[event.process] = event
        elif (asked := pending.pop(event.process, None)) is None:
            raise ValueError(f"event {event.index}: process {event.process} asked nothing")
        else:
            close(asked, event)
    for asked in pending.values():
        close(asked, None)
    return sorted(found, key=lambda one: one.index)


def _bands(events: Iterable[Event]) -> Iterator[Band]:
    """The nemesis writes two events a fault: `value` is {id, what, nodes, since}, at its end {id}.

    A fault begins when it is begun, not when that is done: a leader that a kill takes away leads
    nothing any more by then.
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
    """Writes the history of a running test, event by event; `now_ns` counts from its begin."""

    def __init__(self, path: Path, now_ns: Callable[[], int]) -> None:
        self.events: list[Event] = []
        self.now_ns: Callable[[], int] = now_ns
        self._file: TextIO = open(path, "w", encoding="utf-8")  # noqa: SIM115

    def record(
        self,
        process: int | None,
        type: Type,  # noqa: A002
        f: str,
        value: Any = None,
        *,
        error: str | None = None,
        node: int | None = None,
    ) -> Event:
        """Add an event that happens now."""
        event = Event(len(self.events), self.now_ns(), process, type, f, value, error, node)
        self.events.append(event)
        self._file.write(event.to_line() + "\n")
        return event

    def close(self) -> History:
        """The history as it is then; nothing more is recorded."""
        self._file.close()
        return History(self.events)
