"""The facts of a history about a consumer group: deliveries, settled batches, decisions.

A `take` brings batches, each a key with entries under a token. The tokens of a key rise: a batch
with a higher token was handed out later, whatever the times of the answers are. A `settle` has
items (what, key, token, through): an `ack` up to a seq, inclusive, or a `release`, `fail`, `reject`
or `extend`. An `append` with `acks` (key, token, seqs) appends an output for each of these entries,
and acknowledges them in the same step. So without an answer its outputs say whether both happened.
A `decide` of an operator lets a parked key go on (`retry`), or passes entries (`skip`). The last
`group` shows the parked keys and the lag at the end. A `hold` is a look of a slow consumer, which
holds a key of each range, at the lag of the group. `letters` are all dead letters at the end.

A group without an order (`ordering` of a `take` is `none`) hands out single entries, and the tokens
of an entry rise. All rules for keys then hold for entries: each entry is accounted for as a key of
its own, whose name has the seq.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ..history import Operation
from .account import Account

NEVER: Final = 1 << 62
ACK: Final = "ack"
_SETTLES_NS: Final = 15_000_000_000
"""After this time no lease of a dead consumer and no retry is left."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One batch of a key, as a consumer got it."""

    operation: Operation
    key: str
    """The name of the key, or without an order of the entry."""
    token: int
    deliveries: int
    """Which delivery of the first entry the group says that this is."""
    seqs: tuple[int, ...]

    @property
    def arrived(self) -> int:
        """When the consumer had the batch; the leader had handed it out before."""
        assert self.operation.ended is not None
        return self.operation.ended


@dataclass(frozen=True, slots=True)
class Item:
    """One batch of a `settle`."""

    operation: Operation
    what: str
    key: str
    token: int
    seqs: tuple[int, ...]
    """The entries of the batch up to the last one that the item is about."""
    is_sure: bool
    """Whether the consumer was told that the item has happened."""
    is_refused: bool
    """Whether the item surely has not happened."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of an operator about a key, which has happened or may have happened."""

    operation: Operation
    what: str
    key: str
    through: int


@dataclass(frozen=True, slots=True)
class Letter:
    """One entry of the log of dead letters."""

    key: str
    seq: int
    """The seq of the copy."""
    value: str | None
    headers: Mapping[str, str]

    @property
    def of(self) -> int | None:
        """The seq of the entry that failed, as the headers say; None: they do not."""
        text = self.headers.get("dead-letter-seq", "")
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Hold:
    """The time in which a slow consumer held some keys, at the end of a test."""

    last: Operation
    """The last look at the group."""
    in_vain: Operation | None
    """A `take` of another consumer that got nothing, long after the begin of the hold."""

    @property
    def is_alone(self) -> bool:
        """Whether nothing but the held keys was left."""
        lag, held = self.last.answer, self.last.asked["keys"]
        return bool(held) and not lag["waiting"] and lag["in_flight"] <= len(held)


