"""Processor time of groups of processes over time, and what a record costs of it; memory.

A watch reads /proc/PID/stat a few times a second. The load says afterwards which interval it has
measured, by the clock that all processes of a machine share (`time.perf_counter`); the watch tells
what each group used in that interval.
"""

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY_S = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_USER = 11
"""The place of `utime` among the fields of /proc/PID/stat that follow the program's name; `stime`,
`cutime` and `cstime` come next."""

Interval = tuple[float, float]
"""Two times of `time.perf_counter`."""


def own_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that these processes have used themselves."""
    return sum(sum(_ticks(pid)[:2]) for pid in pids) / _TICKS


def children_seconds(pids: Sequence[int]) -> float:
    """Return the processor time of the children of these processes, of those that have ended
    too."""
    ended = sum(sum(_ticks(pid)[2:]) for pid in pids) / _TICKS
    return ended + own_seconds([child for pid in pids for child in children(pid)])


def children(pid: int) -> list[int]:
    """Return the children of a process; each is a child of the thread that started it."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted({int(child) for each in lists for child in _text(each).split()})


def resident(pids: Sequence[int]) -> int:
    """Return the resident bytes of the processes together; a process that has ended has none."""
    found = [_text(Path(f"/proc/{pid}/status")) for pid in pids]
    lines = [line for text in found for line in text.splitlines() if line.startswith("VmRSS:")]
    return sum(int(line.split()[1]) << 10 for line in lines)


class ProcessorWatch:
    """Samples the processor time of `groups`, whose functions return seconds; a context manager."""

    def __init__(
        self, groups: Mapping[str, Callable[[], float]], every_s: float = _EVERY_S
    ) -> None:
        self._groups = groups
        self._every_s = every_s
        self._times: list[float] = []
        self._seconds: dict[str, list[float]] = {name: [] for name in groups}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="processor watch", daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def seconds(self, name: str, interval: Interval) -> float:
        """Return what a group used in the interval, interpolated between samples."""
        begin, end = (self._at(self._seconds[name], when) for when in interval)
        return max(0.0, end - begin)

    def budget(self, interval: Interval, records: int) -> dict[str, float]:
        """Return microseconds of processor time a record for each group and all together, and the
        share of the machine's processors that the groups used, in percent."""
        used = {name: self.seconds(name, interval) for name in self._groups}
        total, wall_s = sum(used.values()), max(interval[1] - interval[0], 1e-9)
        costs = {f"{name} us": seconds for name, seconds in [*used.items(), ("all", total)]}
        return {
            **{name: round(1e6 * seconds / max(records, 1), 2) for name, seconds in costs.items()},
            "busy %": round(100 * total / wall_s / (os.cpu_count() or 1), 1),
        }

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        # The time is taken last: `seconds` may be asked for as soon as the time is in the list.
        for name, read in self._groups.items():
            values = self._seconds[name]
            values.append(max(read(), values[-1] if values else 0.0))  # an ended process reads 0
        self._times.append(time.perf_counter())

    def _at(self, values: Sequence[float], when: float) -> float:
        after = bisect_left(self._times, when)
        if after in (0, len(self._times)):
            return values[min(after, len(self._times) - 1)]
        early, late = self._times[after - 1 : after + 1]
        share = (when - early) / (late - early)
        return values[after - 1] + share * (values[after] - values[after - 1])


def _ticks(pid: int) -> list[int]:
    """Return utime, stime, cutime and cstime, or zeros for a process that has ended."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return [int(field) for field in fields[_USER : _USER + 4]] or [0] * 4


def _text(path: Path) -> str:
    """Return the text of the file, or none for a process that has ended meanwhile."""
    try:
        return path.read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
