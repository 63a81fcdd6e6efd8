"""How far the reads of one log have seen it, so that prefix reads never go back (x2.19).

Any member may serve a prefix read, also one that lags. So a session knows per span of keys which
generation it has read from and the last index that was applied there; both travel with a prefix
read, and a member that has not applied as much refuses. A generation holds all that its
predecessors held, whatever their spans were: having seen one, the session never again reads from
a range that it replaced.
"""

from .protocol.errors import RangeNotFound
from .routing import Range


class Session:
    """Of one log in one client. Holds one position for each of the log's ranges."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[Range, int]] = {}
        """(range, generation): the range and the applied index; they never overlap."""

    def saw(self, known: Range, applied: int) -> None:
        """A read from this generation was answered after `applied` was applied there."""
        key = (known.range_id, known.generation)
        if key in self._seen:
            self._seen[key] = known, max(applied, self._seen[key][1])
        elif not self._is_over(known):
            self._seen = {
                other: seen
                for other, seen in self._seen.items()
                if not seen[0].overlaps(known.start, known.end)
            }
            self._seen[key] = known, applied

    def position(self, known: Range) -> int:
        """The applied index that a read from this generation must not fall behind.

        Raises RangeNotFound when a later generation of any of its keys was seen.
        """
        seen = self._seen.get((known.range_id, known.generation))
        if seen is not None:
            return seen[1]
        if self._is_over(known):
            raise RangeNotFound(
                f"{known} is over: this session has read from its successor", range=known.range_id
            )
        return 0

    def _is_over(self, known: Range) -> bool:
        return any(
            later.generation > known.generation and later.overlaps(known.start, known.end)
            for later, _ in self._seen.values()
        )
