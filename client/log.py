"""One log: append, read, follow. Positions are the next seq wanted; spans are half-open."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import repeat
from operator import setitem
from typing import Any, Final

from . import group_names
from .appends import (
    AppendBatch,
    Columns,
    all_or_raise,
    check_one_batch,
    checked_key,
    checked_record,
    exhaust,
    to_expect,
    to_key,
)
from .cluster import Cluster, described
from .consumer import (
    AsyncConsumer,
    Options,
    begin_of_group,
    bytes_default,
    hold_s_default,
    keys_default,
)
from .cursor import AsyncKeptCursor, checked_start, listed
from .entry_columns import EntryColumns, columns_of
from .follow import AsyncFeed
from .group import AsyncGroup
from .group_batch import AsyncGroupBatch, acknowledged
from .key_choice import check_one_choice, chosen
from .key_pages import key_pages
from .key_reads import KeyReads
from .pages import entries_of, read_page
from .producer import AsyncProducer, delivery_timeout_s
from .protocol import Operation, limits
from .protocol.appends import DELETE_KEYS, TRIM
from .protocol.errors import InvalidArgument, LognodeError, Timeout
from .protocol.key_spans import prefix_span
from .protocol.reads import COUNT_ENTRIES, LATEST
from .protocol.records import EXPECT_ANY
from .protocol.types import (
    ANY,
    Ack,
    Consistency,
    CursorInfo,
    CursorStart,
    End,
    Entry,
    Expect,
    FollowStart,
    GivenHeaders,
    GroupInfo,
    GroupStart,
    Ordering,
    Pattern,
    Start,
    Updated,
    ViewInfo,
    ViewPolicy,
)
from .sender import Sender
from .snapshot import AsyncSnapshot, check_log, lease_s_default, take
from .span_columns import check_one_of, scan_span
from .span_pages import How
from .updates import Change, Updates, read_turn
from .vector import Vector
from .view_choice import WaitFor
from .view_waits import Views, Waited, wait_ms_default

Record = tuple[bytes | str, bytes | None] | tuple[bytes | str, bytes | None, GivenHeaders | None]
"""(key, value) or (key, value, headers); a value of None is a tombstone."""
append_many_records_max: Final = 50_000
"""Records that one append_many takes at once; it takes more as these are settled."""
_LATE_S: Final = 0.05
"""How long a call waits after its deadline. The deadline of its batch is not before that of the
call, and at its deadline the batch knows its outcome."""


class AsyncLog:
    """A log by name; made by `AsyncClient.log`. The first use finds out whether the log exists.

    Every method takes `timeout`, seconds, the client's by default: one deadline for waits and
    retries. For scans and key listings the timeout holds per page.

    Reads are linearizable: they show every append acknowledged before they began (S7), whichever
    member serves them. With `consistency="prefix"` a read may lag and needs no leader. A client
    then stays with one member, and its view of a log never goes back, even across members and
    generations. `node=ID` reads from the replica on that node, at either consistency; `through=SEQ`
    reads after the replica has applied that seq.

    All methods raise LogNotFound, Unavailable, Timeout, InvalidArgument; each method names its
    other errors.
    """

    def __init__(self, cluster: Cluster, name: str, *, timeout: float) -> None:
        self._name = name
        self._cluster = cluster
        self._routes = cluster.log(name)
        self._timeout = timeout
        self._reads = KeyReads(cluster, self._routes, timeout)
        self._views = Views(cluster, self._routes)
        self._sender: Sender | None = None
        self._updates = Updates(partial(read_turn, cluster, self._routes), self._append_values)

    def __repr__(self) -> str:
        return f"<AsyncLog {self._name!r}>"

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._name

    # Appending.

    async def append(
        self,
        key: bytes | str,
        value: bytes | None,
        *,
        headers: GivenHeaders | None = None,
        expect: Expect = ANY,
        snapshot: bool = False,
        wait_for: WaitFor = (),
        wait_ms: int = wait_ms_default,
        timeout: float | None = None,
    ) -> Ack:
        """Append one entry; when it returns, a majority has it on disk (S1).

        `value` None writes a tombstone; `snapshot=True` marks a logical snapshot of the key.
        `expect`: ANY, ABSENT, or the key's last seq, checked atomically.
        `wait_for`: names of views, `AllOf` or `AnyOf`; the call then also waits until these views
        have acknowledged the entry, at most `wait_ms` milliseconds (30,000 at most). `ack.seen`
        says by name which views have. Raises NotFound for an unknown view and appends nothing.
        Raises SequenceMismatch, LimitExceeded. Concurrent calls share batches.
        """
        deadline = self._deadline(timeout)
        wanted, size, found = checked_record(key, value, headers)
        if wait_for:
            waited = await self._views.waited(wait_for, wait_ms, [wanted], deadline)
            left = deadline - self._cluster.now()
            ack = await self.append(
                key, value, headers=headers, expect=expect, snapshot=snapshot, timeout=left
            )
            return (await self._views.seen(waited, [wanted], [ack]))[0]
        condition = EXPECT_ANY if expect is ANY else to_expect(expect)
        if (sender := self._sender) is None or not sender.is_ready:  # seldom: needs a coroutine
            sender = await self._ready(deadline)
        batch, position = sender.batcher.add(
            wanted, value, found, size, deadline, expect=condition, snapshot=snapshot
        )
        if not batch.done.done():
            await batch.waiter(deadline + _LATE_S)
        if not batch.done.done():
            raise self._late()
        return batch.ack(position)

    async def append_many(
        self,
        records: Iterable[Record],
        *,
        expects: Sequence[Expect] | None = None,
        wait_for: WaitFor = (),
        wait_ms: int = wait_ms_default,
        timeout: float | None = None,
    ) -> list[Ack]:
        """Append any number of entries to any ranges; the order is kept per key.

        `expects`: a condition for each record, like `expect` of `append`. A record whose condition
        does not hold fails with SequenceMismatch, and the others are appended.
        Returns an Ack per record, in order. Not atomic: raises PartialFailure when only some
        records were appended, with `acks`, `errors` and `outcomes` in the order of the records.
        When no record was appended and all failed for one reason, raises that error. Raises
        LimitExceeded before anything is sent. `wait_for` and `wait_ms` are as for `append`; the
        wait begins when all records are appended.
        """
        deadline = self._deadline(timeout)
        columns = Columns(records if isinstance(records, (list, tuple)) else list(records), expects)
        results: list[Ack | LognodeError] = []
        if not len(columns):
            return []
        waited: Waited | None = None
        if wait_for:
            waited = await self._views.waited(wait_for, wait_ms, columns.keys, deadline)
        for part in columns.slices(append_many_records_max, limits.producer_unacked_bytes_default):
            try:
                sender = await self._ready(deadline, len(part))
            except LognodeError as error:
                results += [error] * (len(columns) - len(results))
                break
            results += await self._append_part(sender, part, deadline)
        acks = all_or_raise(results)
        return acks if waited is None else await self._views.seen(waited, columns.keys, acks)

    async def _append_part(
        self, sender: Sender, columns: Columns, deadline: float
    ) -> list[Ack | LognodeError]:
        batches = sender.batcher.add_columns(columns, deadline)
        results: list[Any] = [None] * len(columns)
        for batch, at, positions in batches:
            try:
                await self._settled(batch, deadline)
                acks = batch.acks_of(at, len(positions))
            except Timeout as error:  # other callers share the batch and have more time
                acks = [error] * len(positions)
            if isinstance(positions, range):
                results[positions.start : positions.stop] = acks
            else:
                exhaust(map(setitem, repeat(results), positions, acks))
        return results

    async def append_batch(
        self,
        records: Sequence[Record],
        *,
        acks: Sequence[AsyncGroupBatch] = (),
        wait_for: WaitFor = (),
        wait_ms: int = wait_ms_default,
        timeout: float | None = None,
    ) -> Ack:
        """Append entries to one range, all or nothing (S10).

        The Ack's `seq` is that of the first record; the others follow without a gap. A batch has at
        most `batch_records_max` records and `batch_bytes_max` bytes. Raises LimitExceeded, and
        BatchSpansRanges when the keys lie in several ranges. `wait_for` and `wait_ms` are as for
        `append`; a view has seen the batch when it has acknowledged all records.

        `acks`: batches of a consumer of this log, whose keys lie in the same range. The append
        acknowledges all their entries in the same step: both happen, or neither. Raises Fenced when
        the consumer no longer has a key. After an error with unknown outcome, take the batch that
        the consumer is given next, if any: this call has happened as a whole or not at all.
        """
        deadline = self._deadline(timeout)
        columns = Columns(records)
        check_one_batch(columns)
        waited: Waited | None = None
        if wait_for:
            waited = await self._views.waited(wait_for, wait_ms, columns.keys, deadline)
        sender = await self._ready(deadline, len(columns))
        settles = acknowledged(acks, self._routes) if acks else None
        batch = sender.batcher.add_atomic(columns, deadline, settles=settles)
        await self._settled(batch, deadline)
        ack = batch.ack(0)
        if waited is None:
            return ack
        found = all_or_raise(batch.acks_of(0, len(columns)))
        seen = await self._views.seen_together(waited, columns.keys, found)
        return ack._replace(seen=seen)

    async def update(
        self, key: bytes | str, change: Change, *, timeout: float | None = None
    ) -> Updated:
        """Append `change(value)`, where `value` is the key's last value, with no entry between
        the two (S9).

        `value` is None for a key without entries and after a tombstone; a result of None writes a
        tombstone. The callers of a client are served in the order of their calls, and clients take
        turns. `change` runs on the client's event loop and must not block or call the client. It
        may run several times. When `change` raises an error, nothing is appended, and the call
        raises that error. Raises LimitExceeded.
        """
        return await self._updates.update(checked_key(key), change, self._deadline(timeout))

    async def _append_values(
        self, key: bytes, values: list[bytes | None], expect: int, deadline: float
    ) -> list[Ack | LognodeError]:
        """Append values to a key, all or none, if its last seq is `expect`. Raises the errors of
        `append_batch`."""
        sender = await self._ready(deadline, len(values))
        columns = Columns(list(zip(repeat(key), values, strict=False)))
        if len(values) == 1:  # records of other keys may share the batch
            batch, position = sender.batcher.add(
                key, values[0], None, columns.sizes[0], deadline, expect=expect
            )
        else:
            batch, position = sender.batcher.add_atomic(columns, deadline, expect=expect), 0
        await self._settled(batch, deadline)
        return batch.acks_of(position, len(values))

    def producer(
        self,
        *,
        name: str | None = None,
        linger_ms: float = 5,
        unacked_bytes_max: int = limits.producer_unacked_bytes_default,
        timeout: float = delivery_timeout_s,
    ) -> AsyncProducer:
        """Return a producer, which appends many records with few waits; see AsyncProducer.

        `linger_ms`: how long a batch waits for more records. `unacked_bytes_max`: the
        unacknowledged bytes at which `submit` begins to wait. `timeout`: seconds after which the
        producer gives a record up.
        """
        return AsyncProducer(
            self._cluster, self._routes, name=name, linger_ms=linger_ms,
            unacked_bytes_max=unacked_bytes_max, timeout=timeout,
        )  # fmt: skip

    # Reading.

    async def scan(
        self,
        key: bytes | str,
        *,
        start: Start = "earliest",
        end: End = None,
        limit: int | None = None,
        reverse: bool = False,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        through: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Entry]:
        """Yield the key's entries with seq in [start, end), oldest first or newest first.

        `start` may also be "earliest", "latest", "snapshot" (the newest entry that was appended
        with snapshot=True), Tail(n) or Timestamp(ms); `end` may be Timestamp(ms). `limit` bounds
        the number of entries.

        The scan reads page by page. Entries that are trimmed, deleted, compacted or removed by
        retention during the scan are missing from the later pages.
        """
        bounds = checked_key(key), start, end, limit, reverse
        how = How(consistency, self._timeout if timeout is None else timeout, node, through)
        async with aclosing(self._reads.pages(*bounds, how)) as pages:
            async for page in pages:
                for entry in entries_of(page):
                    yield entry

    async def scan_columns(
        self,
        key: bytes | str | None = None,
        prefix: bytes | str | None = None,
        *,
        pattern: Pattern | None = None,
        start: Start = "earliest",
        end: End = None,
        limit: int | None = None,
        reverse: bool = False,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        through: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[EntryColumns]:
        """Yield entries of one key, of the keys with a prefix, of the keys that match a pattern
        or a list of patterns, or of all keys, as columns; each key's in the order of seq.

        With a key, the entries and the arguments are those of `scan`. Without one, `start` is a
        seq, "earliest" or Timestamp(ms), and `reverse` is refused. Such a scan has all entries
        that were acknowledged before it began, ends while others append, and takes no lease:
        entries that are removed during the scan are missing from the later pages. For the same
        entries at each read, take a `snapshot` and use its `read_columns`.

        A batch has at most 20,000 entries, usually some thousands. While the caller works on a
        batch of many keys, the next page is fetched.
        """
        check_one_of(key, prefix, pattern)
        how = How(consistency, self._timeout if timeout is None else timeout, node, through)
        if key is not None:
            bounds = checked_key(key), start, end, limit, reverse
            async with aclosing(self._reads.pages(*bounds, how)) as pages:
                async for page in pages:
                    columns = columns_of(page)
                    if columns is not None:
                        yield columns
            return
        if reverse:
            raise InvalidArgument(
                "reverse is given without a key; only a scan of one key can be reversed. Name a "
                "key, or leave reverse out",
                what="reverse",
            )
        keys = await chosen(self._cluster, self._routes, prefix, pattern, self._deadline(timeout))
        async with aclosing(
            scan_span(self._cluster, self._routes, keys, start, end, how, limit=limit)
        ) as found:
            async for columns in found:
                yield columns

    async def latest(
        self,
        key: bytes | str,
        *,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        through: int | None = None,
        timeout: float | None = None,
    ) -> Entry | None:
        """Return the key's last entry, or None."""
        wanted = checked_key(key)
        answer = await self._reads.read(
            LATEST, wanted, {"key": wanted}, timeout, consistency, node, through
        )
        entries = read_page(answer).entries
        return entries[-1] if entries else None

    async def count(
        self,
        key: bytes | str,
        *,
        start: Start = "earliest",
        end: End = None,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        through: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Return the number of the key's entries in [start, end); the bounds are those of
        `scan`."""
        wanted = checked_key(key)
        low = await self._reads.resolve(wanted, start, timeout, consistency, node)
        high = await self._reads.resolve_end(wanted, end, timeout, consistency, node)
        body = {"key": wanted, "start": low, "end": high}
        answer = await self._reads.read(
            COUNT_ENTRIES, wanted, body, timeout, consistency, node, through
        )
        count: int = answer["count"]
        return count

    async def keys(
        self,
        *,
        prefix: bytes | str = b"",
        pattern: Pattern | None = None,
        start_after: bytes | str | None = None,
        limit: int | None = None,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the log's keys that begin with `prefix`, or that match a pattern or a list of
        patterns, and follow `start_after`, in byte order."""
        seconds = self._timeout if timeout is None else timeout
        choice = await chosen(self._cluster, self._routes, prefix, pattern, self._deadline(timeout))
        after = None if start_after is None else to_key(start_after)
        pages = key_pages(
            self._cluster, self._routes, choice, after, limit, consistency, node, seconds
        )
        async with aclosing(pages):
            async for found in pages:
                for key in found:
                    yield key

    def follow(
        self,
        *,
        keys: Iterable[bytes | str] | None = None,
        prefix: bytes | str | None = None,
        pattern: Pattern | None = None,
        start: FollowStart = "latest",
        cursor: str | None = None,
        commit_every_ms: int | None = None,
        timeout: float | None = None,
    ) -> AsyncFeed:
        """Follow entries as they are committed: of `keys`, of all keys with `prefix`, of the keys
        that match a pattern or a list of patterns, or of the log.

        `cursor`: the name of a cursor that the ranges keep. The follow opens the cursor, which
        fences its other readers, and begins there; keys for which the cursor does not exist begin
        at `start`, a seq, "earliest", "latest" or Timestamp(ms). `feed.commit()` keeps the
        position. `commit_every_ms`, at least 10: the feed also commits at most this often, up to
        the last batch that the caller has done; asking for the next batch says so. The feed raises
        Fenced when it commits after another reader has opened the cursor.

        `start`: a seq, "earliest", "latest", "snapshot" or Tail(n) (with keys), Timestamp(ms), a
        {key: seq} mapping, or a batch's cursor. `timeout` bounds only the opening. A client may
        have tens of thousands of follows of a few keys each: beyond the first 64 of a log they
        share streams, and a slow caller slows only its own follow.
        """
        kept = None
        if pattern is not None and not isinstance(pattern, bytes | str):
            pattern = list(pattern)
        if cursor is not None:
            keys = None if keys is None else list(keys)
            kept = self.cursor(
                cursor, keys=keys, prefix=prefix, pattern=pattern, start=checked_start(start)
            )
        elif commit_every_ms is not None:
            raise InvalidArgument(
                "commit_every_ms is given without a cursor; give cursor=NAME", what="cursor"
            )
        return AsyncFeed(
            self._cluster, self._routes, keys=keys, prefix=prefix, pattern=pattern,
            start=start if kept is None else "latest", cursor=kept,
            commit_every_ms=commit_every_ms,
            timeout=self._timeout if timeout is None else timeout,
        )  # fmt: skip

    def cursor(
        self,
        name: str,
        *,
        keys: Iterable[bytes | str] | None = None,
        prefix: bytes | str | None = None,
        pattern: Pattern | None = None,
        start: CursorStart = "earliest",
    ) -> AsyncKeptCursor:
        """Return a position that the ranges of the log keep for one reader at a time; see
        AsyncKeptCursor.

        The cursor has the keys, all keys with the prefix, or all keys. With a pattern or a list of
        patterns the cursor has all keys that begin as the patterns begin, up to the first wildcard;
        the position then says that the reader is done with the matching entries below. Readers of
        one cursor give the same keys, prefix or patterns: a cursor keeps a position, and does not
        keep what its reader has chosen. `start`: where keys begin for which the cursor does not
        exist yet, a seq, "earliest", "latest" or Timestamp(ms). Nothing is sent before the first
        use.
        """
        check_one_of(keys, prefix, pattern)
        check_one_choice(prefix, pattern)
        return AsyncKeptCursor(
            self._cluster, self._routes, name, keys=keys, prefix=prefix, pattern=pattern,
            start=start, timeout=self._timeout,
        )  # fmt: skip

    async def cursors(
        self, *, prefix: bytes | str = b"", timeout: float | None = None
    ) -> list[CursorInfo]:
        """Return the cursors that have a position for some key with the prefix, by name."""
        span = prefix_span(to_key(prefix))
        return await listed(self._cluster, self._routes, span, self._deadline(timeout))

    def consume(
        self,
        name: str,
        *,
        prefix: bytes | str | None = None,
        pattern: Pattern | None = None,
        start: GroupStart | None = None,
        max_deliveries: int | None = None,
        on_dead: str | None = None,
        ordering: Ordering | None = None,
        lease_ms: int | None = None,
        hold_retention: bool | None = None,
        keys_max: int = keys_default,
        bytes_max: int = bytes_default,
        hold_s: float = hold_s_default,
        timeout: float | None = None,
    ) -> AsyncConsumer:
        """Return a consumer of the group `name`, which is created unless it exists; see
        AsyncConsumer. Each key is with at most one consumer of the group at a time.

        The group has the keys with `prefix`, the keys that match a `pattern` or a list of patterns,
        or all keys. `start`: where the group begins, "earliest" (the default), "latest" or
        Timestamp(ms). `max_deliveries`: failures of an entry after which `on_dead` applies, 5 by
        default. `on_dead`: "park", the default: the key stops; or "dead_letter:LOG": the entry is
        copied to that log, and the key goes on. `ordering`: "key", the default: each key is with at
        most one consumer, which gets its entries in order; or "none": each entry is, so consumers
        share the entries of a key, and batches have one entry. `lease_ms`: how long a consumer that
        is silent keeps its keys, 30,000 by default. `hold_retention`: whether retention keeps
        entries that are not done, False by default. The first consumer decides all this for the
        group. Another value than that of the group raises Conflict; a missing value is as the group
        has it.

        This consumer has at most `keys_max` keys and about `bytes_max` bytes of entries at a time,
        and at least one key of each range. As many keys wait for the caller as the caller takes in
        a second, or 32. The consumer keeps the lease of a batch alive for `hold_s` seconds
        at most. Nothing is sent before the context is entered.
        """
        check_one_of(None, prefix, pattern)
        group = {
            **begin_of_group(start), "max_deliveries": max_deliveries, "on_dead": on_dead,
            "lease_ms": lease_ms, "waits": hold_retention, "ordering": ordering,
        }  # fmt: skip
        options = Options(
            group, prefix=prefix, pattern=pattern, keys_max=keys_max, bytes_max=bytes_max,
            hold_s=hold_s, timeout=self._timeout if timeout is None else timeout,
        )  # fmt: skip
        return AsyncConsumer(self._cluster, self._routes, name, options)

    def group(self, name: str) -> AsyncGroup:
        """Return the consumer group `name` for its operators: lag, parked keys, decisions; see
        AsyncGroup. Nothing is sent before the first call."""
        return AsyncGroup(self._cluster, self._routes, name, timeout=self._timeout)

    async def groups(self, *, timeout: float | None = None) -> list[GroupInfo]:
        """Return the consumer groups of the log whose keys the client may read, by name."""
        return await group_names.listed(self._cluster, self._name, self._deadline(timeout))

    async def register_view(
        self, name: str, *, group: str | None = None, cursor: str | None = None,
        prefix: bytes | str = b"", policy: ViewPolicy = "wait", timeout: float | None = None,
    ) -> ViewInfo:  # fmt: skip
        """Register a consumer group or a cursor under a name that appends can wait for.

        The view of a group has the keys of the group, which begins in all ranges. The view of a
        cursor has the keys with `prefix`; the cursor must exist for all these keys. `policy`:
        "wait", or "live" for a group: appends do not wait while no consumer of the group lives. A
        repetition returns the view that exists. Raises NotFound; Conflict for other options.
        """
        body = {"name": name, "group": group, "cursor": cursor, "prefix": to_key(prefix),
                "policy": policy}  # fmt: skip
        return await self._views.register(body, self._timeout, self._deadline(timeout))

    async def views(self, *, timeout: float | None = None) -> list[ViewInfo]:
        """Return the views of the log whose keys the client may read, by name."""
        return await self._views.listed(self._deadline(timeout))

    async def delete_view(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a view; the group or the cursor stays. Raises NotFound."""
        await self._views.delete(name, self._deadline(timeout))

    async def snapshot(
        self, *, lease_s: float = lease_s_default, timeout: float | None = None
    ) -> AsyncSnapshot:
        """Take a snapshot: a committed prefix of every range, with every append acknowledged before
        the call.

        The snapshot reads the same every time for `lease_s` seconds, at most 7 days, whatever
        happens to the log. The lease keeps entries that are removed meanwhile. Raises
        LimitExceeded, also while a range has 64 leases, or 256 at feature level 2.
        """
        seconds = self._timeout if timeout is None else timeout
        return await take(self._cluster, self._routes, lease_s, seconds)

    def open_snapshot(self, saved: str | Vector) -> AsyncSnapshot:
        """Open a snapshot of this log that was taken before, also by another program. `saved` is
        the JSON of its `to_json`, or its vector."""
        vector = Vector.from_json(saved) if isinstance(saved, str) else saved
        check_log(self._cluster, self._routes, vector)
        return AsyncSnapshot(self._cluster, self._routes, vector, timeout=self._timeout)

    # Removing.

    async def trim(self, key: bytes | str, before: int, *, timeout: float | None = None) -> None:
        """Remove the key's entries below the seq `before`; the other entries keep their seqs (S6).

        All replicas hide the entries from now on, and free their space in the background. A
        `before` beyond the key's end means its end. The call is idempotent: after a failure, call
        again.
        """
        wanted = checked_key(key)
        if type(before) is not int or before < 0:
            raise InvalidArgument(
                f"before is {before!r}; give a seq: the call removes all entries below this seq",
                what="before",
            )
        await self._remove(TRIM, wanted, before, self._deadline(timeout))

    async def delete_key(self, key: bytes | str, *, timeout: float | None = None) -> None:
        """Remove all entries that the key has now; `expect=ABSENT` holds for the key again.

        A later append gets a higher seq than any before. Entries that others append meanwhile stay,
        also when a failed call is made again.
        """
        wanted = checked_key(key)
        deadline = self._deadline(timeout)
        left = deadline - self._cluster.now()
        before = await self._reads.resolve(wanted, "latest", left, "linearizable", None)
        await self._remove(DELETE_KEYS, wanted, before, deadline)

    async def _remove(self, operation: Operation, key: bytes, before: int, deadline: float) -> None:
        body = {"keys": [[key, before]]}
        await self._cluster.call(
            self._routes, key, operation, body, deadline=deadline, is_shown=True
        )

    # The log itself.

    async def describe(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return `id`, `name`, `policy`, `hierarchy` and `ranges` of the log from the cluster's
        metadata. `hierarchy`: the separator of the levels of keys, or None."""
        answer = await self._cluster.refresh(self._name, self._deadline(timeout))
        return described(answer, self._name)

    # Internal.

    async def close(self, timeout: float = 1.0) -> None:
        """Flush the pending records of `append` and the updates; called by `AsyncClient.close`."""
        until = self._cluster.now() + timeout
        await self._updates.close(timeout)
        if self._sender is not None:
            sender, self._sender = self._sender, None
            await sender.close(max(0.0, until - self._cluster.now()))

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)

    async def _ready(self, deadline: float, count: int = 1) -> Sender:
        """Return the sender of this log's plain appends once it has room for `count` more
        records."""
        if self._sender is None or self._sender.window.fatal is not None:
            self._sender = Sender(self._cluster, self._routes)
        sender = self._sender
        await sender.routed(deadline)
        if not sender.window.has_room(count=count):
            await sender.window.room(deadline, count=count)
        return sender

    async def _settled(self, batch: AppendBatch, deadline: float) -> None:
        if not await batch.wait(deadline + _LATE_S):
            raise self._late()

    def _late(self) -> Timeout:
        return Timeout(f"no majority acknowledged the append to log {self._name!r} in time")
