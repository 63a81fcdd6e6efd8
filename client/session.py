"""The positions that the reads of one log have seen, so that prefix reads never go back (x2.19).

Any member may serve a prefix read, also a member that lags. So for each span of keys a session
notes the generation that it has read from and the last index applied there. A prefix read carries
both, and a member that has applied less refuses. A generation holds all that its predecessors held,
whatever their spans: after a read from it, the session never again reads from a range that it
replaced.
"""

from .protocol.errors import RangeNotFound
from .routing import Range


class Session:
    """The read positions of one log in one client: one position for each of the log's ranges."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[Range, int]] = {}
        """(range, generation) to the range and its applied index; the ranges never overlap."""

    def saw(self, known: Range, applied: int) -> None:
        """Note that a read from this generation was answered after `applied` was applied there."""
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
        """Return the applied index that a read from this generation must not fall behind.

        Raises RangeNotFound when the session has seen a later generation of any of its keys.
        """
        seen = self._seen.get((known.range_id, known.generation))
        if seen is not None:
            return seen[1]
        if self._is_over(known):
            raise RangeNotFound(
                f"{known} has ended: this session has read from its successor", range=known.range_id
            )
        return 0

    def _is_over(self, known: Range) -> bool:
        return any(
            later.generation > known.generation and later.overlaps(known.start, known.end)
            for later, _ in self._seen.values()
        )
