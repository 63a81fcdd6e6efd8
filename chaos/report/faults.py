"""The faults of the nemesis, a row a package, and the leaders of ranges meanwhile."""

from typing import Final

from ..history import Band
from . import shades
from .kit import LEFT, Time, box, over_time, section, text, time_axis
from .run import Run
from .words import clock, plural, short, span

_ROW: Final = 24
_LETTER: Final = 6.2
"""About the width of a letter in a bar."""
_WORTH: Final = 12
"""The least number of letters of a longer name that are written."""
_RANGES: Final = 16
_NODE_COLOURS: Final = 9


def chart(run: Run, time: Time) -> str:
    """Draw faults and leaders over time."""
    if not run.bands and not run.leaders:
        return section("faults", "Faults and leaders", "No fault, and no leader was recorded.")
    parts, y = _packages(run, time)
    leads = _leads(run)
    shown = sorted(leads, key=lambda name: (-len(leads[name]), _natural(name)))[:_RANGES]
    for name in sorted(shown, key=_natural):
        parts += _row_of_leads(leads[name], name, run, time, y)
        y += _ROW
    parts.append(time_axis(time, y + 2))
    changes = sum(len(spans) - 1 for spans in leads.values())
    said = f"{plural(len(run.bands), 'fault')}; {plural(changes, 'change')} of leaders" + (
        f" in {plural(len(leads), 'range')}" if leads else ""
    )
    if len(leads) > len(shown):
        said += f", of which the {_RANGES} that changed most are shown"
    return section(
        "faults", "Faults and leaders",
        f"{said}. The bands of the faults stand behind every chart below; a leader's bar bears "
        "the number of its node.",
        over_time(time, y + 24, "faults and leaders over time", parts),
    )  # fmt: skip


def _packages(run: Run, time: Time) -> tuple[list[str], float]:
    y = 4.0
    parts = []
    for package in shades.packages(run):
        parts.append(text(LEFT - 8, y + 15, package, "row", "end"))
        own = [band for band in run.bands if band.package == package]
        for band, x, width in shades.places(run, time, own):
            kind = f"fault {shades.colour(run, package)}"
            parts.append(box(x, y + 2, width, _ROW - 5, kind, _words(band)))
            room = int((width - 10) / _LETTER)
            if (words := short(band.what, room)) and room >= min(len(band.what), _WORTH):
                parts.append(text(x + 5, y + 15, words, "inside"))
        y += _ROW
    return parts, y + 6


def _words(band: Band) -> str:
    nodes = f", node {', '.join(map(str, band.nodes))}" if band.nodes else ""
    until = (
        "until the test ended" if band.ended is None
        else f"to {clock(band.ended)}, {span(band.ended - band.began)}"
    )  # fmt: skip
    return f"{band.package}: {band.what}{nodes}\n{clock(band.began)} {until}"


def _leads(run: Run) -> dict[str, list[tuple[int, int]]]:
    """Return, by range, the times and nodes of its successive leaders."""
    found: dict[str, list[tuple[int, int]]] = {}
    for at, leaders in run.leaders:
        for name, node in leaders.items():
            spans = found.setdefault(name, [])
            if not spans or spans[-1][1] != node:
                spans.append((at, node))
    return found


def _row_of_leads(
    spans: list[tuple[int, int]], name: str, run: Run, time: Time, y: float
) -> list[str]:
    parts = [text(LEFT - 8, y + 15, f"range {name}", "row", "end")]
    for i, (at, node) in enumerate(spans):
        until = spans[i + 1][0] if i + 1 < len(spans) else run.end
        x = time.at(at)
        width = time.at(until) - x
        told = f"range {name} led by node {node}\n{clock(at)} to {clock(until)}"
        parts.append(box(x, y + 5, width - 1, _ROW - 11, f"lead n{node % _NODE_COLOURS}", told))
        if width > 14:
            parts.append(text(x + 4, y + 15, str(node), "inside"))
    return parts


def _natural(name: str) -> tuple[int, str]:
    return (int(name) if name.isdigit() else 0, name)
