"""`lognode scan`, `latest`, `count`, `keys`, `follow` and `snapshot`: the verbs that read
entries."""

import asyncio
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from typing import Any

from ..entry_columns import EntryColumns
from ..follow import AsyncFeed
from ..log import AsyncLog
from ..protocol.errors import InvalidArgument
from ..protocol.types import End, Entry, FollowBatch, FollowStart, Start
from ..snapshot import AsyncSnapshot, lease_s_default
from ..vector import Part
from . import snapshots
from .parser import (
    Parser,
    UsageError,
    When,
    add_limit,
    add_members,
    add_pattern,
    add_replica,
    age_s,
    bound,
    position,
    timestamp,
)
from .progress import Progress, counted
from .verb import Call, Verb

_ENTRY = ("key", "seq", "timestamp_ms", "value")
_PATIENCE_S = 2.0
"""How long a follow may be cut off before people hear of it."""


def _add_snapshot(parser: Parser) -> None:
    parser.add_argument("--snapshot", metavar="FILE",
                        help="read this snapshot, which `lognode snapshot --format json` wrote to "
                             "the file; -: standard input")  # fmt: skip


def _span_arguments(parser: Parser, verb: str) -> None:
    """Add the arguments of a read of one key or of many."""
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("key", nargs="?", metavar="KEY",
                        help=f"{verb} the entries of this key; none: of all keys")  # fmt: skip
    parser.add_argument("--prefix", metavar="P",
                        help=f"{verb} the entries of all keys with this prefix")  # fmt: skip
    add_pattern(parser, verb)
    add_replica(parser)
    _add_snapshot(parser)
    parser.add_argument("--from", dest="start", type=position, default="earliest", metavar="S",
                        help="start: a seq, earliest, snapshot, -10m, or a time in ISO "
                             "8601")  # fmt: skip
    parser.add_argument("--to", dest="end", type=bound, metavar="S",
                        help="end, exclusive: a seq, -10m, or a time in ISO 8601")  # fmt: skip


def _scan_arguments(parser: Parser) -> None:
    _span_arguments(parser, "read")
    add_limit(parser, "read at most N entries")
    parser.add_argument("--reverse", action="store_true",
                        help="read the newest entries of KEY first")  # fmt: skip


def _count_arguments(parser: Parser) -> None:
    _span_arguments(parser, "count")


def _key_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("key", metavar="KEY")
    add_replica(parser)
    _add_snapshot(parser)


def _keys_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--prefix", default="", metavar="P", help="list only keys with this prefix")
    add_pattern(parser, "list")
    parser.add_argument("--after", metavar="K", help="list only keys after this key")
    add_limit(parser, "list at most N keys")
    add_members(parser)
    _add_snapshot(parser)


def _follow_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="keys to follow; none: all keys")
    parser.add_argument("--prefix", metavar="P", help="follow all keys with this prefix")
    add_pattern(parser, "follow")
    parser.add_argument("--from", dest="start", type=position, default="latest", metavar="S",
                        help="position: earliest, latest (default), snapshot, a "
                             "seq, -10m, or a time in ISO 8601")  # fmt: skip
    parser.add_argument("--cursor", metavar="NAME",
                        help="begin at this cursor, which the log keeps, and commit what was "
                             "printed; --from: where a new cursor begins")  # fmt: skip
    add_limit(parser, "end after N entries")


def _snapshot_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--lease", type=age_s, default=lease_s_default, metavar="AGE",
                        help="time that the snapshot stays readable (default 1h)")  # fmt: skip


def _check_choice(options: Namespace) -> None:
    """Raise UsageError for two choices of keys."""
    given = [options.key, options.prefix, options.pattern]
    if sum(each is not None for each in given) > 1:
        raise UsageError("give only one of KEY, --prefix and --pattern")


async def _scan(call: Call) -> None:
    options = call.options
    _check_choice(options)
    if options.reverse and options.key is None:
        raise UsageError("--reverse is given without a KEY; name a KEY, or leave --reverse out")
    snapshot = snapshots.opened(call)
    if snapshot is not None:
        found = _in_snapshot(options, snapshot)
        chosen = snapshots.newest(found, options.limit) if options.reverse else found
        entries = snapshots.first(chosen, options.limit)
    elif options.key is not None:
        entries = call.client.log(options.log).scan(
            to_bytes(options.key), start=_start(options.start), end=_end(options.end),
            limit=options.limit, reverse=options.reverse, **_members(options),
            through=options.through,
        )  # fmt: skip
    else:
        entries = _of_many(options, call.client.log(options.log))
    await call.printer.stream(counted("scan", _rows(entries)), _ENTRY)


