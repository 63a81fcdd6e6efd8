"""The faults as bands of colour behind a chart."""

from collections.abc import Iterable
from typing import Final

from ..history import Band
from .kit import Time, n, path
from .run import Run

COLOURS: Final = 10
"""Classes f0, f1, ... of the style."""
_THINNEST: Final = 1.5
_STRIP: Final = 3.0
_STRIPS_PART: Final = 0.3
"""All strips together take at most so much of a chart."""


def packages(run: Run) -> list[str]:
    """The packages that did something, in the order of their first faults."""
    return list(dict.fromkeys(band.package for band in run.bands))


def colour(run: Run, package: str) -> str:
    """The class of a package's colour, the same in every chart of the page."""
    return f"f{packages(run).index(package) % COLOURS}"


def places(run: Run, time: Time, bands: Iterable[Band]) -> list[tuple[Band, float, float]]:
    """(band, x, width) of those that the time axis meets."""
    found = []
    for band in bands:
        ended = run.end if band.ended is None else band.ended
        if band.began <= time.last and ended >= time.first:
            x = time.at(band.began)
            found.append((band, x, max(time.at(ended) - x, _THINNEST)))
    return found


def behind(run: Run, time: Time, top: float, height: float) -> str:
    """The bands of all packages, from `top` so far down.

    Bands that lie on each other mix their colours: a strip for each package at the top, in the
    order of the faults' chart, tells which they are.
    """
    parts = []
    found = packages(run)
    strip = min(_STRIP, _STRIPS_PART * height / max(len(found), 1))
    for i, package in enumerate(found):
        own = [band for band in run.bands if band.package == package]
        where = places(run, time, own)
        for kind, y, high in (("shade", top, height), ("strip", top + i * strip, strip)):
            steps = "".join(
                f"M{n(x)} {n(y)}h{n(width)}v{n(high)}h{n(-width)}z" for _, x, width in where
            )
            parts.append(path(steps, f"{kind} {colour(run, package)}"))
    return "".join(parts)
