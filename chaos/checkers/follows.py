"""Whether each follower gets every entry that it follows once, in order, to the end.

`repeat`: an entry arrives again. `reorder`: it arrives after a later entry of its key. `skip`: it
never arrives, and a later entry of its key does. `stall`: the follower ends behind the final read.
`misrouted`: an entry of a key that it does not follow. A position is exact, so these rules hold
through reconnects and new clients as well. Only the order within a key is promised.
"""

from collections.abc import Iterator

from ..history import Operation
from ..verdict import Anomaly, Result
from .account import Account


def follows(account: Account, result: Result) -> None:
    """Check all followers of a history."""
    followers: dict[str, list[Operation]] = {}
    for one in account.operations:
        if one.f == "follow":
            followers.setdefault(one.asked["follower"], []).append(one)
    end = account.final()
    for name, operations in followers.items():
        follower = _Follower(name, operations)
        result.anomalies += follower.deliveries()
        result.anomalies += follower.skips(account)
        if end is None:
            continue
        stalls = list(follower.stalls(end))
        last = operations[-1]
        if stalls and last.error is not None:
            result.unknown.append(
                f"follower {name} ended behind the final read, with an error: {last.error}"
            )
        else:
            result.anomalies += stalls
    result.counts["followers"] = len(followers)


class _Follower:
    def __init__(self, name: str, operations: list[Operation]) -> None:
        self._name = name
        self._operations = operations
        self._got: dict[str, dict[int, int]] = {}
        """By key and seq, the operation that brought the entry."""
        self._last: dict[str, int] = {}
        """The highest seq that arrived, by key."""

    def deliveries(self) -> Iterator[Anomaly]:
        """Find violations by single deliveries."""
        for one in self._operations:
            if one.outcome != "ok":
                continue
            for key, seq, _ in one.answer["entries"]:
                got, last = self._got.setdefault(key, {}), self._last.get(key, 0)
                if not _follows(one, key):
                    yield self._anomaly("misrouted", f"gets seq {seq} of another key", key, one)
                elif seq in got:
                    message = f"gets seq {seq} of key {key} again"
                    yield self._anomaly("repeat", message, key, one, got[seq])
                elif seq < last:
                    message = f"gets seq {seq} of key {key} after seq {last}"
                    yield self._anomaly("reorder", message, key, one, got[last])
                got.setdefault(seq, one.index)
                self._last[key] = max(seq, last)

    def skips(self, account: Account) -> Iterator[Anomaly]:
        """Find entries that never arrived, though later entries of the key did."""
        for key, last in self._last.items():
            got = self._got[key]
            missing = [seq for seq in account.between(key, 0, last) if seq not in got]
            if missing and _follows(self._operations[0], key):
                after = min(seq for seq in got if seq > missing[0])
                yield Anomaly(
                    "skip",
                    f"follower {self._name} gets seq {after} of key {key}, but never"
                    f" {len(missing)} entries before its last, such as seq {missing[0]}",
                    key, (got[after],), "S4",
                )  # fmt: skip

    def stalls(self, end: Operation) -> Iterator[Anomaly]:
        """Find keys of which the final read shows more entries at the end."""
        last_one = self._operations[-1]
        for key, entries in end.answer["keys"].items():
            last = self._last.get(key, 0)
            if entries and _follows(last_one, key) and entries[-1][0] > last:
                message = (
                    f"ends at seq {last} of key {key}, whose last entry has seq {entries[-1][0]}"
                )
                yield self._anomaly("stall", message, key, last_one, end.index, promise="L2")

    def _anomaly(
        self, name: str, what: str, key: str, one: Operation, *also: int, promise: str = "S4"
    ) -> Anomaly:
        return Anomaly(name, f"follower {self._name} {what}", key, (*also, one.index), promise)


def _follows(one: Operation, key: str) -> bool:
    what, target = one.asked["what"], one.asked["target"]
    return what == "log" or (key == target if what == "key" else key.startswith(target))