async def _of_many(options: Namespace, log: AsyncLog) -> AsyncIterator[Entry]:
    """Yield the entries of many keys, each key's in the order of seq."""
    async for columns in _columns(options, log, options.limit):
        for entry in columns.entries():
            yield entry


def _columns(
    options: Namespace, log: AsyncLog, limit: int | None = None
) -> AsyncIterator[EntryColumns]:
    return log.scan_columns(
        prefix=_prefix(options), pattern=patterns(options), start=_start(options.start),
        end=_end(options.end), limit=limit, **_members(options), through=options.through,
    )  # fmt: skip


def _in_snapshot(options: Namespace, snapshot: AsyncSnapshot) -> AsyncIterator[Entry]:
    return snapshots.entries(
        snapshot, snapshots.Keys(_key(options), _prefix(options), patterns(options)),
        _start(options.start), _end(options.end),
    )  # fmt: skip


async def _latest(call: Call) -> None:
    options = call.options
    snapshot = snapshots.opened(call)
    if snapshot is not None:
        async for last in snapshots.newest(snapshot.read(to_bytes(options.key)), 1):
            call.printer.record(entry_row(last), _ENTRY)
        return
    entry = await call.client.log(options.log).latest(
        to_bytes(options.key), **_members(options), through=options.through
    )
    if entry is not None:
        call.printer.record(entry_row(entry), _ENTRY)


async def _count(call: Call) -> None:
    options = call.options
    _check_choice(options)
    snapshot = snapshots.opened(call)
    log = call.client.log(options.log)
    if snapshot is not None:
        call.printer.scalar(sum([1 async for _ in _in_snapshot(options, snapshot)]))
    elif options.key is not None:
        count = await log.count(
            to_bytes(options.key), start=_start(options.start), end=_end(options.end),
            **_members(options), through=options.through,
        )  # fmt: skip
        call.printer.scalar(count)
    else:
        call.printer.scalar(await _count_many(options, log))


async def _count_many(options: Namespace, log: AsyncLog) -> int:
    """Return the number of entries of many keys, by a read: the sums that nodes report are of
    whole ranges, and some seconds old."""
    progress, count = Progress("count"), 0
    try:
        async for columns in _columns(options, log):
            count += len(columns)
            progress.update(None, count)
    finally:
        progress.leave()
    return count


async def _keys(call: Call) -> None:
    options = call.options
    snapshot = snapshots.opened(call)
    if snapshot is not None:
        in_snapshot = snapshots.keys(
            snapshot, to_bytes(options.prefix), patterns(options),
            None if options.after is None else to_bytes(options.after),
        )  # fmt: skip
        rows_of = snapshots.first(in_snapshot, options.limit)
        await call.printer.stream(counted("keys", _key_rows(rows_of)), ("key",))
        return
    keys = call.client.log(options.log).keys(
        prefix=to_bytes(options.prefix), pattern=patterns(options), limit=options.limit,
        **_members(options),
        start_after=None if options.after is None else to_bytes(options.after),
    )  # fmt: skip
    await call.printer.stream(counted("keys", _key_rows(keys)), ("key",))


