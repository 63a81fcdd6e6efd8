"""Latencies and rates of a run."""

import math
import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the nearest-rank quantile of sorted values: the smallest value that at least
    `fraction` of them do not exceed; 0 without values."""
    rank = math.ceil(round(fraction * len(values), 9))  # 0.07 * 100 is a little more than 7
    return values[max(0, rank - 1)] if values else 0.0


def spread_ms(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return the quantiles in milliseconds, None without values."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    return {name: round(quantile(ordered, at) * 1e3, 3) for name, at in _QUANTILES}


class Recorder:
    """Collects the calls of one workload; calls that end in the warm-up are left out.

    `every_s`: also keep a row of records and latency for each interval of this length.
    """

    def __init__(self, *, warmup_s: float = 0.0, every_s: float | None = None) -> None:
        self.records = 0
        self.calls = 0
        self._warmup_s = warmup_s
        self._every_s = every_s
        self._begun = 0.0
        self._ended = 0.0
        self._service = array("d")
        self._latency = array("d")
        self._ends = array("d")
        self._counts = array("q")

    def begin(self) -> None:
        """Note that the first call is about to be made."""
        self._begun = self._ended = time.perf_counter()

    def end(self) -> None:
        """Note that the last call has ended."""
        self._ended = time.perf_counter()

    def add(
        self, records: int, ended: float, *, service_s: float, latency_s: float | None = None
    ) -> None:
        """Add one call. `latency_s`: the time since it was due."""
        if ended - self._begun < self._warmup_s:
            return
        self.calls += 1
        self.records += records
        self._service.append(service_s)
        if latency_s is not None:
            self._latency.append(latency_s)
        if self._every_s is not None:
            self._ends.append(ended - self._begun)
            self._counts.append(records)

    @property
    def measured(self) -> tuple[float, float]:
        """The first and the last moment of the measurement, by `time.perf_counter`."""
        return self._begun + self._warmup_s, self._ended

    def report(self, workload: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the measurements, together with `more`, the options of the run."""
        seconds = max(self._ended - self._begun - self._warmup_s, 1e-9)
        found: dict[str, Any] = {
            "workload": workload,
            **more,
            "seconds": round(seconds, 3),
            "measured_s": [round(moment, 3) for moment in self.measured],
            "calls": self.calls,
            "records": self.records,
            "records_per_second": round(self.records / seconds, 1),
            "latency_ms": spread_ms(self._latency),
            "service_ms": spread_ms(self._service),
        }
        if self._every_s is not None:
            found["series"] = self._series(self._every_s)
        return found

    def _series(self, every_s: float) -> list[dict[str, float]]:
        """Return a row per interval: its start, records a second, p50 and p99."""
        times = self._latency or self._service
        found: dict[int, tuple[list[float], list[int]]] = {}
        for ended, taken, count in zip(self._ends, times, self._counts, strict=True):
            taken_s, counts = found.setdefault(int(ended / every_s), ([], []))
            taken_s.append(taken)
            counts.append(count)
        return [
            {
                "at_s": round(number * every_s, 3),
                "records_per_second": round(sum(counts) / every_s, 1),
                "p50_ms": round(quantile(sorted(taken_s), 0.5) * 1e3, 3),
                "p99_ms": round(quantile(sorted(taken_s), 0.99) * 1e3, 3),
            }
            for number, (taken_s, counts) in sorted(found.items())
        ]
