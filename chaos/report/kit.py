"""The chart kit: scales, axes and text of SVG, and the frame that charts over time share.

Lengths are units of the view box, about a pixel on a wide screen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Protocol

from .words import count, span

WIDTH: Final = 1000
LEFT: Final = 84
RIGHT: Final = 16
INNER: Final = WIDTH - LEFT - RIGHT

_TIME_STEPS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
    1800, 3600, 7200,
)  # fmt: skip
_TIME_TICKS: Final = 12
_ROOM: Final = 0.2
"""Powers of ten above the highest latency."""


class Scale(Protocol):
    """Places values on one axis, whose upper end is at `top`."""

    @property
    def top(self) -> float: ...

    def at(self, value: float) -> float:
        """Return the place of a value, not beyond the ends of the axis."""

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values that get a line, with their labels."""


@dataclass(frozen=True, slots=True)
class Time:
    """The time axis, from left to right, in ns since the start of the test."""

    first: float
    last: float
    right: float = WIDTH - RIGHT
    """The right end of the axis; the left end is LEFT."""

    def at(self, value: float) -> float:
        """Return the place of a moment."""
        part = (value - self.first) / max(self.last - self.first, 1)
        return LEFT + min(max(part, 0.0), 1.0) * (self.right - LEFT)

    def ticks(self) -> list[tuple[float, str]]:
        """Return at most about a dozen ticks, at round times."""
        length_s = max(self.last - self.first, 1) / 1e9
        step = next((s for s in _TIME_STEPS_S if length_s / s <= _TIME_TICKS), length_s)
        begin, end = math.ceil(self.first / 1e9 / step), math.floor(self.last / 1e9 / step + 1e-9)
        return [(n * step * 1e9, _time_label(n * step, step)) for n in range(begin, end + 1)]


def _time_label(at_s: float, step_s: float) -> str:
    if step_s < 1:
        return f"{at_s:.{max(0, -math.floor(math.log10(step_s)))}f} s"
    minutes, seconds = divmod(round(at_s), 60)
    return f"{minutes}:{seconds:02}" if minutes or step_s >= 30 else f"{seconds} s"


@dataclass(frozen=True, slots=True)
class Linear:
    """A scale from 0 at the bottom to a round number at the top."""

    high: float
    top: float
    bottom: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        part = min(max(value / self.ticks()[-1][0], 0.0), 1.0)
        return self.bottom - part * (self.bottom - self.top)

    def ticks(self) -> list[tuple[float, str]]:
        """Return three to five ticks, from 0; the last is the top."""
        high = max(self.high, 1e-9)
        power = 10.0 ** math.floor(math.log10(high / 3))
        step = next(power * n for n in (1, 2, 5, 10) if high / (power * n) <= 4)
        return [(n * step, count(n * step)) for n in range(math.ceil(high / step - 1e-9) + 1)]


class Log:
    """A scale of latencies in ns, from below the lowest to just above the highest.

    Its lower end is a power of ten.
    """

    def __init__(self, low: float, high: float, top: float, bottom: float) -> None:
        self.top, self.bottom = top, bottom
        self._first = math.floor(math.log10(max(low, 1.0)))
        self._last = max(math.log10(max(high, 1.0)) + _ROOM, self._first + 1.0)
        self._power = (bottom - top) / (self._last - self._first)

    def at(self, value: float) -> float:
        """Return the place of a latency."""
        y = self.bottom - (math.log10(max(value, 1.0)) - self._first) * self._power
        return min(max(y, self.top), self.bottom)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the powers of ten."""
        powers = range(self._first, math.floor(self._last) + 1)
        return [(10.0**power, span(10.0**power)) for power in powers]


def n(number: float) -> str:
    """Return a length in its shortest form: one decimal, none if it is 0."""
    return f"{number:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text; `kind` is its class."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{n(x)}" y="{n(y)}"{where}{named}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, told: str = "") -> str:
    """Return a rectangle; the pointer shows `told`."""
    return (
        f'<rect x="{n(x)}" y="{n(y)}" width="{n(max(width, 0))}" height="{n(height)}" '
        f'class="{kind}"{_told(told)}/>'
    )


def path(d: str, kind: str, told: str = "") -> str:
    """Return a path, or nothing if it has no steps."""
    return f'<path d="{d}" class="{kind}"{_told(told)}/>' if d else ""


def _told(words: str) -> str:
    return f' data-t="{escape(words)}"' if words else ""


def line(points: Sequence[tuple[float, float]]) -> str:
    """Return the steps of a path through the points."""
    return "".join(f"{'L' if i else 'M'}{n(x)} {n(y)}" for i, (x, y) in enumerate(points))


def height_axis(scale: Scale, label: str = "") -> str:
    """Return the lines and labels of the left axis, and its unit above them."""
    parts = []
    for value, words in scale.ticks():
        y = scale.at(value)
        parts.append(f'<path d="M{LEFT} {n(y)}H{WIDTH - RIGHT}" class="grid"/>')
        parts.append(text(LEFT - 8, y + 4, words, "tick", "end"))
    if label:
        parts.append(text(LEFT, scale.top - 7, label, "unit"))
    return "".join(parts)


def time_axis(time: Time, y: float) -> str:
    """Return the line, marks and labels of the time axis.

    Its line is at `y`, and it takes 20 below.
    """
    parts = [f'<path d="M{LEFT} {n(y)}H{n(time.right)}" class="axis"/>']
    for value, words in time.ticks():
        x = time.at(value)
        parts.append(f'<path d="M{n(x)} {n(y)}v4" class="axis"/>')
        anchor = "end" if x > time.right - 12 else "middle"
        parts.append(text(x, y + 17, words, "tick", anchor))
    return "".join(parts)


def over_time(time: Time, height: float, label: str, parts: Sequence[str]) -> str:
    """Return an SVG over the time axis: the pointer's moment is marked in all such charts."""
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH} {n(height)}" role="img" '
        f'aria-label="{escape(label)}" class="time" data-from="{time.first:.0f}" '
        f'data-to="{time.last:.0f}" data-left="{LEFT}" data-right="{n(time.right)}">'
        f"{''.join(parts)}"
        f'<path d="M0 0V{n(height)}" class="cross"/></svg></div>\n'
    )


def section(ident: str, title: str, explained: str, *parts: str) -> str:
    """Return a section of the page; `explained` is HTML, one sentence or two."""
    return (
        f'<section id="{ident}"><h2>{escape(title)}</h2><p class="note">{explained}</p>\n'
        f"{''.join(parts)}</section>\n"
    )


def legend(*entries: tuple[str, str]) -> str:
    """Return a legend: (class, words) of each mark."""
    marks = "".join(
        f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, words in entries
    )
    return f'<p class="legend">{marks}</p>\n'
