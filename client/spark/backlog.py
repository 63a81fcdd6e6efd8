"""The backlog of a stream: what lies behind the micro-batch that was planned last.

Spark shows it in the progress of the query, within the latest offset.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..protocol.errors import LognodeError
from .offsets import Unread
from .session import Session

spans_max: Final = 64
"""The spans with the most unread entries, whose oldest entries are looked up."""
size_s: Final = 60.0
"""How long the mean size of the entries of a log is taken as known."""


class Backlog:
    """Measures the backlog in one run of a query."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[float, float]] = {}
        """The mean stored bytes of an entry of each log, and until when they are used."""

    def of(
        self, connect: Callable[[], Session], unread: Mapping[str, Sequence[Unread]]
    ) -> dict[str, Any]:
        """Return the number of unread entries of these logs, their approximate stored bytes, and
        the age of the oldest, in seconds; without bytes and age when they are not known now."""
        counts = {name: sum(span.seqs for span in spans) for name, spans in unread.items()}
        found = {"entries": sum(counts.values()), "bytes": 0, "seconds": 0}
        if not found["entries"]:
            return found
        try:
            with connect() as session:
                size = sum(
                    count * self._size(session.of_log(name), name)
                    for name, count in counts.items() if count
                )  # fmt: skip
                oldest_ms = self._oldest_ms(session, unread)
        except LognodeError:  # the query goes on without these
            return {"entries": found["entries"]}
        age_s = 0.0 if oldest_ms is None else time.time() - oldest_ms / 1000
        return {**found, "bytes": round(size), "seconds": max(0, round(age_s))}

    def _size(self, session: Session, name: str) -> float:
        size, until_s = self._sizes.get(name, (0.0, 0.0))
        now_s = time.monotonic()
        if now_s >= until_s:
            stored, seqs = session.stored()
            size = stored / max(1, seqs)
            self._sizes[name] = size, now_s + size_s
        return size

    @staticmethod
    def _oldest_ms(session: Session, unread: Mapping[str, Sequence[Unread]]) -> int | None:
        rows = [(span, name) for name, spans in unread.items() for span in spans]
        rows.sort(key=lambda row: row[0].seqs, reverse=True)
        found: list[int] = []
        for name in unread:
            spans = [span for span, of in rows[:spans_max] if of == name]
            found += session.of_log(name).first_times([(s.start, s.end, s.next) for s in spans])
        return min(found, default=None)
