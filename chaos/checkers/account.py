"""The facts of a history about every record and every key, gathered once for all checkers.

`Sent` is a record with all attempts and outcomes of its producer; `View` is what one operation saw
of one key. Seqs give the order of a key's entries, so that no rule needs a search: with the floors
here, each rule takes n log n.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ..history import History, Operation

_NO_VIEW: Final = frozenset({
    "append", "settle", "decide", "group", "hold", "letters", "register", "unregister", "open",
    "commit", "positions", "restored",
})  # fmt: skip
"""Operations that show no entries."""
Entries = Sequence[Sequence[Any]]
"""[seq, value] each."""


@dataclass(slots=True)
class Sent:
    """One record; a producer may have sent it several times, with the same number."""

    key: str
    value: str
    producer: str
    number: int | None
    place: int
    """The record's place in the operation that sent it first."""
    expect: int | None
    began: int
    """When the record was first sent."""
    operations: list[int] = field(default_factory=list)
    acked: int | None = None
    """When the record was first acknowledged."""
    seq: int | None = None
    """The seq from an acknowledgement, else from a read; None: unknown."""
    refused: bool = True
    """Whether every attempt was answered with an error that says `not_applied`."""

    @property
    def name(self) -> str:
        """The record's name in messages."""
        return f"{self.value} of key {self.key}" + (f" at seq {self.seq}" if self.seq else "")


@dataclass(frozen=True, slots=True)
class View:
    """The entries of a key above seq `after`, as an operation that ended `ok` showed them."""

    operation: Operation
    key: str
    entries: Entries
    after: int = 0
    whole: bool = True
    """Whether the view shows the key to its end at some moment; else there may be more entries."""

    @property
    def last(self) -> int:
        """The seq up to which the operation has seen the key."""
        return self.entries[-1][0] if self.entries else self.after

    @property
    def ended(self) -> int:
        """When the answer arrived."""
        assert self.operation.ended is not None
        return self.operation.ended

    @property
    def linearizable(self) -> bool:
        """Whether the view must show everything that existed at the invocation."""
        if self.operation.f == "final":
            return self.operation.node is None
        return bool(self.operation.asked.get("consistency") == "linearizable")


