"""The table of producers at one moment, made in steps into rows as meta stores them.

A base holds the table of exactly its index (x16). Making a row of 118,000 scattered numbers takes
135 ms, and 100,000 rows take as long, while entries are applied. So a capture only notes which rows
exist. A row that is about to change is copied first, in C.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final

from .number_runs import done
from .producer_row import Row

_LARGE: Final = 1_024
"""The numbers above which a row takes several steps, and must not change between two of them."""


class Capture:
    """A capture of the table. All calls come from one thread.

    A change of the table must call `keep` before.
    """

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self.rows: dict[int, Any] = dict(rows)
        """By producer, the rows as meta stores them, once `is_done`."""
        self.is_done = False
        self._own: set[int] = set()
        """Producers whose row is a copy."""

    def keep(self, producer: int) -> None:
        """Copy a producer's row that is about to change, or to be made in several steps."""
        row = self.rows.get(producer)
        if isinstance(row, Row) and producer not in self._own:
            self.rows[producer] = row.copy()
            self._own.add(producer)

    def steps(self) -> Generator[None, None, None]:
        """Make the rows. The steps may be stopped and begun again: finished rows stay."""
        if self.is_done:
            return
        for producer in list(self.rows):
            row = self.rows[producer]
            if not isinstance(row, Row):
                continue
            if row.count > _LARGE or row.elders:
                self.keep(producer)
                yield
                self.rows[producer] = yield from self.rows[producer].wire_steps()
            else:
                self.rows[producer] = row.to_wire()
            yield
        self.is_done = True
        self._own.clear()

    def finish(self) -> None:
        """Make all rows now."""
        done(self.steps())
