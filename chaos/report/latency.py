"""The latency of each operation, as points, and the quantiles of those that ended ok."""

from typing import Final

from . import shades
from .kit import Log, Time, height_axis, legend, line, over_time, path, section, time_axis
from .run import Run
from .thin import dots
from .words import plural, span

_HEIGHT: Final = 190
_TOP: Final = 24
_BUCKETS: Final = 100
_SPARSE: Final = 5_000
"""With fewer points than this, points are drawn stronger."""
_FEW: Final = 5
"""With fewer operations than this, a bucket has no quantile."""
QUANTILES: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
_ORDER: Final = ("ok", "fail", "info")


def chart(run: Run, time: Time) -> str:
    """Draw one panel a kind."""
    panels = [_panel(run, time, kind) for kind in run.kinds]
    return section(
        "latency", "Latency",
        "A point an operation, where it was asked, at the time until its client was answered or "
        "gave up. The lines are quantiles of what ended ok.",
        legend(
            *((f"dot {name}", name) for name in _ORDER),
            *((f"rule {name}", name) for _, name in QUANTILES),
        ),
        *panels,
    )  # fmt: skip


def _panel(run: Run, time: Time, kind: str) -> str:
    took: dict[str, list[tuple[int, int]]] = {name: [] for name in _ORDER}
    for one in run.operations:
        if one.f == kind and one.index in run.told:
            took[one.outcome].append((one.began, run.told[one.index] - one.began))
    every = [length for points in took.values() for _, length in points]
    bottom = _HEIGHT - 24
    scale = Log(min(every, default=1_000_000), max(every, default=1_000_000), _TOP, bottom)
    parts = [shades.behind(run, time, _TOP, bottom - _TOP)]
    done = sorted(length for _, length in took["ok"])
    label = f"{kind}: {plural(len(every), 'operation')}"
    if done:
        label += "; " + ", ".join(f"{name} {span(_quantile(done, q))}" for q, name in QUANTILES)
    parts.append(height_axis(scale, label))
    for name in _ORDER:
        size = 1.0 if name == "ok" else 2.0
        places = ((time.at(at), scale.at(length)) for at, length in took[name])
        few = " few" if len(took[name]) < _SPARSE else ""
        parts.append(path(dots(places, size), f"dots {name}{few}"))
    parts += _quantiles(took["ok"], time, scale)
    parts.append(time_axis(time, bottom))
    return over_time(time, _HEIGHT, f"latency of {kind} over time", parts)


def _quantiles(took: list[tuple[int, int]], time: Time, scale: Log) -> list[str]:
    width = max((time.last - time.first) / _BUCKETS, 1)
    buckets: list[list[int]] = [[] for _ in range(_BUCKETS)]
    for at, length in took:
        buckets[min(int((at - time.first) / width), _BUCKETS - 1)].append(length)
    for bucket in buckets:
        bucket.sort()
    parts = []
    for q, name in QUANTILES:
        steps = ""
        points: list[tuple[float, float]] = []
        for i, bucket in enumerate([*buckets, []]):
            if len(bucket) >= _FEW:
                middle = time.first + (i + 0.5) * width
                points.append((time.at(middle), scale.at(_quantile(bucket, q))))
            else:
                # A line across a time without operations would show values that were not measured.
                steps += line(points) if len(points) > 1 else ""
                points = []
        parts.append(path(steps, f"quantile {name}"))
    return parts


def _quantile(ordered: list[int], q: float) -> int:
    """Return the smallest value that is not below this share of all values."""
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)]
