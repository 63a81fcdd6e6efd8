"""How callers that compete for the same keys are served: how long they wait, in which order."""

import asyncio
from collections import defaultdict
from typing import Any

Caller = asyncio.Task[Any] | None


class Fairness:
    """Collects the calls of a run. A caller has one call at a time, and repeats it until the caller
    is served. `in_order`: also collect the order per key, which takes memory for each success."""

    def __init__(self, *, in_order: bool) -> None:
        self._since: dict[Caller, float] = {}
        """The beginning of the present call of each caller."""
        self._served: set[Caller] = set()
        self._longest_s = 0.0
        self._by_key: dict[bytes, list[tuple[int, float]]] | None = (
            defaultdict(list) if in_order else None
        )
        """The seq and the beginning of each success of a key."""

    def begin(self, caller: Caller, now: float) -> None:
        """Note that the caller makes a call."""
        self._since[caller] = now

    def served(self, caller: Caller, key: bytes, seq: int | None, now: float) -> None:
        """Note that the call of the caller has appended the entry with this seq."""
        since = self._since.pop(caller)
        self._longest_s = max(self._longest_s, now - since)
        self._served.add(caller)
        if self._by_key is not None and seq is not None:
            self._by_key[key].append((seq, since))

    def report(self, now: float) -> dict[str, Any]:
        """Return the callers, those that were never served, the longest wait in seconds (waits
        that have not ended count), and the order.

        `out_of_order` is the share of successes for which an append to the same key was begun later
        and got a lower seq; `overtaken_s` is the longest time between the two beginnings.
        """
        waits = [now - since for since in self._since.values()]
        out_of_order, overtaken_s = self._order()
        return {
            "callers": len(self._served | self._since.keys()),
            "never_served": len(self._since.keys() - self._served),
            "longest_wait_s": round(max(self._longest_s, *waits, 0.0), 3),
            "out_of_order": out_of_order,
            "overtaken_s": overtaken_s,
        }

    def _order(self) -> tuple[float | None, float | None]:
        """Return the share of successes out of order, and the longest time by which a success was
        overtaken."""
        if self._by_key is None:
            return None, None
        late, total, overtaken_s = 0, 0, 0.0
        for successes in self._by_key.values():
            latest = 0.0
            for _, since in sorted(successes):
                late += since < latest
                overtaken_s = max(overtaken_s, latest - since)
                latest = max(latest, since)
            total += len(successes)
        return round(late / max(1, total), 4), round(overtaken_s, 3)
