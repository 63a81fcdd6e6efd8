"""Promises as clients see them, checked on the history of requests and answers.

Seqs give the order of a key's entries, so no search is needed: everything is linear in the length
of the history. Values are unique: each names its producer and record number. The checks are S4
(order), S5 (no phantom), S7 (reads are not stale), S8 (exactly once), S9 (conditions), S11 (a
refusal is final), and at the end S2 and S3 on every node.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ...partitions.model import Span
from .removed import Removed
from .violation import Violation

State = Literal["open", "acked", "refused", "unknown", "lost"]
"""lost: acknowledged, and in a loss that a recovery accepted."""
_UNSETTLED: Final = ("open", "unknown")


@dataclass(slots=True)
class Append:
    """One record. `floor`: the highest seq of its key known to any client at its first attempt."""

    key: bytes
    value: bytes
    producer: int
    number: int
    floor: int
    expect: int = -1
    """The condition: the key's last seq, 0 for none, -1 for no condition."""
    refusal_may_be_lost: bool = False
    """Whether the record was sent before an accepted loss."""
    state: State = "open"
    seq: int | None = None


@dataclass(slots=True)
class Read:
    """A read of a whole key, under way.

    It must show the key up to `floor` at least, unless that was removed, nothing below `trimmed`,
    and at most one entry below `compacted`.
    """

    key: bytes
    floor: int
    trimmed: int = 0
    compacted: int = 0
    losses: int = 0
    """The number of losses when the read began."""


class Loss(NamedTuple):
    """An accepted loss of entries with these keys, and seqs from `since` to before `until`.

    Entries that were `kept` are not lost.
    """

    span: Span
    since: int
    until: int
    kept: Mapping[tuple[bytes, int], bytes]
    floors: Mapping[bytes, int]
    """Per key the highest known seq that is left."""

    def takes(self, key: bytes, seq: int) -> bool:
        """Whether an entry at this place may be gone."""
        return key in self.span and self.since <= seq < self.until


