"""How many operations a second ended ok, failed or stayed unknown."""

from typing import Final

from . import shades
from .kit import Linear, Time, height_axis, legend, line, n, over_time, path, section, time_axis
from .run import Run
from .words import count

_HEIGHT: Final = 122
_TOP: Final = 24
_BUCKETS: Final = 200
_SHORTEST_NS: Final = 250_000_000
_OUTCOMES: Final = ("ok", "fail", "info")


def chart(run: Run, time: Time) -> str:
    """Draw one panel a kind."""
    width = max((time.last - time.first) / _BUCKETS, _SHORTEST_NS)
    return section(
        "rate", "Rate",
        f"Operations a second by how they ended, in steps of {count(round(width / 1e9, 2))} s.",
        legend(*((f"rule {name}", name) for name in _OUTCOMES)),
        *(_panel(run, time, kind, width) for kind in run.kinds),
    )  # fmt: skip


def _panel(run: Run, time: Time, kind: str, width: float) -> str:
    size = int((time.last - time.first) / width) + 1
    counts = {name: [0] * size for name in _OUTCOMES}
    for one in run.operations:
        if one.f == kind and one.index in run.told:
            counts[one.outcome][int((run.told[one.index] - time.first) / width)] += 1
    per_second = 1e9 / width
    bottom = _HEIGHT - 24
    highest = max(max(series) for series in counts.values()) * per_second
    scale = Linear(highest or 1, _TOP, bottom)
    totals = ", ".join(f"{sum(counts[name]):,} {name}" for name in _OUTCOMES if any(counts[name]))
    parts = [
        shades.behind(run, time, _TOP, bottom - _TOP),
        height_axis(scale, f"{kind}: {totals}"),
    ]
    for name in _OUTCOMES:
        if not any(counts[name]):
            continue
        points = [
            (time.at(time.first + i * width + edge), scale.at(number * per_second))
            for i, number in enumerate(counts[name])
            for edge in (0, width)
        ]
        if name == "ok":
            last = points[-1][0]
            under = f"M{n(points[0][0])} {bottom}{line(points).replace('M', 'L', 1)}"
            parts.append(path(f"{under}L{n(last)} {bottom}z", "area ok"))
        parts.append(path(line(points), f"step {name}"))
    parts.append(time_axis(time, bottom))
    return over_time(time, _HEIGHT, f"rate of {kind} over time", parts)
