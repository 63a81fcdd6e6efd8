"""A progress bar on a terminal; no output anywhere else."""

import sys
import time
from typing import Final, TextIO

_WIDTH: Final = 30
_EVERY_S: Final = 0.1


class Progress:
    """One line on stderr that is redrawn at most ten times a second."""

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self._what = what
        self._out = out or sys.stderr
        self._shown = self._out.isatty()
        self._started = time.monotonic()
        self._drawn_at = 0.0

    def update(self, part: float, count: int) -> None:
        """Show that `part` of the work is done, 0 to 1, with `count` things so far."""
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= _EVERY_S:
            self._drawn_at = now
            self._draw(part, count, now)

    def end(self, part: float, count: int) -> None:
        """Draw a last time and end the line."""
        if self._shown:
            self._draw(part, count, time.monotonic())
            self._out.write("\n")
            self._out.flush()

    def _draw(self, part: float, count: int, now: float) -> None:
        full = round(part * _WIDTH)
        rate = count / max(now - self._started, 1e-6)
        bar = "#" * full + "-" * (_WIDTH - full)
        self._out.write(f"\r{self._what} [{bar}] {part:4.0%}  {count:,}  {rate:,.0f}/s ")
        self._out.flush()