class _Gap:
    """Notes for a follow whose entries may be missing, because members are down or cut off.

    A leader that changes leaves a gap of a moment: the note waits for `_PATIENCE_S`.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._timer: asyncio.TimerHandle | None = None
        self._told = False

    def take(self, batch: FollowBatch) -> None:
        """Take a batch: an empty one that is not caught up begins a gap."""
        if batch.caught_up:
            self.close()
            if self._told:
                self._told = False
                self._note("note: the follow has all entries again")
        elif not batch.entries and not self._told and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._tell)

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        self._timer, self._told = None, True
        self._note(
            "note: new entries may be missing, because nodes are down or cut off; `lognode health` "
            "names the nodes"
        )


async def _follow(call: Call) -> None:
    options = call.options
    given = [options.keys or None, options.prefix, options.pattern]
    if sum(each is not None for each in given) > 1:
        raise UsageError("give only one of KEYs, --prefix and --pattern")
    start: FollowStart = _start(options.start)
    if options.limit == 0:
        return
    gap = _Gap(call.note)
    async with call.client.log(options.log).follow(
        keys=list(map(to_bytes, options.keys)) or None,
        prefix=_prefix(options),
        pattern=patterns(options),
        start=start,
        cursor=options.cursor,
    ) as feed:
        try:
            await _print(call, feed, gap)
        finally:
            gap.close()


async def _print(call: Call, feed: AsyncFeed, gap: _Gap) -> None:
    """Print the batches of a follow, and commit them to its cursor."""
    options, left = call.options, call.options.limit
    async for batch in feed:
        gap.take(batch)
        for entry in batch.entries[:left]:
            call.printer.line(entry_row(entry), _ENTRY)
        if left is not None:
            left -= len(batch)
            if left < 0 and options.cursor is not None:
                call.note(f"note: the last {-left} entries of the batch were not printed; the "
                          "cursor stays before the batch")  # fmt: skip
                return
        if options.cursor is not None:
            await feed.commit(batch)
        if left is not None and left <= 0:
            return


async def _snapshot(call: Call) -> None:
    snapshot = await call.client.log(call.options.log).snapshot(lease_s=call.options.lease)
    document = snapshot.vector.to_document()
    if not call.printer.tables:
        call.printer.document(document)
        return
    call.printer.rows([part._asdict() for part in snapshot.vector.parts], Part._fields)
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(document["expires_ms"] / 1000))
    call.note(f"note: lease {document['lease']} ends at {until}; --format json "
              "prints text that opens the snapshot again, with --snapshot FILE")  # fmt: skip


def _members(options: Namespace) -> dict[str, Any]:
    """Return the options that choose the answering members."""
    return {"node": options.node, "consistency": options.consistency}


def _start(given: int | str | When) -> Start:
    if isinstance(given, tuple):
        return timestamp(given)
    if given in ("earliest", "latest", "snapshot") or isinstance(given, int):
        return given  # type: ignore[return-value]  # a Start
    raise InvalidArgument(f"{given!r} is not a position", what="from")


def _end(given: int | When | None) -> End:
    return timestamp(given) if isinstance(given, tuple) else given


def _key(options: Namespace) -> bytes | None:
    return None if options.key is None else to_bytes(options.key)


def _prefix(options: Namespace) -> bytes | None:
    return None if options.prefix is None else to_bytes(options.prefix)


def patterns(options: Namespace) -> list[bytes] | None:
    """Return the patterns of keys, None when no pattern is given."""
    return None if options.pattern is None else list(map(to_bytes, options.pattern))


def to_bytes(text: str) -> bytes:
    """Return an argument's bytes as the shell gave them."""
    return text.encode("utf-8", "surrogateescape")


async def _key_rows(keys: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    async for key in keys:
        yield {"key": key}


async def _rows(entries: AsyncIterator[Entry]) -> AsyncIterator[dict[str, Any]]:
    async for entry in entries:
        yield entry_row(entry)


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry as a row to print."""
    row: dict[str, Any] = {
        "key": entry.key,
        "seq": entry.seq,
        "timestamp_ms": entry.timestamp_ms,
        "value": entry.value,
    }
    if entry.headers:
        row["headers"] = [[name, value] for name, value in entry.headers.items()]
    if entry.snapshot:
        row["snapshot"] = True
    return row


VERBS = (
    Verb("scan", "print the entries of a key, of many keys, or of all", _scan, _scan_arguments),
    Verb("latest", "print the last entry of a key", _latest, _key_arguments),
    Verb("count", "count the entries of a key, of many keys, or of all", _count, _count_arguments),
    Verb("keys", "list the keys of a log in order", _keys, _keys_arguments),
    Verb("follow", "print entries while clients append", _follow, _follow_arguments),
    Verb(
        "snapshot",
        "take a snapshot: a committed prefix of a log that stays readable for a while",
        _snapshot,
        _snapshot_arguments,
        writes=True,
    ),
)
