"""Acknowledged entries that no reader has seen yet (Jepsen's Kafka workload plots the same)."""

from typing import Final

from . import shades
from .entries import acknowledged, seen
from .kit import LEFT, Linear, Time, height_axis, line, n, over_time, path, section, time_axis
from .run import FINAL, Run
from .thin import extremes
from .words import count

_HEIGHT: Final = 150
_TOP: Final = 24


def chart(run: Run, time: Time) -> str:
    """Draw their number over time."""
    steps = unseen(run)
    if not steps:
        return ""
    highest, left = max(number for _, number in steps), steps[-1][1]
    bottom = _HEIGHT - 24
    scale = Linear(max(highest, 1), _TOP, bottom)
    corners: list[tuple[float, float]] = [(LEFT, scale.at(0))]
    for at, number in steps:
        x = time.at(at)
        corners += ((x, corners[-1][1]), (x, scale.at(number)))
    corners.append((time.right, corners[-1][1]))
    thinned = extremes(corners)
    under = f"{line(thinned)}L{n(time.right)} {bottom}L{LEFT} {bottom}z"
    parts = [
        shades.behind(run, time, _TOP, bottom - _TOP),
        height_axis(scale, f"at most {count(highest)}; {count(left)} at the end"),
        path(under, "area unseen"),
        path(line(thinned), "step unseen"),
        time_axis(time, bottom),
    ]
    finals = any(one.f == FINAL and one.outcome == "ok" for one in run.operations)
    read_back = "the final reads included" if finals else "and no final read took place"
    return section(
        "unseen", "Unseen",
        "Entries that were acknowledged and that no poll, read, scan or follower has "
        f"returned yet, {read_back}.",
        over_time(time, _HEIGHT, "unseen entries over time", parts),
    )  # fmt: skip


def unseen(run: Run) -> list[tuple[int, int]]:
    """Return (ns, number from then on) at each change; values are unique in a test."""
    first: dict[tuple[str, str], int] = {}
    for one in run.operations:
        if one.outcome == "ok":
            at = run.told[one.index]
            for key, _, value in seen(one):
                if at < first.get((key, value), run.end + 1):
                    first[key, value] = at
    changes: list[tuple[int, int]] = []
    for one in run.operations:
        acked = run.told.get(one.index, 0)
        for key, _, value in acknowledged(one):
            read = first.get((key, value))
            if read is None or read > acked:
                changes.append((acked, 1))
            if read is not None and read > acked:
                changes.append((read, -1))
    steps: list[tuple[int, int]] = []
    number = 0
    for at, change in sorted(changes):
        number += change
        if steps and steps[-1][0] == at:
            steps.pop()
        steps.append((at, number))
    return steps
