"""Snapshots of a log: a committed prefix of every range, which a lease keeps readable.

Taking a snapshot asks each range, linearizably, for its last seq, and then leases the visible
entries up to that seq. Both requests may be repeated, and go to the ranges that hold the keys by
then. Seqs are never given twice (S5, S6), so the entries up to that seq stay the same in every
later range. Two reads of one snapshot show the same (x14).
"""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from . import progress
from .appends import checked_key
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .entry_columns import ArrowBatch, EntryColumns, arrow, columns_of
from .gathering import each
from .key_choice import chosen
from .protocol import Operation, limits
from .protocol.appends import LEASE_RELEASE, LEASE_TAKE
from .protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    LognodeError,
    NotFound,
)
from .protocol.reads import READ_SPAN, SCAN
from .protocol.types import Entry, Pattern
from .routing import Range
from .span_columns import check_one_of, columns_of_spans
from .span_pages import How, Span, lease_ended
from .span_positions import least, overlay, span_positions
from .stored_keys import shown_answer, stored
from .vector import Part, Vector

lease_s_default: Final = 3_600.0
_GIVE_UP_S: Final = 1.0
"""Time limit for releasing the lease of a failed call."""
Body = Mapping[Any, Any]


class AsyncSnapshot:
    """A committed prefix of a log; made by `AsyncLog.snapshot` and `open_snapshot`.

    The entries of a snapshot never change until its lease ends, whatever is appended, removed,
    split, merged or moved. Every method takes `timeout`, seconds, the log's by default; reads have
    it per page. All raise LogNotFound, Unavailable, Timeout.
    """

    def __init__(
        self, cluster: Cluster, routes: LogRoutes, vector: Vector, *, timeout: float
    ) -> None:
        self._cluster = cluster
        self._routes = routes
        self._timeout = timeout
        self._vector = vector

    def __repr__(self) -> str:
        return f"<AsyncSnapshot of {self._vector.log!r}>"

    @property
    def vector(self) -> Vector:
        """The last seq of the snapshot for each span of keys, and the lease."""
        return self._vector

    def to_json(self) -> str:
        """Return the vector as one line of JSON, for `from_json` and `AsyncLog.open_snapshot`."""
        return self._vector.to_json()

    @staticmethod
    def from_json(text: str) -> Vector:
        """Return the vector that `to_json` wrote. Raises InvalidArgument."""
        return Vector.from_json(text)

    async def read(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Entry]:
        """Yield the entries of one key, of the keys with a prefix, of the keys that match a
        pattern or a list of patterns, or all entries; each key's in the order of seq.

        Raises NotFound once the lease has ended, because its entries may be gone.
        """
        async with aclosing(self._columns(key, prefix, pattern, timeout)) as found:
            async for columns in found:
                for entry in columns.entries():
                    yield entry

    async def read_in_order(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        timeout: float | None = None,
    ) -> AsyncIterator[tuple[bytes, EntryColumns]]:
        """Yield the entries with keys in [start, end) as columns, each with the first key of its
        span.

        Seqs are unrelated between ranges, and between the keys of two ranges that were merged. The
        first keys cut [start, end) into spans, and the entries of a span come in the order of seq.
        In a log with Kafka partitions, all these keys are as the ranges store them.
        A later first key may cut a span whose entries came before. Raises the errors of `read`.
        """
        for low, high, through, _ in overlay(self._vector.parts, [(start, end, 0)]):
            rest: list[tuple[bytes, bytes | None, int]] = [(low, high, 1)]
            while rest:
                at, until, seq = rest.pop()
                while seq <= through:
                    body = {
                        "start_key": at, "end_key": until, "start": seq,
                        "as_of": self._vector.lease, "limit": limits.page_entries_max,
                        "bytes": limits.page_bytes_default,
                    }  # fmt: skip
                    page, known = await self._ask(at, READ_SPAN, body, timeout)
                    covered = least(known.end, until, page["end_key"])
                    if covered is not None and covered != until:
                        rest.append((covered, until, seq))
                        until = covered
                    columns = columns_of(page)
                    if columns is not None:
                        yield at, columns
                    if not page["more"]:
                        break
                    seq = progress.higher(page, "next", seq)

    async def read_columns(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[EntryColumns]:
        """Yield the entries that `read` yields, in the same order, as columns.

        A batch has at most 20,000 entries, usually some thousands. While the caller works on a
        batch, the next page is fetched. Raises the errors of `read`.
        """
        async with aclosing(self._columns(key, prefix, pattern, timeout)) as found:
            async for columns in found:
                yield columns

    async def read_arrow(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[ArrowBatch]:
        """Yield the batches of `read_columns` as `pyarrow.RecordBatch`; see
        `EntryColumns.to_arrow`.

        Raises the errors of `read`, and Unsupported where pyarrow is not installed.
        """
        arrow()
        async with aclosing(self._columns(key, prefix, pattern, timeout)) as found:
            async for columns in found:
                yield columns.to_arrow()

    async def _columns(
        self, key: bytes | str | None, prefix: bytes | str | None, pattern: Pattern | None,
        timeout: float | None,
    ) -> AsyncGenerator[EntryColumns, None]:  # fmt: skip
        check_one_of(key, prefix, pattern)
        how = How("linearizable", self._timeout if timeout is None else timeout)
        if key is not None:
            found = self._columns_of_key(checked_key(key), timeout)
        else:
            choice = await chosen(
                self._cluster, self._routes, prefix, pattern, self._deadline(timeout)
            )
            asked = [(low, high, 0) for low, high in choice.spans]
            spans = [
                Span(low, high, 1, through + 1, self._vector.lease, choice.patterns)
                for low, high, through, _ in overlay(self._vector.parts, asked)
            ]
            found = columns_of_spans(self._cluster, self._routes, spans, how, self._check_log)
        async with aclosing(found) as batches:
            async for columns in batches:
                yield columns

    def _check_log(self) -> None:
        check_log(self._cluster, self._routes, self._vector)

    async def _columns_of_key(
        self, key: bytes, timeout: float | None
    ) -> AsyncGenerator[EntryColumns, None]:
        await self._cluster.routed(self._routes, self._deadline(timeout))
        shown, key = key, stored(self._routes, key)
        part = next(p for p in self._vector.parts if p.end is None or key < p.end)
        at, more = 1, part.through_seq > 0
        while more:
            body = {
                "key": key, "start": at, "end": None, "reverse": False, "as_of": self._vector.lease,
                "limit": limits.page_entries_max, "bytes": limits.page_bytes_default,
            }  # fmt: skip
            page, _ = await self._ask(key, SCAN, body, timeout)
            columns = columns_of(shown_answer(self._routes, page, shown))
            if columns is not None:
                yield columns
            more = page["more"]
            at = progress.higher(page, "next", at) if more else at

    async def _ask(
        self, key: bytes, operation: Operation, body: Body, timeout: float | None
    ) -> tuple[dict[str, Any], Range]:
        seconds = self._timeout if timeout is None else timeout
        full = {**body, "timeout_ms": milliseconds(seconds)}
        try:
            answer = await self._cluster.call(
                self._routes, key, operation, full, deadline=self._cluster.now() + seconds
            )
        except NotFound as error:
            if error.code != NotFound.code:
                raise
            raise lease_ended(self._vector.log) from None
        check_log(self._cluster, self._routes, self._vector)
        return answer

    # The lease.

    async def renew(
        self, lease_s: float = lease_s_default, *, timeout: float | None = None
    ) -> None:
        """Extend the lease to end in `lease_s` seconds at the earliest, at most 7 days.

        Raises NotFound when the lease has ended.
        """
        expires_ms = await _lease(
            self._cluster, self._routes, self._vector, checked_lease_ms(lease_s),
            self._deadline(timeout), renew=True,
        )  # fmt: skip
        self._vector = self._vector._replace(expires_ms=expires_ms)

    async def release(self, *, timeout: float | None = None) -> None:
        """End the lease, so that the entries that only this lease holds can be removed; reads then
        raise NotFound.

        A failed call may be made again.
        """
        await _release(self._cluster, self._routes, self._vector.lease, self._deadline(timeout))

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)


async def take(
    cluster: Cluster, routes: LogRoutes, lease_s: float, timeout: float
) -> AsyncSnapshot:
    """Take a snapshot of all entries acknowledged before the call, and maybe of more.

    A request for a lease is sent again when no answer came. If its range was split before the first
    try, and merged with its neighbour after, the range has a lease of this name on a part of the
    keys, and refuses another one: the snapshot is then taken again under another name.

    Raises LimitExceeded for a `lease_s` that is out of bounds.
    """
    lease_ms = checked_lease_ms(lease_s)
    deadline = cluster.now() + timeout
    while True:
        try:
            return await _take(cluster, routes, lease_ms, deadline, timeout)
        except Conflict:
            if cluster.now() >= deadline:
                raise


async def _take(
    cluster: Cluster, routes: LogRoutes, lease_ms: int, deadline: float, timeout: float
) -> AsyncSnapshot:
    """Take a snapshot. Raises Conflict when a range has a lease of its name on other keys."""

    async def ends(known: Range) -> list[Part]:
        found = await span_positions(
            cluster, routes, "latest", known.start, known.end, deadline=deadline
        )
        return [Part(start, end, seq - 1) for start, end, seq in found]

    found = await each(await cluster.all_ranges(routes, deadline), ends)
    vector = Vector(
        cluster.pool.cluster or "", routes.name, routes.log_id or 0, os.urandom(16).hex(), 0,
        tuple(part for parts in found for part in parts),
    )  # fmt: skip
    try:
        expires_ms = await _lease(cluster, routes, vector, lease_ms, deadline)
        check_log(cluster, routes, vector)
    except BaseException:  # cancelled too: an unused lease would hold entries until it expires
        with contextlib.suppress(LognodeError):
            await _release(cluster, routes, vector.lease, cluster.now() + _GIVE_UP_S)
        raise
    return AsyncSnapshot(cluster, routes, vector._replace(expires_ms=expires_ms), timeout=timeout)


def checked_lease_ms(lease_s: float) -> int:
    """Return the lease in milliseconds. Raises LimitExceeded when the lease is too short or too
    long."""
    lease_ms = int(lease_s * 1000)
    if not 1 <= lease_ms <= limits.lease_ms_max:
        raise LimitExceeded(
            f"lease_s is {lease_s:,.12g}; give 0.001 s to {limits.lease_ms_max // 86400000} days",
            limit="lease_ms_max", value=lease_ms, allowed=limits.lease_ms_max,
        )  # fmt: skip
    return lease_ms


def check_log(cluster: Cluster, routes: LogRoutes, vector: Vector) -> None:
    """Raise InvalidArgument when the snapshot is known to belong to another log or cluster."""
    here = cluster.pool.cluster
    if here is not None and here != vector.cluster:
        raise InvalidArgument(
            f"the snapshot is of cluster {vector.cluster!r}; this client is of cluster {here!r}",
            what="snapshot",
        )
    if vector.log != routes.name:
        raise InvalidArgument(
            f"the snapshot is of log {vector.log!r}; this log is {routes.name!r}", what="snapshot"
        )
    if routes.log_id is not None and routes.log_id != vector.log_id:
        raise InvalidArgument(
            f"the log {vector.log!r} of the snapshot was deleted; the log with this name "
            "was created later",
            what="snapshot",
        )


async def _lease(
    cluster: Cluster, routes: LogRoutes, vector: Vector, lease_ms: int, deadline: float,
    *, renew: bool = False,
) -> int:  # fmt: skip
    """Take or renew the lease in every range; return the earliest expiry."""

    async def one(part: Part) -> int:
        expires_ms: list[int] = []
        at: bytes | None = part.start
        while at is not None and (part.end is None or at < part.end):
            body = {
                "lease": vector.lease, "start_key": at, "end_key": part.end,
                "through": part.through_seq, "lease_ms": lease_ms, "renew": renew,
            }  # fmt: skip
            answer, _ = await cluster.call(routes, at, LEASE_TAKE, body, deadline=deadline)
            expires_ms.append(answer["expires_ms"])
            at = progress.end_key(answer, at)
        return min(expires_ms)

    return min(await each(vector.parts, one))


async def _release(cluster: Cluster, routes: LogRoutes, lease: str, deadline: float) -> None:
    async def one(known: Range) -> None:
        at: bytes | None = known.start
        while at is not None and (known.end is None or at < known.end):
            _, now = await cluster.call(
                routes, at, LEASE_RELEASE, {"lease": lease}, deadline=deadline
            )
            at = now.end

    await each(await cluster.all_ranges(routes, deadline), one)
