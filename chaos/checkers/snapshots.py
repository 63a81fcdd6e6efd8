"""Whether a snapshot is a committed prefix of every range, and shows the same each time.

`missing`: entries known before the snapshot was taken lie beyond it (S7). `beyond`: it shows an
entry above its own end of that key. `not-a-prefix`: an entry of the log at or below that end is not
in it. `changed`: two reads of one snapshot differ. `lease-lost`: it cannot be read, though its
lease should still hold. The workload removes nothing. Leases are not judged in a test that sets
wall clocks, which end leases too early or too late.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from ..history import Operation
from ..verdict import Anomaly, Result
from .account import Account

_CLOCK = "clock"
_NS = 1_000_000_000


def snapshots(account: Account, result: Result) -> None:
    """Check all snapshots of a history."""
    taken = {
        one.answer["snapshot"]: _Snapshot(one)
        for one in account.operations
        if one.f == "snapshot" and one.outcome == "ok"
    }
    keys = sorted(account.seqs)
    for snapshot in taken.values():
        result.anomalies += snapshot.misses(account, keys)
    leases_hold = all(band.package != _CLOCK for band in account.history.bands())
    reads = [one for one in account.operations if one.f == "read_snapshot"]
    for one in reads:
        snapshot = taken[one.asked["snapshot"]]
        if one.outcome == "ok":
            result.anomalies += snapshot.shows(account, keys, one)
        elif leases_hold:
            result.anomalies += snapshot.is_lost(one)
    result.counts["snapshots"] = len(taken)
    result.counts["reads of snapshots"] = sum(one.outcome == "ok" for one in reads)


class _Snapshot:
    def __init__(self, taken: Operation) -> None:
        self._taken = taken
        self._starts: list[str] = []
        self._throughs: list[int] = []
        for start, _, through in taken.answer["parts"]:
            self._starts.append(start)
            self._throughs.append(through)
        self._shown: dict[str, tuple[Operation, list[list[Any]]]] = {}
        """By key, the result of its first read."""

    def misses(self, account: Account, keys: list[str]) -> Iterator[Anomaly]:
        """Find keys of which more had been told when the snapshot was requested."""
        for key in keys:
            known, through = account.floor(key, self._taken.began), self._through(key)
            if known > through:
                yield Anomaly(
                    "missing",
                    f"a snapshot goes to seq {through} at key {key}, but seq {known} was "
                    "known before",
                    key, (self._taken.index,), "S7",
                )  # fmt: skip

    def shows(self, account: Account, keys: list[str], one: Operation) -> Iterator[Anomaly]:
        """Find violations by a read of the snapshot."""
        shown: dict[str, list[list[Any]]] = {}
        for key, seq, value in one.answer["entries"]:
            shown.setdefault(key, []).append([seq, value])
        prefix = one.asked["prefix"]
        within = keys[bisect_left(keys, prefix) : bisect_left(keys, prefix + "\U0010ffff")]
        for key in sorted({*within, *shown}):
            entries, through = shown.get(key, []), self._through(key)
            if entries and entries[-1][0] > through:
                message = f"of key {key} shows seq {entries[-1][0]}, beyond its end {through}"
                yield self._anomaly("beyond", message, key, one)
            seqs = {seq for seq, _ in entries}
            lacks = [seq for seq in account.between(key, 0, through) if seq not in seqs]
            if lacks:
                message = f"of key {key} goes to seq {through} and lacks seq {lacks[0]}"
                yield self._anomaly("not-a-prefix", message, key, one)
            first, before = self._shown.setdefault(key, (one, entries))
            if before != entries:
                message = f"of key {key} shows {len(entries)} entries, and had shown {len(before)}"
                if len(entries) == len(before):
                    message = f"of key {key} shows other entries than it had shown"
                yield self._anomaly("changed", message, key, one, first.index)

    def is_lost(self, one: Operation) -> Iterator[Anomaly]:
        """Find a read whose answer says that the lease is over, before it is."""
        lease_ns = self._taken.asked["lease_s"] * _NS
        told = one.error is not None and one.error.startswith("NOT_FOUND")
        if told and one.ended is not None and one.ended - self._taken.began < lease_ns:
            yield self._anomaly("lease-lost", "ended before its time", None, one)

    def _through(self, key: str) -> int:
        return int(self._throughs[bisect_right(self._starts, key) - 1])

    def _anomaly(
        self, name: str, what: str, key: str | None, one: Operation, *also: int
    ) -> Anomaly:
        operations = (self._taken.index, *also, one.index)
        return Anomaly(name, f"a snapshot {what}", key, operations, "S5")