@dataclass(slots=True)
class History:
    """All requests and answers of clients.

    Methods raise Violation when an answer breaks a promise.
    """

    appends: dict[bytes, Append] = field(default_factory=dict)
    floors: dict[bytes, int] = field(default_factory=dict)
    places: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    removed: Removed = field(default_factory=Removed)
    acked: int = 0
    reads: int = 0
    leased: int = 0
    """Reads through leases."""
    lost: int = 0
    """Acknowledged entries that are gone by accepted losses."""
    _losses: list[Loss] = field(default_factory=list)

    def invoke(
        self, key: bytes, value: bytes, *, producer: int, number: int, expect: int = -1
    ) -> None:
        """Note that a client sends a record for the first time; a producer's numbers rise."""
        floor = self.floors.get(key, 0)
        self.appends[value] = Append(key, value, producer, number, floor, expect)

    def ack(self, value: bytes, seq: int | None) -> None:
        """Note an acknowledgement.

        `seq` is None for a duplicate whose seq the cluster no longer knows.
        """
        append = self.appends[value]
        if seq is not None and self._is_lost(append.key, seq, value):
            self._told_late(append)
            return
        if append.state == "refused":
            raise Violation("S11", "acknowledged after it was refused for good", value=value)
        if append.state != "acked":
            self.acked += 1
        append.state = "acked"
        if seq is None:
            return
        if append.seq not in (None, seq):
            raise Violation("S6", "a record has two seqs", value=value, seqs=(append.seq, seq))
        if seq <= append.floor:
            raise Violation("S4", "appended after an acknowledged entry, but before it in order",
                            value=value, seq=seq, floor=append.floor)  # fmt: skip
        append.seq = seq
        self._place(append.key, seq, value)
        self._raise_floor(append.key, seq)

    def give_up(self, value: bytes) -> None:
        """Note that the client stops asking: the record is in the log at most once."""
        append = self.appends[value]
        if append.state == "open":
            append.state = "unknown"

    def refuse(self, value: bytes) -> None:
        """Note that the record is never in the log.

        Either the cluster answered that its condition did not hold, or the client gave up and knows
        that no attempt was applied.
        """
        append = self.appends[value]
        if append.state == "acked":
            raise Violation("S11", "refused for good after it was acknowledged", value=value)
        append.state = "unknown" if append.refusal_may_be_lost else "refused"

    def invoke_read(self, key: bytes, seen: int | None = None) -> Read:
        """Note the start of a read.

        A linearizable read must show everything known of the key by now. A prefix read must show
        what its session has `seen`: the highest seq of the key in earlier reads.
        """
        losses = len(self._losses)
        if seen is not None:
            return Read(key, self._left_of(key, seen), losses=losses)
        trimmed, compacted = self.removed.trimmed(key), self.removed.compacted(key)
        return Read(key, self.floors.get(key, 0), trimmed, compacted, losses)

    def expected(self, key: bytes) -> int:
        """Return the key's last known seq, for a condition; 0: the key has no known entry."""
        last = self.floors.get(key, 0)
        return 0 if last < self.removed.trimmed(key) else last

    def complete_read(
        self, read: Read, last_seq: int, entries: Sequence[tuple[int, bytes]]
    ) -> None:
        """Check the answer: the key's last seq and its entries, (seq, value) in order."""
        self.reads += 1
        if any(read.key in loss.span for loss in self._losses[read.losses :]):
            return  # the answer may be from before or after a loss
        gone = not last_seq and self.removed.may_be_trimmed(read.key, read.floor)
        if last_seq < read.floor and not gone:
            raise Violation("S7", "a stale read", key=read.key, last=last_seq, floor=read.floor)
        self._require_removed(read, entries)
        before = 0
        for seq, value in entries:
            if seq <= before:
                raise Violation("S4", "a read's seqs do not rise", key=read.key, seq=seq)
            before = seq
            append = self.appends.get(value)
            if append is None or append.key != read.key:
                raise Violation(
                    "S5", "a read shows an entry that no client appended", key=read.key, seq=seq
                )
            self._place(read.key, seq, value)
        if before != last_seq:
            raise Violation("S5", "last seq is not that of the last entry", key=read.key,
                            last=last_seq, entry=before)  # fmt: skip
        self._raise_floor(read.key, last_seq)

    def owed(self, key: bytes, through: int) -> list[tuple[int, bytes]]:
        """Return the entries of a key that a lease surely holds, at its acknowledgement.

        They are all known entries up to its seq that no removal can have taken before. An append
        without a known outcome may have a later seq, for which a compaction took what is before.
        """
        known = sorted(seq for other, seq in self.places if other == key)
        later = known
        if any(each.key == key and each.state in _UNSETTLED for each in self.appends.values()):
            later = [*known, *(seq + 1 for seq in known)]
        return [
            (seq, self.places[key, seq])
            for seq in known
            if seq <= through and not self.removed.may_be_gone(key, seq, later)
        ]

    def complete_leased(
        self,
        key: bytes,
        through: int,
        owed: Sequence[tuple[int, bytes]],
        entries: Sequence[tuple[int, bytes]],
    ) -> None:
        """Check the entries that a read through a lease showed."""
        self.leased += 1
        if missing := sorted(set(owed) - set(entries)):
            raise Violation("x14", "a lease does not hold", key=key, through=through,
                            missing=missing)  # fmt: skip
        if entries and entries[-1][0] > through:
            raise Violation("x14", "a read through a lease goes beyond it", key=key,
                            through=through, last=entries[-1])  # fmt: skip

    def final(
        self,
        node: int,
        contents: Mapping[bytes, Sequence[tuple[int, bytes]]],
        covers: Callable[[bytes], bool] = lambda _: True,
    ) -> None:
        """Check what one node holds after everything healed: each key's (seq, value) in order.

        `covers` says whether the node has the range of a key.
        """
        seen: dict[bytes, tuple[bytes, int]] = {}
        for key, entries in contents.items():
            before = 0
            numbers: dict[int, int] = {}
            for seq, value in entries:
                if seq <= before:
                    raise Violation("S4", "a node's seqs do not rise", node=node, key=key, seq=seq)
                append = self.appends.get(value)
                if append is None or append.key != key:
                    raise Violation(
                        "S5", "a node holds an entry that no client appended", node=node, seq=seq
                    )
                if append.state == "refused":
                    raise Violation("S11", "refused for good, yet applied", node=node, value=value)
                if append.expect not in (-1, before) and not self._lacks(append, before, seq):
                    raise Violation("S9", "a condition did not hold", node=node, value=value,
                                    expect=append.expect, last=before)  # fmt: skip
                before = seq
                if value in seen:
                    raise Violation("S8", "a record was applied twice", node=node, value=value,
                                    seqs=(seen[value][1], seq))  # fmt: skip
                in_order = numbers.get(append.producer, 0) < append.number
                if not in_order and append.state != "lost":  # else a late request
                    raise Violation("S4", "a producer's records of a key out of order", node=node,
                                    key=key, number=append.number)  # fmt: skip
                numbers[append.producer] = append.number
                seen[value] = (key, seq)
                self._place(key, seq, value)
            self._require_removed(self.invoke_read(key), entries)
        known: dict[bytes, list[int]] = {}
        for key, seq in self.places:
            known.setdefault(key, []).append(seq)
        for value, append in self.appends.items():
            if append.state != "acked" or value in seen or not covers(append.key):
                continue
            key, place = append.key, append.seq
            if place is None and self.removed.touches(key):
                continue  # its seq was never told
            if place is None or not self.removed.may_be_gone(key, place, known[key]):
                raise Violation("S2", "an acknowledged entry is lost", node=node, value=value,
                                seq=place)  # fmt: skip
        for (key, seq), value in self.places.items():
            gone = seen.get(value) != (key, seq) and covers(key)
            if gone and not self.removed.may_be_gone(key, seq, known[key]):
                raise Violation("S5", "an entry that was read is gone", node=node, key=key,
                                seq=seq)  # fmt: skip

    # Losses.

    def lose(
        self,
        span: Span,
        since: int,
        until: int,
        contents: Mapping[bytes, Sequence[tuple[int, bytes]]],
    ) -> int:
        """Accept a loss: a range goes on with these contents.

        Returns how many acknowledged entries are lost. The lost entries have seqs from `since` on;
        no new entry gets a seq below `until`. Nothing else is forgiven: entries with lower seqs or
        other keys must be there as before.
        """
        kept = {(key, seq): value for key, told in contents.items() for seq, value in told}
        loss = Loss(span, since, until, kept, {})
        self._losses.append(loss)
        lost = 0
        for place, value in list(self.places.items()):
            if self._is_lost(*place, value):
                del self.places[place]
                self.appends[value].seq = None
        left: dict[bytes, int] = {}
        for key, seq in self.places:
            left[key] = max(left.get(key, 0), seq)
        for key, floor in self.floors.items():
            if loss.takes(key, floor):
                self.floors[key] = left.get(key, 0)
        loss = loss._replace(floors={key: self.floors[key] for key in self.floors if key in span})
        self._losses[-1] = loss
        there = set(kept.values())
        for value, append in self.appends.items():
            if append.key not in span:
                continue
            append.floor = self._left_of(append.key, append.floor)
            append.refusal_may_be_lost = True
            if append.state == "refused":
                append.state = "unknown"
            elif append.state == "acked" and append.seq is None and value not in there:
                append.state = "lost"
                lost += 1
        self.lost += lost
        return lost

    def _is_lost(self, key: bytes, seq: int, value: bytes) -> bool:
        """Whether the entry was at a lost place, and is not what is there now."""
        return any(
            loss.takes(key, seq) and loss.kept.get((key, seq)) != value for loss in self._losses
        )

    def _told_late(self, append: Append) -> None:
        """Note an entry whose acknowledgement came from members that are lost."""
        if append.state in ("open", "unknown", "refused"):
            append.state = "lost"
            self.acked += 1
            self.lost += 1

    def _left_of(self, key: bytes, seq: int) -> int:
        """Return the highest seq of the key, up to this one, that no loss has taken."""
        for loss in self._losses:
            if loss.takes(key, seq):
                seq = min(seq, loss.floors.get(key, 0))
        return seq

    def _require_removed(self, read: Read, entries: Sequence[tuple[int, bytes]]) -> None:
        """Check that the read shows every removal that was acknowledged before the read began."""
        first = entries[0][0] if entries else read.trimmed
        second = entries[1][0] if len(entries) > 1 else read.compacted
        if first < read.trimmed or second < read.compacted:
            raise Violation("S7", "a removed entry is there", key=read.key, entries=entries[:2],
                            trimmed=read.trimmed, compacted=read.compacted)  # fmt: skip

    def _lacks(self, append: Append, before: int, seq: int) -> bool:
        """Whether the condition may have held when it was checked.

        The entry that it names was the key's last, and is gone: no entry of the key is before this
        one.
        """
        if before or append.expect <= 0:
            return False
        return self.removed.may_be_gone(append.key, append.expect, [seq])

    def _place(self, key: bytes, seq: int, value: bytes) -> None:
        if self._losses and self._is_lost(key, seq, value):
            raise Violation("S5", "an entry that was lost is shown", key=key, seq=seq, value=value)
        if self.places.setdefault((key, seq), value) != value:
            raise Violation("S3", "one key and seq, two values", key=key, seq=seq,
                            values=(self.places[key, seq], value))  # fmt: skip
        append = self.appends[value]
        if append.seq is None:
            append.seq = seq
        elif append.seq != seq:
            raise Violation("S8", "one record at two seqs", value=value, seqs=(append.seq, seq))

    def _raise_floor(self, key: bytes, seq: int) -> None:
        if seq > self.floors.get(key, 0):
            self.floors[key] = seq
