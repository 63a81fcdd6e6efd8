"""Whether an append says `seen` of a view only after the view has acknowledged the entry (G7).

`seen-too-soon`: an append said that a view has seen an entry, and nobody had tried to acknowledge
the entry, to skip it or to commit a position above it before the call returned. `seen-again`: the
group handed such an entry out under a token that is newer than those of all attempts, so none of
them counted. `seen-lost`: the cursor was shown at or below such an entry later. `waited-long`: an
append took longer than it may. That `seen` is false is always allowed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..history import Band, Operation
from ..verdict import Anomaly, Result
from .account import Account, Floors
from .group_account import ACK, NEVER, GroupAccount, GroupKey

GROUP: Final = "group"
CURSOR: Final = "cursor"
_SLACK_NS: Final = 3_000_000_000
"""How long an append may take beyond its limits, on a busy machine."""
_CALM_NS: Final = 20_000_000_000
"""How long after a fault nodes may still be starting, so that an append itself takes time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry that a view had seen, as the answer to its append says."""

    operation: Operation
    key: str
    seq: int

    @property
    def told(self) -> int:
        """When the answer arrived."""
        assert self.operation.ended is not None
        return self.operation.ended


def views(account: Account, result: Result) -> None:
    """Check the appends of a history that waited for views."""
    waited = [one for one in account.operations if one.f == "append" and one.asked.get("wait_for")]
    told = [(view, is_seen) for one in waited if one.outcome == "ok"
            for each in one.answer["seen"] for view, is_seen in each.items()]  # fmt: skip
    seen = Counter(view for view, is_seen in told if is_seen)
    for view in (CURSOR, GROUP):
        if not seen[view]:
            result.unknown.append(f"no append was seen by the {view}")
        result.counts[f"entries seen by the {view}"] = seen[view]
    result.counts["entries not seen in time"] = len(told) - seen.total()
    result.anomalies += _by_group(account, list(_seen_by(GROUP, waited)))
    result.anomalies += _by_cursor(account, list(_seen_by(CURSOR, waited)))
    result.anomalies += _long(waited, account.history.bands())


def _seen_by(view: str, waited: Iterable[Operation]) -> Iterator[Seen]:
    for one in waited:
        if one.outcome != "ok":
            continue
        rows = zip(one.asked["records"], one.answer["seqs"], one.answer["seen"], strict=True)
        for (key, _), seq, seen in rows:
            if seq is not None and seen.get(view):
                yield Seen(one, key, seq)


def _by_group(account: Account, seen: Sequence[Seen]) -> Iterator[Anomaly]:
    keys = GroupAccount(account).keys
    for one in seen:
        key = keys.get(one.key) or GroupKey([])
        if key.done_from(one.seq) >= one.told:
            yield _too_soon(one, GROUP)
            continue
        if any(each.what == "skip" and one.seq <= each.through for each in key.decisions):
            continue
        newest = max(
            item.token for item in key.items
            if item.what == ACK and not item.is_refused and one.seq in item.seqs
            and item.operation.began < one.told
        )  # fmt: skip
        again = next((each for each in key.later(newest) if one.seq in each.seqs), None)
        if again is not None:
            message = (
                f"seq {one.seq} of key {one.key} was delivered under token {again.token}, though"
                f" an append had said that the group has seen the entry, under token {newest} at"
                " the latest"
            )
            yield _anomaly("seen-again", message, one, again.operation)


def _by_cursor(account: Account, seen: Sequence[Seen]) -> Iterator[Anomaly]:
    tried = _Tried(one for one in account.operations if one.f == "commit")
    for one in seen:
        if tried.before(one.key, one.told) <= one.seq:
            yield _too_soon(one, CURSOR)
    newest: dict[str, list[Seen]] = {}
    for one in seen:
        newest.setdefault(one.key, []).append(one)
    for looked in account.operations:
        if looked.f == "positions" and looked.outcome == "ok":
            yield from _lost(looked, newest)


def _lost(looked: Operation, seen: dict[str, list[Seen]]) -> Iterator[Anomaly]:
    """Find keys whose position is not above the entries that the cursor had seen."""
    own = dict(looked.answer["keys"])
    spans = sorted(looked.answer["spans"], key=lambda row: row[0])
    starts = [start for start, _, _ in spans]
    for key, of_key in seen.items():
        last = max((one for one in of_key if one.told < looked.began), default=None,
                   key=lambda one: one.seq)  # fmt: skip
        at = bisect_left(starts, key + "\0") - 1
        _, end, next_ = spans[at] if at >= 0 else ("", "", 0)
        position = max(own.get(key, 0), next_ if end is None or key < end else 0)
        if last is not None and position <= last.seq:
            message = (
                f"the cursor is at {position} for key {key}, though an append had said that the"
                f" cursor has seen seq {last.seq}"
            )
            yield _anomaly("seen-lost", message, last, looked)


class _Tried:
    """The positions that commits have tried to keep. A refused commit may have kept some."""

    def __init__(self, commits: Iterable[Operation]) -> None:
        rows: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
        for one in commits:
            for start, end, next_ in one.asked["spans"]:
                rows.setdefault((start, end), []).append((one.began, next_))
        self._floors = {span: Floors.of(of_span) for span, of_span in rows.items()}

    def before(self, key: str, time: int) -> int:
        """Return the highest position of the key that was tried before the time."""
        return max(
            (floors.before(time) for (start, end), floors in self._floors.items()
             if start <= key and (end is None or key < end)),
            default=0,
        )  # fmt: skip


def _long(waited: Iterable[Operation], bands: Sequence[Band]) -> Iterator[Anomaly]:
    """Find appends that took longer than their timeout, if there were faults, and their wait."""
    for one in waited:
        if one.ended is None:
            continue
        asked: dict[str, Any] = one.asked
        is_calm = not any(
            band.began < one.ended and one.began < (band.ended or NEVER) + _CALM_NS
            for band in bands
        )
        most_ms = asked["wait_ms"] + (0 if is_calm else asked["timeout_ms"])
        took = one.ended - one.began
        if took > most_ms * 1_000_000 + _SLACK_NS:
            message = (
                f"the append took {took / 1e9:.1f} s; it may take {most_ms} ms and"
                f" {_SLACK_NS // 10**9} s"
            )
            key = asked["records"][0][0]
            yield Anomaly("waited-long", message, key, (one.index,), "G7")


def _too_soon(one: Seen, view: str) -> Anomaly:
    message = (
        f"the append of seq {one.seq} of key {one.key} said that the {view} has seen the entry,"
        " before anybody had tried to acknowledge it"
    )
    return _anomaly("seen-too-soon", message, one)


def _anomaly(name: str, message: str, one: Seen, *others: Operation) -> Anomaly:
    indexes = tuple(each.index for each in (one.operation, *others))
    return Anomaly(name, message, one.key, indexes, "G7")
