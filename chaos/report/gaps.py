"""Availability: the longest times in which no operation of a kind ended ok."""

import itertools
from bisect import bisect_left
from dataclasses import dataclass
from html import escape
from typing import Final

from . import shades
from .kit import LEFT, Time, box, over_time, section, text, time_axis
from .run import Run
from .words import clock, count, span

_ROW: Final = 22
_LONGEST: Final = 5
_RULE: Final = 10
"""A gap is this many times longer than the mean time between two operations that ended ok,"""
_SHORTEST_NS: Final = 100_000_000
"""and at least this long."""


@dataclass(frozen=True, slots=True)
class Gap:
    """From `began` on, for `length` (ns), no operation of the kind ended ok."""

    kind: str
    began: int
    length: int
    asked: int
    """The number of operations requested meanwhile."""


def gaps(run: Run, kind: str) -> list[Gap]:
    """Return the longest gaps, longest first, while operations of this kind were requested."""
    own = [one for one in run.operations if one.f == kind]
    ends = sorted(run.told[one.index] for one in own if one.outcome == "ok")
    asked = sorted(one.began for one in own)
    # Before the first request and after the last, no operation could end ok.
    moments = [asked[0], *ends]
    if not ends or ends[-1] < asked[-1]:
        moments.append(max(asked[-1], *(run.told.get(one.index, run.end) for one in own)))
    mean = (moments[-1] - moments[0]) / max(len(moments) - 1, 1)
    least = max(_SHORTEST_NS, _RULE * mean) if ends else 0
    pairs = sorted(itertools.pairwise(moments), key=lambda two: two[0] - two[1])
    return [
        Gap(kind, began, ended - began, bisect_left(asked, ended) - bisect_left(asked, began))
        for began, ended in pairs[:_LONGEST]
        if ended - began >= least and ended > began
    ]


def chart(run: Run, time: Time) -> str:
    """Draw a row a kind, and the list."""
    found = {kind: gaps(run, kind) for kind in run.kinds}
    y = 6.0
    parts = [shades.behind(run, time, y, _ROW * len(found))]
    for kind, own in found.items():
        parts.append(text(LEFT - 8, y + 15, kind, "row", "end"))
        for gap in own:
            x, width = time.at(gap.began), time.at(gap.began + gap.length) - time.at(gap.began)
            told = f"no {kind} ended ok for {span(gap.length)}\nfrom {clock(gap.began)}"
            parts.append(box(x, y + 3, max(width, 2), _ROW - 7, "gap", told))
            if width > 44:
                parts.append(text(x + width / 2, y + 15, span(gap.length), "inside", "middle"))
        y += _ROW
    parts.append(time_axis(time, y + 2))
    listed = sorted((gap for own in found.values() for gap in own), key=lambda gap: -gap.length)
    return section(
        "gaps", "Availability gaps",
        f"The longest times in which no operation of a kind ended ok: up to {_LONGEST} a kind, of "
        f"{span(_SHORTEST_NS)} and {_RULE} times the mean distance at least.",
        over_time(time, y + 24, "availability gaps over time", parts),
        _table(run, listed) if listed else "<p>There was no gap.</p>\n",
    )  # fmt: skip


def _table(run: Run, listed: list[Gap]) -> str:
    rows = "".join(
        f"<tr><td>{escape(gap.kind)}</td><td class=num>{span(gap.length)}</td>"
        f"<td class=num>{clock(gap.began)}</td><td class=num>{count(gap.asked)}</td>"
        f"<td>{escape(_meanwhile(run, gap))}</td></tr>\n"
        for gap in listed
    )
    return (
        '<div class="scroll"><table><tr><th>kind</th><th class=num>without ok for</th>'
        "<th class=num>from</th><th class=num>asked meanwhile</th><th>faults at the time</th></tr>"
        f"\n{rows}</table></div>\n"
    )


def _meanwhile(run: Run, gap: Gap) -> str:
    on = [
        f"{band.package} ({band.what})"
        for band in run.bands
        if band.began < gap.began + gap.length
        and (run.end if band.ended is None else band.ended) > gap.began
    ]
    return ", ".join(dict.fromkeys(on)) or "none"
