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
"""All strips together take at most this share of a chart."""


def packages(run: Run) -> list[str]:
    """Return the packages that began a fault, in the order of their first faults."""
    return list(dict.fromkeys(band.package for band in run.bands))


def colour(run: Run, package: str) -> str:
    """Return the class of a package's colour, the same in every chart of the page."""
    return f"f{packages(run).index(package) % COLOURS}"


def places(run: Run, time: Time, bands: Iterable[Band]) -> list[tuple[Band, float, float]]:
    """Return (band, x, width) of the bands that the time axis meets."""
    found = []
    for band in bands:
        ended = run.end if band.ended is None else band.ended
        if band.began <= time.last and ended >= time.first:
            x = time.at(band.began)
            found.append((band, x, max(time.at(ended) - x, _THINNEST)))
    return found


def behind(run: Run, time: Time, top: float, height: float) -> str:
    """Return the bands of all packages, from `top` down over `height`.

    Overlapping bands mix their colours. A strip for each package at the top, in the order of the
    faults' chart, identifies them.
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