class Floors:
    """The highest seq of a key that any process was told before a moment."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._seqs: list[int] = []

    @classmethod
    def of(cls, told: Iterable[tuple[int, int]]) -> Self:
        """Build the floors from pairs of time and seq."""
        floors = cls()
        for time, seq in sorted(told):
            if not floors._seqs or seq > floors._seqs[-1]:
                floors._times.append(time)
                floors._seqs.append(seq)
        return floors

    def before(self, time: int) -> int:
        """Return the floor before the time; 0: no entry was known."""
        at = bisect_left(self._times, time)
        return self._seqs[at - 1] if at else 0


class Account:
    """All records and views of one history. Raises ValueError or KeyError for unknown shapes."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.operations = history.operations()
        self.sent: dict[str, Sent] = {}
        """Records by value, in the order of their first attempt."""
        self.acks: list[tuple[Operation, str, int, str]] = []
        """Operation, key, seq and value, of every record acknowledged with its seq."""
        for one in self.operations:
            if one.f == "append":
                self._add_append(one)
        self.views = sorted(self._views(), key=lambda view: view.operation.index)
        self.finals = [one for one in self.operations if one.f == "final" and one.outcome == "ok"]
        self.places: dict[str, dict[int, str]] = {}
        """By key and seq, the value that was told first, by an acknowledgement or a view."""
        self._find_places()
        self.seqs = {key: self._sound(key, places) for key, places in self.places.items()}
        """By key, the seqs of all entries that were sent, ascending."""
        self._floors = self._find_floors()

    def floor(self, key: str, time: int) -> int:
        """Return the highest seq of the key that any process was told before; 0 for none."""
        floors = self._floors.get(key)
        return floors.before(time) if floors is not None else 0

    def between(self, key: str, after: int, last: int) -> list[int]:
        """Return all known seqs of a key in (after, last]."""
        seqs = self.seqs.get(key, [])
        return seqs[bisect_right(seqs, after) : bisect_right(seqs, last)]

    def count_between(self, key: str, after: int, last: int) -> int:
        """Return the number of known seqs of a key in (after, last]."""
        seqs = self.seqs.get(key, [])
        return bisect_right(seqs, last) - bisect_right(seqs, after)

    def final(self) -> Operation | None:
        """The last linearizable read of everything."""
        return next((one for one in reversed(self.finals) if one.node is None), None)

    def node_finals(self) -> list[Operation]:
        """The last read of everything from each node."""
        return list({one.node: one for one in self.finals if one.node is not None}.values())

    def _add_append(self, one: Operation) -> None:
        asked, acked = one.asked, one.outcome == "ok"
        seqs = one.answer["seqs"] if acked else ()
        for place, (key, value) in enumerate(asked["records"]):
            sent = self.sent.get(value)
            if sent is None:
                numbers = asked.get("numbers")
                sent = self.sent[value] = Sent(
                    key, value, asked["producer"], numbers[place] if numbers else None, place,
                    asked.get("expect"), one.began,
                )  # fmt: skip
            elif sent.key != key:
                raise ValueError(f"operation {one.index} sends {value}, which {sent.name} is")
            sent.operations.append(one.index)
            sent.refused = sent.refused and one.outcome == "fail"
            if not acked or one.ended is None:
                continue
            sent.acked = one.ended if sent.acked is None else min(sent.acked, one.ended)
            if seqs[place] is not None:
                self.acks.append((one, key, seqs[place], value))
                sent.seq = seqs[place] if sent.seq is None else sent.seq

    def _views(self) -> Iterator[View]:
        done = [one for one in self.operations if one.outcome == "ok" and one.f not in _NO_VIEW]
        for one in done:
            if one.f == "read":
                yield View(one, one.asked["key"], one.answer["entries"])
            elif one.f == "poll":
                entries, limit = one.answer["entries"], one.asked.get("limit")
                whole = not entries or (limit is not None and len(entries) < limit)
                yield View(one, one.asked["key"], entries, one.asked["after"], whole)
            elif one.f == "take":
                for key, *_, entries in one.answer["batches"]:
                    yield View(one, key, entries, whole=False)
            elif one.f in ("scan", "follow", "read_snapshot"):
                shown = _by_key(one.answer["entries"])
                yield from (View(one, k, e, whole=one.f == "scan") for k, e in shown.items())
        keys = sorted({sent.key for sent in self.sent.values()})
        for one in done:
            if one.f == "scan":
                # A covered key that the answer does not show is shown to be absent.
                shown = _by_key(one.answer["entries"])
                prefix = one.asked["prefix"]
                start = bisect_left(keys, prefix)
                for key in keys[start : bisect_left(keys, prefix + "\U0010ffff")]:
                    if key not in shown:
                        yield View(one, key, ())
            elif one.f == "final":
                shown = one.answer["keys"]
                yield from (View(one, key, entries) for key, entries in shown.items())
                yield from (View(one, key, ()) for key in keys if key not in shown)

    def _find_places(self) -> None:
        for _, key, seq, value in self.acks:
            self.places.setdefault(key, {}).setdefault(seq, value)
        for view in self.views:
            places = self.places.setdefault(view.key, {})
            for seq, value in view.entries:
                if seq not in places:
                    places[seq] = value
                    sent = self.sent.get(value)
                    if sent is not None and sent.seq is None and sent.key == view.key:
                        sent.seq = seq

    def _sound(self, key: str, places: dict[int, str]) -> list[int]:
        found = []
        for seq, value in places.items():
            sent = self.sent.get(value)
            if sent is not None and sent.key == key and not sent.refused:
                found.append(seq)
        return sorted(found)

    def _find_floors(self) -> dict[str, Floors]:
        told: dict[str, list[tuple[int, int]]] = {}
        for sent in self.sent.values():
            if sent.acked is not None and sent.seq:
                told.setdefault(sent.key, []).append((sent.acked, sent.seq))
        for view in self.views:
            # Entries that no process sent set no floor for others.
            if view.entries and self.count_between(view.key, view.last - 1, view.last):
                told.setdefault(view.key, []).append((view.ended, view.last))
        return {key: Floors.of(of_key) for key, of_key in told.items()}


def _by_key(entries: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    """Convert [key, seq, value] each to [seq, value] by key."""
    shown: dict[str, list[Sequence[Any]]] = {}
    for key, seq, value in entries:
        shown.setdefault(key, []).append((seq, value))
    return shown
