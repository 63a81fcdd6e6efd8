"""What waits for the tier on this node, and how the last request ended: for status and metrics."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...client.protocol.errors import LognodeError
from ...raft.types import GroupId
from ..metrics import Metrics

_CHARS_MAX = 300


class Waiting(NamedTuple):
    """Files of a range led here that the tier lacks. `since`: monotonic time."""

    files: int
    size: int
    since: float


class TierProgress:
    """Counts for one node. `clock`: monotonic, in seconds; `wall_ms`: Unix time."""

    def __init__(
        self, place: str, metrics: Metrics, clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._place = place
        self._metrics = metrics
        self._clock = clock
        self._wall_ms = wall_ms
        self._waiting: dict[GroupId, Waiting] = {}
        self._success_ms: int | None = None
        self._error = ""
        metrics.tier_waiting_files.set_function(lambda: self.total().files)
        metrics.tier_waiting_bytes.set_function(lambda: self.total().size)
        metrics.tier_waiting_seconds.set_function(self.waited_s)

    def waits(self, gid: GroupId, files: int, size: int) -> None:
        """Note how much of a range waits, from now on or still."""
        known = self._waiting.get(gid)
        if not files:
            self._waiting.pop(gid, None)
        else:
            since = self._clock() if known is None else known.since
            self._waiting[gid] = Waiting(files, size, since)

    def moved_on(self, gid: GroupId) -> None:
        """Note that a file of the range arrived: the others wait from now on."""
        known = self._waiting.get(gid)
        if known is not None:
            self._waiting[gid] = known._replace(since=self._clock())

    def forget(self, gid: GroupId) -> None:
        """Note that this node does not lead the range any more."""
        self._waiting.pop(gid, None)

    def uploaded(self, size: int) -> None:
        """Note an uploaded file."""
        self._metrics.tier_uploaded_files.inc()
        self._metrics.tier_uploaded_bytes.inc(size)

    def removed(self, count: int, size: int) -> None:
        """Note what a sweep has removed."""
        self._metrics.tier_removed_objects.inc(count)
        self._metrics.tier_removed_bytes.inc(size)

    def succeeded(self) -> None:
        """Note that a manifest was published."""
        self._success_ms, self._error = self._wall_ms(), ""
        self._metrics.tier_success_time.set(self._success_ms / 1_000)

    def failed(self, error: LognodeError | OSError) -> None:
        """Note the error of a request or of a local file."""
        text = error.message if isinstance(error, LognodeError) else str(error)
        self._error = " ".join(text.split())[:_CHARS_MAX]
        self._metrics.tier_errors.inc()

    def total(self) -> Waiting:
        """Return what waits of all ranges, and since when the first of them waits."""
        rows = self._waiting.values()
        since = min((row.since for row in rows), default=self._clock())
        return Waiting(sum(row.files for row in rows), sum(row.size for row in rows), since)

    def waited_s(self) -> float:
        """Return how long a range has waited without any upload; 0 if none waits."""
        return self._clock() - self.total().since

    def row(self) -> dict[str, Any]:
        """Return the part of the node's status."""
        total = self.total()
        return {
            "place": self._place,
            "waiting_files": total.files,
            "waiting_bytes": total.size,
            "waiting_s": round(self._clock() - total.since, 3),
            "last_success_ms": self._success_ms,
            "last_error": self._error or None,
        }
