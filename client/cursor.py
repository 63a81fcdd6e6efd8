"""Cursors: positions of readers by name, which the ranges of a log keep.

A reader opens a cursor before it reads, which makes it the holder: from then on the commits of
older holders are refused. The number of a holder is above all numbers that it finds, and ends in
random bits: of two readers that open a cursor at one moment, one is refused everywhere. Positions
belong to keys, and a request goes to the ranges that have the keys by then.
"""

import random
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from . import progress
from .appends import checked_key, to_key
from .cluster import Cluster, LogRoutes
from .cursor_rows import Rows, missing, of_keys, of_position, without_seams
from .gathering import each
from .key_choice import chosen
from .protocol import Operation, limits
from .protocol.cursors import (
    CURSOR_COMMIT,
    CURSOR_DELETE,
    CURSOR_LIST,
    CURSOR_OPEN,
    CURSOR_READ,
    CURSOR_SET,
)
from .protocol.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from .protocol.key_spans import Span
from .protocol.types import (
    Cursor,
    CursorInfo,
    CursorStart,
    FollowBatch,
    FollowStart,
    Pattern,
    Timestamp,
)
from .routing import Range
from .span_positions import Position, least, span_positions
from .stored_keys import check_plain

keys_max: Final = 1_024
"""Keys of one cursor of keys: each is a span of its own in its range."""
_RANDOM_BITS: Final = 32


