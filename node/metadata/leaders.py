"""Who leads what: a table whose changes are numbered, so that only changes travel.

Of two statements on a range the one of the higher (generation, term) holds; in one term "no longer
led" holds against any leader, since who stepped down in a term never leads in it again.
"""

from collections.abc import Set
from typing import Final, NamedTuple

NOBODY: Final = 0


class Told(NamedTuple):
    """One statement; `node` NOBODY: the leader of that term has stepped down."""

    generation: int
    term: int
    node: int

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The higher holds."""
        return (self.generation, self.term, self.node == NOBODY)


class Leaders:
    """The newest statement on each range, in the order in which they changed."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last change."""
        self._rows: dict[int, tuple[int, Told]] = {}

    def __getitem__(self, range_id: int) -> Told | None:
        row = self._rows.get(range_id)
        return None if row is None else row[1]

    def learn(self, range_id: int, told: Told) -> None:
        """Take a statement in, if it is news."""
        known = self[range_id]
        if known is not None and told.rank <= known.rank:
            return
        self._rows.pop(range_id, None)
        self.number += 1
        self._rows[range_id] = (self.number, told)

    def forget(self, range_id: int) -> None:
        """What was said of this range turned out wrong, or the range is over."""
        self._rows.pop(range_id, None)

    def range_ids(self) -> Set[int]:
        """The ranges that something was said of."""
        return self._rows.keys()

    def since(self, number: int) -> list[list[int]]:
        """Return rows [range, generation, term, node] of the statements that have changed after
        that number, the newest first. It costs no more than there is."""
        found = []
        for range_id, (changed, told) in reversed(self._rows.items()):
            if changed <= number:
                break
            found.append([range_id, *told])
        return found
