"""What `lognode status` shows of a process that serves a tier: logs, ranges, and their age."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from ...client.protocol import limits
from ..runtime.slices import in_slices
from ..tier.tier_files import TierFiles
from .following import Following, ServedLog
from .served_range import NODE, ServedRange
from .snapshot_leases import SnapshotLeases

VERSION: Final = 1
"""The version of the metadata in all answers. It never rises: a client may ask several processes,
and takes what the ranges say themselves, their generations."""

Row = dict[str, Any]


class TierStatus:
    """Makes the answers to `status` and `health`. `wall_ms`: Unix time."""

    def __init__(
        self, following: Following, leases: SnapshotLeases, files: TierFiles, *, place: str,
        address: Callable[[], str], max_stale_s: float, wall_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._following = following
        self._leases = leases
        self._files = files
        self._place = place
        self._address = address
        self._max_stale_s = max_stale_s
        self._wall_ms = wall_ms

    async def page(self, body: Row) -> Row:
        """Return the next rows of logs and ranges; see the table of operations."""
        limit = min(body["limit"], limits.status_page_max)
        first = 0 if body["after"] is None else body["after"][1]
        answer: Row = {"logs": [], "ranges": [], "operations": [], "replicas": [], "damaged": []}
        if not first:
            answer |= self._head()
        makers = islice(self._rows(), first, first + limit + 1)
        rows = await in_slices((section, make()) for section, make in makers)
        for section, row in rows[:limit]:
            answer[section].append(row)
        more = len(rows) > limit
        return {**answer, "next": [0, first + limit] if more else None}

    def health(self) -> Row:
        """Return whether the last look at the manifests succeeded in time."""
        following = self._following
        age_s, reasons = following.age_s(), []
        if following.error:
            reasons.append(f"the last look at {self._place} failed: {following.error}")
        if age_s > self._max_stale_s:
            reasons.append(
                f"the manifests are {age_s:.0f} s old, and reads are refused after "
                f"{self._max_stale_s:g} s (--max-stale)"
            )
        step = "check that this machine reaches the store, and its credentials" if reasons else None
        return {"ok": not reasons, "reasons": reasons, "next": step}

    def _head(self) -> Row:
        following = self._following
        written = [each.written_ms for each in following.served.ranges.values()]
        return {
            "cluster": {
                "id": following.cluster, "version": VERSION, "controller": [],
                "controller_leader": None, "answered_by": NODE, "serves_tier": self._place,
                "looked_s_ago": round(following.age_s(), 3),
                "oldest_manifest_s": self._age_s(min(written)) if written else None,
                "newest_manifest_s": self._age_s(max(written)) if written else None,
            },
            "nodes": [
                {
                    "id": NODE, "address": self._address(), "http": "", "zone": "",
                    "state": "ACTIVE", "replicas": len(written), "alive": True,
                }
            ],
            "tier": {
                "place": self._place, "last_error": following.error or None,
                "leases": self._leases.count, **self._files.row(),
            },
        }  # fmt: skip

    def _rows(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """Yield each row's section, and what makes the row."""
        logs = list(self._following.served.logs.values())
        for log in logs:
            yield "logs", partial(_of_log, log)
        for log in logs:
            for each in log.ranges:
                yield "ranges", partial(self._range, log, each)

    def _range(self, log: ServedLog, each: ServedRange) -> Row:
        state = each.state
        return {
            "id": each.gid.range_id, "log": log.facts.name, "start": each.span[0],
            "end": each.span[1], "generation": each.gid.generation, "members": [NODE],
            "live_members": [NODE], "leader": NODE, "state": "ACTIVE", "operation": 0,
            "records_per_s": None, "bytes_per_s": None, "reads_per_s": None,
            "segment_bytes": sum(info.size for info in state.manifest), "memtable_bytes": 0,
            "entries_held": sum(info.entries for info in state.manifest),
            "applied": state.applied_index, "last_seq": state.next_seq - 1,
            "last_timestamp_ms": state.last_timestamp_ms,
            "manifest_s": self._age_s(each.written_ms),
        }  # fmt: skip

    def _age_s(self, written_ms: int) -> float:
        """Return the age of a manifest by the clocks of two machines."""
        return max(0.0, (self._wall_ms() - written_ms) / 1_000)


def _of_log(log: ServedLog) -> Row:
    return {**log_row(log), **log.facts.policy, "ranges": len(log.ranges)}


def log_row(log: ServedLog) -> Row:
    """Return a log as metadata have it."""
    facts = log.facts
    hierarchy = bytes.fromhex(facts.hierarchy) if facts.hierarchy else None
    found: Row = {"id": facts.log_id, "name": facts.name, "policy": dict(facts.policy)}
    return found if hierarchy is None else {**found, "hierarchy": hierarchy}
