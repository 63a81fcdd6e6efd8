"""The table of leaders; its changes are numbered, so that only changes are sent.

The statement with the higher (generation, term) on a range counts. Within a term, "has stepped
down" counts more than any leader, since a node that stepped down never leads again in that term.
"""

from collections.abc import Set
from typing import Final, NamedTuple

NOBODY: Final = 0


class Told(NamedTuple):
    """One statement; `node` is NOBODY when the leader of that term has stepped down."""

    generation: int
    term: int
    node: int

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The statement's rank: the statement of higher rank counts."""
        return (self.generation, self.term, self.node == NOBODY)


class Leaders:
    """The newest statement on each range, in the order of their changes."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the last change."""
        self._rows: dict[int, tuple[int, Told]] = {}

    def __getitem__(self, range_id: int) -> Told | None:
        row = self._rows.get(range_id)
        return None if row is None else row[1]

    def learn(self, range_id: int, told: Told) -> None:
        """Store the statement if it has a higher rank than the known statement."""
        known = self[range_id]
        if known is not None and told.rank <= known.rank:
            return
        self._rows.pop(range_id, None)
        self.number += 1
        self._rows[range_id] = (self.number, told)

    def forget(self, range_id: int) -> None:
        """Remove the statement on this range: it was wrong, or the range is over."""
        self._rows.pop(range_id, None)

    def range_ids(self) -> Set[int]:
        """Return the ranges with a statement."""
        return self._rows.keys()

    def since(self, number: int) -> list[list[int]]:
        """Return rows [range, generation, term, node] of later changes than `number`, newest first.

        The cost is proportional to the returned rows.
        """
        found = []
        for range_id, (changed, told) in reversed(self._rows.items()):
            if changed <= number:
                break
            found.append([range_id, *told])
        return found
