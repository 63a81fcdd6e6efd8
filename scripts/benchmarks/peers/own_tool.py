"""A system's own load generator, measured between two of the lines that the tool prints."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from ..processor import ProcessorWatch

_LINE_MAX_S = 60.0
_TAIL = 20
"""The last lines that an error shows."""


@dataclass(frozen=True)
class OwnTool:
    """A program that runs until it is ended, and prints a line every few seconds."""

    workload: str
    command: list[str]
    line: re.Pattern[str]
    """Matches a line; its first group is the number of records since the line before."""


def measure(
    tool: OwnTool, warmup_s: float, seconds: float, watch: Callable[[int], ProcessorWatch]
) -> dict[str, Any]:
    """Return the throughput between the first line after the warm-up and the first line that comes
    `seconds` later. `watch` makes the watch of the processor for the tool's process.

    Raises RuntimeError with the end of the output when the tool ends or says nothing.
    """
    with subprocess.Popen(
        tool.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            with watch(process.pid) as used:
                lines = _counted(process, tool.line)
                begun = time.perf_counter()
                points = [next(lines)]
                while points[-1][0] < begun + warmup_s:
                    points = [next(lines)]
                while points[-1][0] < points[0][0] + seconds:
                    points.append(next(lines))
            interval = points[0][0], points[-1][0]
        finally:
            process.kill()
    records = sum(count for _, count in points[1:])
    took = interval[1] - interval[0]
    return {
        "workload": tool.workload, "seconds": round(took, 3), "records": records,
        "records_per_second": round(records / took, 1), "verified": 0,
        "series": [
            {"at_s": round(before[0] - begun, 3),
             "records_per_second": round(point[1] / (point[0] - before[0]), 1)}
            for before, point in pairwise(points)
        ],
        **used.budget(interval, records),
    }  # fmt: skip


def _counted(
    process: "subprocess.Popen[str]", line: re.Pattern[str]
) -> Iterator[tuple[float, int]]:
    """Yield the time and the number of records of each matching line."""
    said: SimpleQueue[str | None] = SimpleQueue()
    assert process.stdout is not None
    Thread(target=partial(_read, process.stdout, said), daemon=True).start()
    tail: list[str] = []
    while True:
        try:
            text = said.get(timeout=_LINE_MAX_S)
        except Empty:
            text = None
        if text is None:
            raise RuntimeError(f"{process.args!r:.80} says no more: {''.join(tail)[-500:]}")
        tail = [*tail, text][-_TAIL:]
        found = line.search(text)
        if found:
            yield time.perf_counter(), int(found[1])


def _read(output: IO[str], said: "SimpleQueue[str | None]") -> None:
    for text in output:
        said.put(text)
    said.put(None)
