"""Elements that are added to keys, and reads of whole keys: when does an element stay visible?

The rules are those of Jepsen's set-full. An element is known once its add is acknowledged or a read
shows it. It is `lost` if the last linearizable read of its key that began afterwards does not show
it. Its stable latency is the time from when it is known to the begin of the last read without it, 0
without such a read. Above 0 it comes from prefix reads only; otherwise there is a `stale-read` as
well.
"""

from bisect import bisect_left

from ..verdict import Anomaly, Result
from .account import Account, View

_QUANTILES = (0.5, 0.95, 0.99, 1.0)


def adds(account: Account, result: Result) -> None:
    """Find lost elements, and quantiles of stable latency in milliseconds."""
    by_key: dict[str, list[View]] = {}
    for view in account.views:
        if view.operation.f == "read":
            by_key.setdefault(view.key, []).append(view)
    first_seen = _first_seen(account)
    misses = {key: _Misses(views) for key, views in by_key.items()}
    lasts = {
        key: max(
            (view for view in views if view.linearizable),
            key=lambda view: view.operation.began,
            default=None,
        )
        for key, views in by_key.items()
    }
    latencies_ms = []
    for sent in account.sent.values():
        times = [t for t in (sent.acked, first_seen.get(sent.value)) if t is not None]
        if not times or sent.refused:
            continue
        known = min(times)
        last = lasts.get(sent.key)
        if last is not None and last.operation.began > known and _lacks(last, sent.value):
            result.anomalies.append(
                Anomaly(
                    "lost",
                    f"{sent.name} was known, but the last linearizable read of its key "
                    "lacks the element",
                    sent.key, (*sent.operations, last.operation.index), "S2",
                )
            )  # fmt: skip
        elif sent.seq is not None and sent.key in misses:
            missed = misses[sent.key].last_before(sent.seq)
            latencies_ms.append(max(0, missed - known) / 1e6)
    latencies_ms.sort()
    result.counts["elements"] = len(latencies_ms)
    for quantile in _QUANTILES if latencies_ms else ():
        at = min(len(latencies_ms) - 1, int(quantile * len(latencies_ms)))
        result.counts[f"stable latency ms, {quantile:g}"] = latencies_ms[at]


class _Misses:
    """The begin of the last read that ended below a seq."""

    def __init__(self, views: list[View]) -> None:
        ordered = sorted(views, key=lambda view: view.last)
        self._lasts = [view.last for view in ordered]
        self._began = [0]
        for view in ordered:
            self._began.append(max(self._began[-1], view.operation.began))

    def last_before(self, seq: int) -> int:
        """Return the begin of that read; 0: there is none."""
        return self._began[bisect_left(self._lasts, seq)]


def _first_seen(account: Account) -> dict[str, int]:
    """Return, by value, the end of the first read that shows it."""
    seen: dict[str, int] = {}
    for view in sorted(account.views, key=lambda view: -view.ended):
        if view.operation.f == "read":
            seen.update((value, view.ended) for _, value in view.entries)
    return seen


def _lacks(view: View, value: str) -> bool:
    return all(shown != value for _, shown in view.entries)