class GroupKey:
    """Everything about one key. `seqs` has the seqs of its entries, ascending."""

    def __init__(self, seqs: list[int]) -> None:
        self.seqs = seqs
        self.deliveries: list[Delivery] = []
        """By token."""
        self.items: list[Item] = []
        self.decisions: list[Decision] = []
        self.acked: dict[int, Item] = {}
        """By seq, the first item that surely acknowledged the entry."""
        self.letters: dict[int, list[Letter]] = {}
        """By seq of the entry, its dead letters."""
        self._done: dict[int, int] = {}
        self._below: list[int] = []
        self._arrivals: list[int] = []
        self._newest: list[Delivery] = []

    def prepare(self) -> None:
        """Gather what the rules ask for, once everything is added."""
        self.deliveries.sort(key=lambda one: one.token)
        for item in self.items:
            if item.what != ACK or item.is_refused:
                continue
            for seq in item.seqs:
                self._may_be_done(seq, item.operation.began)
                if item.is_sure:
                    self.acked.setdefault(seq, item)
        for decision in self.decisions:
            if decision.what == "skip":
                for seq in self.seqs[: bisect_left(self.seqs, decision.through + 1)]:
                    self._may_be_done(seq, decision.operation.began)
        for seq in self.letters:
            self._may_be_done(seq, 0)  # nobody is told when the leader copies
        self._below = list(accumulate((self.done_from(seq) for seq in self.seqs), max, initial=0))
        arrived = sorted(self.deliveries, key=lambda one: one.arrived)
        self._arrivals = [one.arrived for one in arrived]
        self._newest = list(accumulate(arrived, _newer))

    def done_from(self, seq: int) -> int:
        """Return the first time at which the entry may be done: NEVER, if nobody tried."""
        return self._done.get(seq, NEVER)

    def undone(self, below: int, time: int) -> int | None:
        """Return an entry below a seq that surely was not done at a time."""
        end = bisect_left(self.seqs, below)
        if self._below[end] < time:
            return None
        return next(seq for seq in self.seqs[:end] if self.done_from(seq) >= time)

    def newest(self, time: int) -> Delivery | None:
        """Return the delivery with the highest token that had arrived before a time."""
        at = bisect_left(self._arrivals, time)
        return self._newest[at - 1] if at else None

    def later(self, token: int) -> Iterator[Delivery]:
        """Yield the deliveries with a higher token."""
        at = bisect_left(self.deliveries, token + 1, key=lambda one: one.token)
        yield from self.deliveries[at:]

    def _may_be_done(self, seq: int, time: int) -> None:
        self._done[seq] = min(time, self.done_from(seq))


