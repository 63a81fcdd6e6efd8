# Generated from client/log.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/log.py`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..consumer import bytes_default, hold_s_default, keys_default
from ..entry_columns import EntryColumns
from ..log import AsyncLog, Record
from ..loop_thread import LoopThread
from ..producer import delivery_timeout_s
from ..protocol import limits
from ..protocol.types import (
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
from ..snapshot import lease_s_default
from ..updates import Change
from ..vector import Vector
from ..view_choice import WaitFor
from ..view_waits import wait_ms_default
from .consumer import Consumer
from .cursor import KeptCursor
from .follow import Feed
from .group import Group
from .group_batch import GroupBatch
from .producer import Producer
from .snapshot import Snapshot


class Log:
    """A log by name; made by `Client.log`. The first use finds out whether the log exists.

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

    def __init__(self, loop: LoopThread, twin: AsyncLog) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncLog", "Log")

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._twin.name

    def append(
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
        return self._loop.call(
            self._twin.append(
                key,
                value,
                headers=headers,
                expect=expect,
                snapshot=snapshot,
                wait_for=wait_for,
                wait_ms=wait_ms,
                timeout=timeout,
            )
        )

    def append_many(
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
        return self._loop.call(
            self._twin.append_many(
                records, expects=expects, wait_for=wait_for, wait_ms=wait_ms, timeout=timeout
            )
        )

    def append_batch(
        self,
        records: Sequence[Record],
        *,
        acks: Sequence[GroupBatch] = (),
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
        twins = [batch._twin for batch in acks]
        return self._loop.call(
            self._twin.append_batch(
                records, acks=twins, wait_for=wait_for, wait_ms=wait_ms, timeout=timeout
            )
        )

    def update(self, key: bytes | str, change: Change, *, timeout: float | None = None) -> Updated:
        """Append `change(value)`, where `value` is the key's last value, with no entry between
        the two (S9).

        `value` is None for a key without entries and after a tombstone; a result of None writes a
        tombstone. The callers of a client are served in the order of their calls, and clients take
        turns. `change` runs on the client's event loop and must not block or call the client. It
        may run several times. When `change` raises an error, nothing is appended, and the call
        raises that error. Raises LimitExceeded.
        """
        return self._loop.call(self._twin.update(key, change, timeout=timeout))

    def producer(
        self,
        *,
        name: str | None = None,
        linger_ms: float = 5,
        unacked_bytes_max: int = limits.producer_unacked_bytes_default,
        timeout: float = delivery_timeout_s,
    ) -> Producer:
        """Return a producer, which appends many records with few waits; see Producer.

        `linger_ms`: how long a batch waits for more records. `unacked_bytes_max`: the
        unacknowledged bytes at which `submit` begins to wait. `timeout`: seconds after which the
        producer gives a record up.
        """
        return Producer(
            self._loop,
            self._loop.run(
                lambda: self._twin.producer(
                    name=name,
                    linger_ms=linger_ms,
                    unacked_bytes_max=unacked_bytes_max,
                    timeout=timeout,
                )
            ),
        )

    def scan(
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
    ) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), oldest first or newest first.

        `start` may also be "earliest", "latest", "snapshot" (the newest entry that was appended
        with snapshot=True), Tail(n) or Timestamp(ms); `end` may be Timestamp(ms). `limit` bounds
        the number of entries.

        The scan reads page by page. Entries that are trimmed, deleted, compacted or removed by
        retention during the scan are missing from the later pages.
        """
        return self._loop.iterate(
            lambda: self._twin.scan(
                key,
                start=start,
                end=end,
                limit=limit,
                reverse=reverse,
                consistency=consistency,
                node=node,
                through=through,
                timeout=timeout,
            )
        )

    def scan_columns(
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
    ) -> Iterator[EntryColumns]:
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
        return self._loop.iterate(
            lambda: self._twin.scan_columns(
                key,
                prefix,
                pattern=pattern,
                start=start,
                end=end,
                limit=limit,
                reverse=reverse,
                consistency=consistency,
                node=node,
                through=through,
                timeout=timeout,
            ),
            portion_max=1,
        )

    def latest(
        self,
        key: bytes | str,
        *,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        through: int | None = None,
        timeout: float | None = None,
    ) -> Entry | None:
        """Return the key's last entry, or None."""
        return self._loop.call(
            self._twin.latest(
                key, consistency=consistency, node=node, through=through, timeout=timeout
            )
        )

    def count(
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
        return self._loop.call(
            self._twin.count(
                key,
                start=start,
                end=end,
                consistency=consistency,
                node=node,
                through=through,
                timeout=timeout,
            )
        )

    def keys(
        self,
        *,
        prefix: bytes | str = b"",
        pattern: Pattern | None = None,
        start_after: bytes | str | None = None,
        limit: int | None = None,
        consistency: Consistency = "linearizable",
        node: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[bytes]:
        """Yield the log's keys that begin with `prefix`, or that match a pattern or a list of
        patterns, and follow `start_after`, in byte order."""
        return self._loop.iterate(
            lambda: self._twin.keys(
                prefix=prefix,
                pattern=pattern,
                start_after=start_after,
                limit=limit,
                consistency=consistency,
                node=node,
                timeout=timeout,
            )
        )

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
    ) -> Feed:
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
        return Feed(
            self._loop,
            self._loop.run(
                lambda: self._twin.follow(
                    keys=keys,
                    prefix=prefix,
                    pattern=pattern,
                    start=start,
                    cursor=cursor,
                    commit_every_ms=commit_every_ms,
                    timeout=timeout,
                )
            ),
        )

    def cursor(
        self,
        name: str,
        *,
        keys: Iterable[bytes | str] | None = None,
        prefix: bytes | str | None = None,
        pattern: Pattern | None = None,
        start: CursorStart = "earliest",
    ) -> KeptCursor:
        """Return a position that the ranges of the log keep for one reader at a time; see
        KeptCursor.

        The cursor has the keys, all keys with the prefix, or all keys. With a pattern or a list of
        patterns the cursor has all keys that begin as the patterns begin, up to the first wildcard;
        the position then says that the reader is done with the matching entries below. Readers of
        one cursor give the same keys, prefix or patterns: a cursor keeps a position, and does not
        keep what its reader has chosen. `start`: where keys begin for which the cursor does not
        exist yet, a seq, "earliest", "latest" or Timestamp(ms). Nothing is sent before the first
        use.
        """
        return KeptCursor(
            self._loop,
            self._loop.run(
                lambda: self._twin.cursor(
                    name, keys=keys, prefix=prefix, pattern=pattern, start=start
                )
            ),
        )

    def cursors(
        self, *, prefix: bytes | str = b"", timeout: float | None = None
    ) -> list[CursorInfo]:
        """Return the cursors that have a position for some key with the prefix, by name."""
        return self._loop.call(self._twin.cursors(prefix=prefix, timeout=timeout))

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
    ) -> Consumer:
        """Return a consumer of the group `name`, which is created unless it exists; see
        Consumer. Each key is with at most one consumer of the group at a time.

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
        return Consumer(
            self._loop,
            self._loop.run(
                lambda: self._twin.consume(
                    name,
                    prefix=prefix,
                    pattern=pattern,
                    start=start,
                    max_deliveries=max_deliveries,
                    on_dead=on_dead,
                    ordering=ordering,
                    lease_ms=lease_ms,
                    hold_retention=hold_retention,
                    keys_max=keys_max,
                    bytes_max=bytes_max,
                    hold_s=hold_s,
                    timeout=timeout,
                )
            ),
        )

    def group(self, name: str) -> Group:
        """Return the consumer group `name` for its operators: lag, parked keys, decisions; see
        Group. Nothing is sent before the first call."""
        return Group(self._loop, self._loop.run(lambda: self._twin.group(name)))

    def groups(self, *, timeout: float | None = None) -> list[GroupInfo]:
        """Return the consumer groups of the log whose keys the client may read, by name."""
        return self._loop.call(self._twin.groups(timeout=timeout))

    def register_view(
        self,
        name: str,
        *,
        group: str | None = None,
        cursor: str | None = None,
        prefix: bytes | str = b"",
        policy: ViewPolicy = "wait",
        timeout: float | None = None,
    ) -> ViewInfo:
        """Register a consumer group or a cursor under a name that appends can wait for.

        The view of a group has the keys of the group, which begins in all ranges. The view of a
        cursor has the keys with `prefix`; the cursor must exist for all these keys. `policy`:
        "wait", or "live" for a group: appends do not wait while no consumer of the group lives. A
        repetition returns the view that exists. Raises NotFound; Conflict for other options.
        """
        return self._loop.call(
            self._twin.register_view(
                name, group=group, cursor=cursor, prefix=prefix, policy=policy, timeout=timeout
            )
        )

    def views(self, *, timeout: float | None = None) -> list[ViewInfo]:
        """Return the views of the log whose keys the client may read, by name."""
        return self._loop.call(self._twin.views(timeout=timeout))

    def delete_view(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a view; the group or the cursor stays. Raises NotFound."""
        self._loop.call(self._twin.delete_view(name, timeout=timeout))

    def snapshot(
        self, *, lease_s: float = lease_s_default, timeout: float | None = None
    ) -> Snapshot:
        """Take a snapshot: a committed prefix of every range, with every append acknowledged before
        the call.

        The snapshot reads the same every time for `lease_s` seconds, at most 7 days, whatever
        happens to the log. The lease keeps entries that are removed meanwhile. Raises
        LimitExceeded, also while a range has 64 leases, or 256 at feature level 2.
        """
        return Snapshot(
            self._loop, self._loop.call(self._twin.snapshot(lease_s=lease_s, timeout=timeout))
        )

    def open_snapshot(self, saved: str | Vector) -> Snapshot:
        """Open a snapshot of this log that was taken before, also by another program. `saved` is
        the JSON of its `to_json`, or its vector."""
        return Snapshot(self._loop, self._loop.run(lambda: self._twin.open_snapshot(saved)))

    def trim(self, key: bytes | str, before: int, *, timeout: float | None = None) -> None:
        """Remove the key's entries below the seq `before`; the other entries keep their seqs (S6).

        All replicas hide the entries from now on, and free their space in the background. A
        `before` beyond the key's end means its end. The call is idempotent: after a failure, call
        again.
        """
        self._loop.call(self._twin.trim(key, before, timeout=timeout))

    def delete_key(self, key: bytes | str, *, timeout: float | None = None) -> None:
        """Remove all entries that the key has now; `expect=ABSENT` holds for the key again.

        A later append gets a higher seq than any before. Entries that others append meanwhile stay,
        also when a failed call is made again.
        """
        self._loop.call(self._twin.delete_key(key, timeout=timeout))

    def describe(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return `id`, `name`, `policy`, `hierarchy` and `ranges` of the log from the cluster's
        metadata. `hierarchy`: the separator of the levels of keys, or None."""
        return self._loop.call(self._twin.describe(timeout=timeout))

    def close(self, timeout: float = 1.0) -> None:
        """Flush the pending records of `append` and the updates; called by `Client.close`."""
        self._loop.call(self._twin.close(timeout))
