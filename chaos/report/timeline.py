"""The operations of each client over time: a lane for each client, a bar for each operation."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..history import Operation
from . import shades
from .kit import LEFT, Time, box, legend, n, over_time, path, section, text, time_axis
from .run import Run
from .words import clock, operation, plural, span

_ROW: Final = 15
_MARKS: Final = 12_000
"""About this many bars are drawn; in a longer history, bars at the same place become one."""
_LANES: Final = 120
_THINNEST: Final = 1.2
_CLOSE_NS: Final = 3_000_000_000
_CLOSE_MARKS: Final = 1_500


@dataclass(slots=True)
class Lane:
    """A sequence of processes: a client is a new process after an operation ended info."""

    processes: list[int]
    operations: list[Operation]
    ends: int


def chart(run: Run, time: Time) -> str:
    """Draw all lanes over the whole test."""
    found = lanes(run, run.operations)
    return section(
        "timeline", "Timeline",
        "A lane for each client, grouped by its first operation; after an operation that "
        "ended info, the client continues as a new process. Point at a bar to see the "
        "operation; a bar may stand for several operations at the same place. A red frame "
        "marks the findings of the checkers.",
        legend(
            ("bar ok", "ok"), ("bar fail", "fail"), ("bar info", "info"),
            ("bar offending", "named by a checker"),
        ),
        _drawn(run, time, found[:_LANES], "timeline of all processes"),
        f"<p>{plural(len(found) - _LANES, 'more lane')} not shown.</p>" if len(found) > _LANES
        else "",
    )  # fmt: skip


def close_up(run: Run, operations: Iterable[Operation]) -> str:
    """Draw the lanes of some operations: all of them if they lie together, else the first."""
    ordered = sorted(operations, key=lambda one: one.began)
    first, last = ordered[0].began, max(run.told.get(one.index, one.began) for one in ordered)
    if last - first > _CLOSE_NS:
        last = min(run.told.get(ordered[0].index, first), first + _CLOSE_NS)
    pad = max((last - first) // 4, 100_000_000)
    time = Time(max(first - pad, 0), min(last + pad, max(run.end, 1)))
    meanwhile = [
        one
        for one in run.operations
        if one.began <= time.last and run.told.get(one.index, run.end) >= time.first
    ]
    return _drawn(run, time, lanes(run, meanwhile[:_CLOSE_MARKS]), "close-up of the timeline")


def lanes(run: Run, operations: Iterable[Operation]) -> list[Lane]:
    """Pack processes into lanes: a process takes the first lane of its kind that is free again."""
    by_process: dict[int, list[Operation]] = {}
    for one in operations:
        by_process.setdefault(one.process, []).append(one)
    kinds: dict[str, list[list[Operation]]] = {}
    for own in by_process.values():
        kinds.setdefault(own[0].f, []).append(own)
    found: list[Lane] = []
    for same in kinds.values():
        group: list[Lane] = []
        free: list[int] = []
        busy: list[tuple[int, int]] = []
        for own in sorted(same, key=lambda own: own[0].began):
            while busy and busy[0][0] <= own[0].began:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if not free:
                heapq.heappush(free, len(group))
                group.append(Lane([], [], 0))
            number = heapq.heappop(free)
            ends = run.told.get(own[-1].index, run.end)
            heapq.heappush(busy, (ends, number))
            group[number].processes.append(own[0].process)
            group[number].operations += own
        found += group
    return found


def _drawn(run: Run, time: Time, found: list[Lane], label: str) -> str:
    offending = run.offending()
    height = _ROW * len(found) + 8
    cell = max(1.0, (time.right - LEFT) * len(found) / _MARKS)
    parts = [shades.behind(run, time, 4, height - 8)]
    for i, lane in enumerate(found):
        y = 4.0 + i * _ROW
        parts.append(text(LEFT - 8, y + 11, _label(lane, i, found), "tick", "end"))
        for outcome in ("ok", "fail", "info"):
            own = [one for one in lane.operations if one.outcome == outcome]
            parts += _bars(run, time, own, cell, y + 3, f"bar {outcome}")
        for one in lane.operations:
            if one.index in offending:
                x, width = _place(run, time, one)
                told = f"{offending[one.index]}\n{_words(run, one)}"
                parts.append(box(x - 1, y + 1, width + 2, _ROW - 3, "ring", told))
    parts.append(time_axis(time, height))
    return over_time(time, height + 24, label, parts)


def _label(lane: Lane, i: int, found: list[Lane]) -> str:
    begins = i == 0 or found[i - 1].operations[0].f != lane.operations[0].f
    kind = f"{lane.operations[0].f} " if begins else ""
    return f"{kind}{lane.processes[0]}{'…' if len(lane.processes) > 1 else ''}"


def _place(run: Run, time: Time, one: Operation) -> tuple[float, float]:
    x = time.at(one.began)
    return x, max(time.at(run.told.get(one.index, run.end)) - x, _THINNEST)


def _bars(
    run: Run, time: Time, operations: Iterable[Operation], cell: float, y: float, kind: str
) -> Iterator[str]:
    """Yield a bar for each operation; short operations that begin in one cell share a bar."""
    together: list[Operation] = []
    began = -1.0
    for one in operations:
        x, width = _place(run, time, one)
        if together and (width > cell or int(x / cell) != int(began / cell)):
            yield _bar(run, together, began, max(cell - 0.2, _THINNEST), y, kind)
            together = []
        if width > cell:
            yield _bar(run, [one], x, width, y, kind)
        else:
            began = began if together else x
            together.append(one)
    if together:
        yield _bar(run, together, began, max(cell - 0.2, _THINNEST), y, kind)


def _bar(run: Run, together: list[Operation], x: float, width: float, y: float, kind: str) -> str:
    if len(together) == 1:
        told = _words(run, together[0])
    else:
        first, last = together[0], together[-1]
        told = (
            f"{len(together)} × {_kinds(together)} {first.outcome}, process {first.process}\n"
            f"{clock(first.began)} to {clock(run.told.get(last.index, run.end))}"
        )
    return path(f"M{n(x)} {n(y)}h{n(width)}v9h{n(-width)}z", kind, told)


def _kinds(operations: Iterable[Operation]) -> str:
    found: Mapping[str, None] = dict.fromkeys(one.f for one in operations)
    return "/".join(found)


def _words(run: Run, one: Operation) -> str:
    told = run.told.get(one.index)
    took = "never answered" if told is None else f"took {span(told - one.began)}"
    return f"{operation(one)}\nprocess {one.process}, {clock(one.began)}, {took}"
