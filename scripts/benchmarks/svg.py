"""Line and bar charts as SVG, written by hand."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 44, 48
_COLOURS = ("#1f6feb", "#d1495b", "#2a9d5c", "#b07d1a", "#7a4fbf", "#3b3f46")
_FONT = 'font-family="system-ui, sans-serif"'
_BAR = 26

Points = Sequence[tuple[float, float]]
_Scale = Callable[[float], float]


def lines(
    title: str, across: str, up: str, series: Mapping[str, Points], *, log_x: bool = False
) -> str:
    """Return one line a series; both axes begin at 0 unless `log_x`."""
    places = [(_place(x, log_x), y) for points in series.values() for x, y in points]
    left = min((x for x, _ in places), default=0.0) if log_x else 0.0
    right = max((x for x, _ in places), default=1.0)
    right = right if right > left else left + 1
    ticks = _ticks(max((y for _, y in places), default=1.0))
    inner_w, inner_h = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x_of(x: float) -> float:
        return _LEFT + (_place(x, log_x) - left) / (right - left) * inner_w

    def y_of(y: float) -> float:
        return _TOP + inner_h * (1 - y / ticks[-1])

    parts = [_text(_LEFT, 18, title, size=15, weight="600")]
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#d8dce2"/>')
        parts.append(_text(_LEFT - 8, y + 4, _short(tick), anchor="end"))
    marks = sorted({x for points in series.values() for x, _ in points}) if log_x else [
        tick for tick in _ticks(right) if tick <= right
    ]  # fmt: skip
    for tick in marks:
        parts.append(_text(x_of(tick), _HEIGHT - _BOTTOM + 18, _short(tick), anchor="middle"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 8, across, anchor="end", colour="#57606a"))
    parts.append(_text(_LEFT, 36, up, colour="#57606a"))
    parts += _series(series, x_of, y_of, dots=log_x)
    return _document(_HEIGHT, parts)


def bars(title: str, unit: str, rows: Sequence[tuple[str, float]]) -> str:
    """Return one bar a row, with its name before and its value behind it."""
    names = 300
    top = max((value for _, value in rows), default=1.0) or 1.0
    height = _TOP + _BAR * len(rows) + 16
    parts = [_text(12, 18, title, size=15, weight="600"), _text(12, 36, unit, colour="#57606a")]
    for number, (name, value) in enumerate(rows):
        y = _TOP + number * _BAR
        width = value / top * (_WIDTH - names - 110)
        parts.append(_text(names - 8, y + 17, name, anchor="end"))
        parts.append(
            f'<rect x="{names}" y="{y + 4}" width="{width:.1f}" height="{_BAR - 8}" rx="2" '
            f'fill="{_COLOURS[0] if name.startswith("lognode") else "#8b949e"}"/>'
        )
        parts.append(_text(names + width + 6, y + 17, f"{value:,.0f}"))
    return _document(height, parts)


def _series(
    series: Mapping[str, Points], x_of: _Scale, y_of: _Scale, *, dots: bool
) -> Iterator[str]:
    at = _WIDTH - _RIGHT
    for (name, points), colour in reversed(list(zip(series.items(), _COLOURS, strict=False))):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in sorted(points))
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        if dots:
            for x, y in points:
                yield f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"/>'
        yield _text(at, 36, name, anchor="end", colour=colour, weight="600")
        at -= 7 * len(name) + 18


def _place(x: float, log_x: bool) -> float:
    return math.log10(max(x, 1e-9)) if log_x else x


def _ticks(top: float) -> list[float]:
    """Return round values from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(top))
    step = next(power * s for s in (0.2, 0.5, 1.0, 2.0) if top / (power * s) <= 6)
    return [round(step * n, 10) for n in range(math.ceil(top / step - 1e-9) + 1)]


def _short(value: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12,
    weight: str = "400", colour: str = "#24292f",
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _document(height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{body}\n</svg>\n"
    )