class AsyncKeptCursor:
    """A position that the ranges keep for one reader at a time; made by `AsyncLog.cursor`.

    The first use opens the cursor, and so does entering the context: this reader is the holder from
    then on. The commits of an older holder raise Fenced. A position is the next seq wanted, for
    each span of keys and for single keys, and never goes back by a commit. It follows its keys
    through splits, merges and moves. Reading the keys of a cursor is the only permission that a
    cursor needs.

    Every method takes `timeout`, seconds, the log's by default. All raise LogNotFound, Unavailable,
    Timeout, Unauthorized, and Unsupported below feature level 4.
    """

    def __init__(
        self, cluster: Cluster, routes: LogRoutes, name: str, *,
        keys: Iterable[bytes | str] | None, prefix: bytes | str | None, start: CursorStart,
        timeout: float, pattern: Pattern | None = None, holder: int = 0,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._routes = routes
        self._name = checked_name(name)
        self._start = checked_start(start)
        self._timeout = timeout
        self._holder = holder
        self.keys = None if keys is None else sorted(set(map(checked_key, keys)))
        """The keys of the cursor, in order; None: all keys of its spans."""
        if self.keys is not None and not 1 <= len(self.keys) <= keys_max:
            raise LimitExceeded(
                f"the cursor has {len(self.keys):,} keys; 1 to {keys_max:,} are allowed. Give a "
                "prefix, or use several cursors",
                limit="keys_max", value=len(self.keys), allowed=keys_max,
            )  # fmt: skip
        self._prefix = to_key(prefix or b"")
        self._pattern = pattern
        self._spans: list[Span] = []
        """Disjoint, in the order of keys; empty: not found yet."""
        self._committed = Rows()
        """The rows of the last commit that every range has acknowledged."""

    def __repr__(self) -> str:
        return f"<AsyncKeptCursor {self._name!r} of {self._routes.name!r}>"

    @property
    def name(self) -> str:
        """The name of the cursor."""
        return self._name

    @property
    def holder(self) -> int:
        """The number of this reader, or 0 before it has opened the cursor."""
        return self._holder

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    async def open(self, *, timeout: float | None = None) -> None:
        """Become the holder, unless this reader has opened the cursor before.

        Keys for which the cursor does not exist begin at the `start` of `AsyncLog.cursor`. Raises
        Fenced when another reader opens the cursor at the same time and wins, and LimitExceeded
        when a range has too many cursors.
        """
        deadline = self._deadline(timeout)
        await check_plain(self._cluster, self._routes, "kept cursors", deadline)
        await self._find_spans(deadline)
        if self._holder:
            return
        holder = await self._next_holder(deadline)
        rows = await self._rows_of_start(self._start, deadline)
        await self._send(CURSOR_OPEN, {"holder": holder}, rows, deadline)
        self._holder = holder

    async def position(self, *, timeout: float | None = None) -> Cursor:
        """Return the positions that the ranges keep, for `start` of `AsyncLog.follow`.

        A cursor of keys has a position per key, another cursor one per span. Raises NotFound for a
        cursor that does not exist for some of its keys.
        """
        spans, keys = await self.rows(timeout=timeout)
        own = dict(keys)
        if self.keys is not None:
            below = {start: next_ for start, _, next_ in spans}
            return Cursor(keys={key: own.get(key) or below[key] for key in self.keys})
        pieces: list[Position] = []
        for start, end, next_ in spans:
            at: bytes | None = start
            for key, ahead in keys:
                if at is not None and at <= key and (end is None or key < end):
                    pieces += [(at, key, next_)] * (at < key) + [(key, key + b"\0", ahead)]
                    at = key + b"\0" if key + b"\0" != end else None
            if at is not None:
                pieces.append((at, end, next_))
        return Cursor(spans=tuple(pieces))

    async def rows(
        self, *, timeout: float | None = None
    ) -> tuple[list[Position], list[tuple[bytes, int]]]:
        """Return the positions as the ranges keep them: spans (start, end, next seq), and keys
        with a higher position of their own (key, next seq), each in the order of keys. Raises
        NotFound as `position` does."""
        deadline = self._deadline(timeout)
        await self._find_spans(deadline)
        found = await self._read(deadline)
        spans = [(start, end, next_) for start, end, _, next_ in found[0]]
        part = missing(spans, self._spans)
        if part is not None:
            raise NotFound(
                f"cursor {self._name!r} does not exist for keys from {part[0]!r} on; open the "
                "cursor",
                cursor=self._name,
            )
        return spans, found[1]

    async def commit(
        self,
        position: FollowBatch | Cursor | Mapping[bytes, int] | Mapping[str, int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Keep a position: everything below it is done.

        `position`: a batch of a follow, a cursor of such a batch, or {key: next seq}. When the call
        returns, a majority has it on disk. A position below the kept one changes nothing. A call
        goes only to the ranges whose positions have changed since the last call; after an error
        some ranges may have kept theirs. Raises Fenced when another reader has opened the cursor,
        NotFound when it was deleted, and LimitExceeded.
        """
        await self.open(timeout=timeout)
        deadline = self._deadline(timeout)
        given = position.cursor if isinstance(position, FollowBatch) else position
        rows = of_position(given)
        self._check_own(rows)
        done = set(self._committed.spans), set(self._committed.keys)
        fresh = Rows([row for row in rows.spans if row not in done[0]],
                     [row for row in rows.keys if row not in done[1]])  # fmt: skip
        await self._send(CURSOR_COMMIT, {"holder": self._holder}, fresh, deadline)
        self._committed = rows

    async def set(self, start: CursorStart, *, timeout: float | None = None) -> None:
        """Set the position of all keys, forwards or back; the present holder is fenced.

        `start`: a seq, "earliest", "latest" or Timestamp(ms). A cursor that does not exist begins
        to exist. This reader does not become the holder.
        """
        begin, deadline = checked_start(start), self._deadline(timeout)
        await self._find_spans(deadline)
        rows = await self._rows_of_start(begin, deadline)
        holder = await self._next_holder(deadline)
        self._holder, self._committed = 0, Rows()
        await self._send(CURSOR_SET, {"holder": holder}, rows, deadline)

    async def delete(self, *, timeout: float | None = None) -> None:
        """Forget the cursor. A commit of its holder then raises NotFound. A failed call may be made
        again."""
        deadline = self._deadline(timeout)
        await self._find_spans(deadline)
        self._holder, self._committed = 0, Rows()

        async def one(span: Span) -> None:
            at: bytes | None = span[0]
            while at is not None and (span[1] is None or at < span[1]):
                body = {"cursor": self._name, "start_key": at, "end_key": span[1]}
                answer, _ = await self._cluster.call(
                    self._routes, at, CURSOR_DELETE, body, deadline=deadline
                )
                at = progress.end_key(answer, at)

        await each(await self._parts(deadline), one)

    # Internal.

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)

    async def _find_spans(self, deadline: float) -> None:
        """Find the spans of the cursor: for patterns they depend on the hierarchy of the log."""
        if self._spans:
            return
        if self.keys is not None:
            self._spans = of_keys(self.keys)
            return
        choice = await chosen(self._cluster, self._routes, self._prefix, self._pattern, deadline)
        self._spans = without_seams(choice.spans)

    async def _parts(self, deadline: float) -> list[Span]:
        """Return the spans of the cursor, cut where the ranges end that this client knows."""
        ranges = await self._ranges(deadline)
        whole = Rows([(start, end, 0) for start, end in self._spans])
        return [row[:2] for known in ranges for row in whole.within(known.start, known.end).spans]

    async def _ranges(self, deadline: float) -> list[Range]:
        """Return the ranges that have the keys of the cursor, in order."""
        if self.keys is not None:
            return await self._cluster.ranges_of(self._routes, self.keys, deadline)
        found: dict[bytes, Range] = {}
        for span in self._spans:
            for known in await self._cluster.all_ranges(self._routes, deadline, span):
                found[known.start] = known
        return list(found.values())

    def _check_own(self, rows: Rows) -> None:
        """Raise InvalidArgument for rows with other keys than those of the cursor."""
        if self.keys is not None:
            strange = bool(rows.spans) or not {key for key, _ in rows.keys} <= {*self.keys}
        else:
            own = Rows()
            for span in self._spans:
                own = own.joined(rows.within(*span))
            strange = own != rows
        if strange:
            raise InvalidArgument(
                f"the position has keys that cursor {self._name!r} does not have; give a position "
                "of the keys, the prefix or the patterns of the cursor",
                what="position",
            )

    async def _next_holder(self, deadline: float) -> int:
        """Return a number above that of every holder."""
        spans, _ = await self._read(deadline)
        highest = max((holder for _, _, holder, _ in spans), default=0)
        number = ((highest >> _RANDOM_BITS) + 1) << _RANDOM_BITS | random.getrandbits(_RANDOM_BITS)
        if number > limits.number_max:
            raise Conflict(
                f"cursor {self._name!r} has the highest number of a holder; delete the cursor"
            )
        return number

    async def _rows_of_start(self, start: CursorStart, deadline: float) -> Rows:
        if not isinstance(start, Timestamp):
            # A range takes its own end instead of a seq behind its end.
            last = limits.number_max
            seq = start if isinstance(start, int) else 1 if start == "earliest" else last
            return Rows([(low, high, max(1, seq)) for low, high in self._spans])
        found: list[Position] = []
        for low, high in self._spans:
            found += await span_positions(
                self._cluster, self._routes, ["ts", start.ms], low, high, deadline=deadline
            )
        return Rows(found)

    async def _read(
        self, deadline: float
    ) -> tuple[list[tuple[bytes, bytes | None, int, int]], list[tuple[bytes, int]]]:
        """Return the spans with holders and positions, and the keys, in order."""

        async def one(span: Span) -> tuple[list[Any], list[Any]]:
            spans: list[Any] = []
            keys: list[Any] = []
            at: bytes | None = span[0]
            while at is not None and (span[1] is None or at < span[1]):
                body = {"cursor": self._name, "start_key": at, "end_key": span[1]}
                answer, _ = await self._cluster.call(
                    self._routes, at, CURSOR_READ, body, deadline=deadline
                )
                spans += map(tuple, answer["spans"])
                keys += map(tuple, answer["keys"])
                at = progress.end_key(answer, at)
            return spans, keys

        found = await each(await self._parts(deadline), one)
        return [row for spans, _ in found for row in spans], [row for _, k in found for row in k]

    async def _send(
        self, operation: Operation, body: Mapping[str, Any], rows: Rows, deadline: float
    ) -> None:
        """Send the rows to the ranges that have their keys."""

        async def one(left: Rows) -> None:
            while left:
                some, left = left.head(
                    limits.cursor_commit_spans_max, limits.cursor_commit_keys_max
                )
                first = some.first
                full = {**body, "cursor": self._name, "spans": list(map(list, some.spans))}
                if operation is CURSOR_COMMIT:
                    full["keys"] = list(map(list, some.keys))
                answer, _ = await self._cluster.call(
                    self._routes, first, operation, full, deadline=deadline
                )
                end = progress.end_key(answer, first)
                if end is not None:
                    left = some.within(end, None).joined(left)

        if rows:
            ranges = await self._ranges(deadline)
            parts = [rows.within(known.start, known.end) for known in ranges]
            await each([part for part in parts if part], one)


async def listed(
    cluster: Cluster, routes: LogRoutes, span: Span, deadline: float
) -> list[CursorInfo]:
    """Return the cursors with a position in the span, by name."""
    found: dict[str, CursorInfo] = {}

    async def one(part: Span) -> None:
        at: bytes | None = part[0]
        while at is not None and (part[1] is None or at < part[1]):
            after = None
            while True:
                body = {"start_key": at, "end_key": part[1], "after": after}
                answer, _ = await cluster.call(routes, at, CURSOR_LIST, body, deadline=deadline)
                for name, holder, next_, keys in answer["cursors"]:
                    before = found.get(name, CursorInfo(name, holder, next_, 0))
                    found[name] = CursorInfo(
                        name, max(before.holder, holder), min(before.next, next_),
                        before.keys + keys,
                    )  # fmt: skip
                after = progress.later_id(answer, "after", after)
                if after is None:
                    break
            at = progress.end_key(answer, at)

    ranges = await cluster.all_ranges(routes, deadline, span)
    await each([(max(known.start, span[0]), least(known.end, span[1])) for known in ranges], one)
    return [found[name] for name in sorted(found)]


def checked_start(start: FollowStart) -> CursorStart:
    """Return where a kept cursor may begin. Raises InvalidArgument."""
    if isinstance(start, int | Timestamp):
        return start
    if start == "earliest":
        return "earliest"
    if start == "latest":
        return "latest"
    raise InvalidArgument(
        f"start is {start!r}; a kept cursor begins at a seq, 'earliest', 'latest' or Timestamp",
        what="start",
    )


def checked_name(name: str) -> str:
    """Return the name of a cursor. Raises InvalidArgument."""
    if type(name) is not str or not 1 <= len(name) <= limits.cursor_name_chars_max:
        raise InvalidArgument(
            f"the name of the cursor is {name!r}; give 1 to {limits.cursor_name_chars_max} "
            "characters",
            what="name",
        )
    return name