class GroupAccount:
    """All keys of a group. Raises ValueError, KeyError or TypeError for another shape."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.by_entry = any(
            one.f == "take" and one.asked.get("ordering") == "none" for one in account.operations
        )
        """Whether the group has no order."""
        self.keys: dict[str, GroupKey] = {
            name: GroupKey(named)
            for key, seqs in account.seqs.items()
            for name, named in self._named(key, list(seqs)).items()
        }
        self.end: Operation | None = None
        """The last look at the group that was answered."""
        self.copied: Operation | None = None
        """The last read of the dead letters that was answered."""
        self.is_copied_unknown = False
        """Whether every read of the dead letters failed."""
        self.letters: list[Letter] = []
        batches: dict[tuple[str, int], Delivery] = {}
        for one in account.operations:
            if one.f == "take" and one.outcome == "ok":
                for key, delivery in self._deliveries(one):
                    self._key(delivery.key).deliveries.append(delivery)
                    batches.setdefault((key, delivery.token), delivery)
        for one in account.operations:
            if one.f == "settle":
                for item in _items(one, batches):
                    self._key(item.key).items.append(item)
            elif one.f == "append" and one.asked.get("acks"):
                for item in self._items_of_append(one):
                    self._key(item.key).items.append(item)
            elif one.f == "decide" and one.outcome != "fail":
                for decision in self._decisions(one):
                    self._key(decision.key).decisions.append(decision)
            elif one.f == "group" and one.outcome == "ok":
                self.end = one
            elif one.f == "letters":
                self.copied = one if one.outcome == "ok" else self.copied
                self.is_copied_unknown = self.copied is None
        for row in [] if self.copied is None else self.copied.answer["letters"]:
            letter = Letter(*row)
            self.letters.append(letter)
            if letter.of is not None:
                name = self.name(letter.key, letter.of)
                self._key(name).letters.setdefault(letter.of, []).append(letter)
        for of_name in self.keys.values():
            of_name.prepare()

    def name(self, key: str, seq: int) -> str:
        """Return the name of a key, or without an order of its entry with this seq."""
        return f"{key} seq {seq}" if self.by_entry else key

    def parked(self, end: Operation) -> dict[str, int]:
        """Return what the last look shows as parked: names and positions."""
        return {self.name(key, position): position for key, position in end.answer["parked"]}

    def holds(self) -> list[Hold]:
        """Return how slow consumers held keys, each with its answered looks."""
        looks: dict[int, list[Operation]] = {}
        for one in self.account.operations:
            if one.f == "hold" and one.outcome == "ok":
                looks.setdefault(one.process, []).append(one)
        return [
            Hold(of_one[-1], self._in_vain(process, of_one[0].began, of_one[-1].began))
            for process, of_one in looks.items()
        ]

    def _in_vain(self, holder: int, began: int, ended: int) -> Operation | None:
        """Return a `take` of another consumer without batches in the last part of a hold."""
        return next(
            (one for one in self.account.operations
             if one.f == "take" and one.process != holder and one.outcome == "ok"
             and not one.answer["batches"] and one.began > began + _SETTLES_NS
             and one.ended is not None and one.ended < ended),
            None,
        )  # fmt: skip

    def waited(self) -> bool:
        """Whether a consumer asked for batches at the end, and got none.

        Such a consumer has waited for longer than a lease lasts, with nothing left to settle.
        """
        last = {one.process: one for one in self.account.operations if one.f in ("take", "settle")}
        appended = max(
            (one.began for one in self.account.operations if one.f == "append"), default=0
        )
        return any(
            one.f == "take"
            and one.outcome == "ok"
            and not one.answer["batches"]
            and one.began > appended
            for one in last.values()
        )

    def _key(self, name: str) -> GroupKey:
        return self.keys.setdefault(name, GroupKey([]))

    def _named(self, key: str, seqs: list[int]) -> dict[str, list[int]]:
        """Return the names under which entries of a key are accounted for, with their seqs."""
        if not self.by_entry:
            return {key: seqs}
        return {self.name(key, seq): [seq] for seq in seqs}

    def _deliveries(self, one: Operation) -> Iterator[tuple[str, Delivery]]:
        """Yield the batches of a `take`, each after its key."""
        for key, token, deliveries, entries in one.answer["batches"]:
            seqs = tuple(seq for seq, _ in entries)
            yield key, Delivery(one, self.name(key, seqs[0]), token, deliveries, seqs)

    def _decisions(self, one: Operation) -> Iterator[Decision]:
        """Yield what an operator decided. Without an order, a retry is about all parked entries of
        the key, and a skip passes one entry."""
        what, key, through = one.asked["what"], one.asked["key"], one.asked.get("through", 0)
        names = [self.name(key, through)]
        if what == "retry":
            names = list(self._named(key, list(self.account.seqs.get(key, ()))))
        for name in names:
            yield Decision(one, what, name, through)

    def _items_of_append(self, one: Operation) -> Iterator[Item]:
        """Yield what an append acknowledges. Nothing is removed, so after the final read the
        outputs say whether an append without an answer has happened."""
        is_sure, is_refused = one.outcome == "ok", one.outcome == "fail"
        if one.outcome == "info" and self.account.final() is not None:
            sent = self.account.sent
            is_sure = any(sent[value].seq is not None for _, value in one.asked["records"])
            is_refused = not is_sure
        for key, token, seqs in one.asked["acks"]:
            name = self.name(key, seqs[0])
            yield Item(one, ACK, name, token, tuple(seqs), is_sure, is_refused)


def _items(one: Operation, batches: Mapping[tuple[str, int], Delivery]) -> Iterator[Item]:
    refused = set(one.answer["refused"]) if one.outcome == "ok" else set()
    for place, (what, key, token, through) in enumerate(one.asked["items"]):
        batch = batches[key, token]
        seqs = tuple(seq for seq in batch.seqs if seq <= through)
        is_refused = one.outcome == "fail" or place in refused
        is_sure = one.outcome == "ok" and not is_refused
        yield Item(one, what, batch.key, token, seqs, is_sure, is_refused)


def _newer(one: Delivery, other: Delivery) -> Delivery:
    return one if one.token >= other.token else other
