"""A consumer group for the people who look after it: lag, parked keys, history, decisions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from . import group_names, progress
from .appends import checked_key
from .cluster import Body, Cluster, LogRoutes
from .cursor import checked_start
from .durations import milliseconds
from .gathering import each
from .group_held import told
from .group_names import hull, prefix_of, spans_of
from .group_pulls import GroupPulls
from .protocol import limits
from .protocol.errors import Conflict, InvalidArgument, NotFound, Outcome
from .protocol.groups import (
    BY_ENTRY,
    GROUP_DECIDE,
    GROUP_HISTORY,
    GROUP_KEYS,
    GROUP_LAG,
    IN_FLIGHT,
    PARKED,
)
from .protocol.reads import RESOLVE, SCAN
from .protocol.types import (
    CursorStart,
    GroupDecision,
    GroupInfo,
    GroupKey,
    GroupLag,
    Timestamp,
)
from .routing import Range
from .span_positions import Position, least, span_positions

_DECISIONS: Final[Mapping[int, str]] = {
    1: "parked", 2: "rejected", 3: "retried", 4: "skipped", 5: "dead letter", 6: "reset", 7: "lost",
}  # fmt: skip


class AsyncGroup:
    """A consumer group of a log, for its operators; made by `AsyncLog.group`. Nothing is sent
    before the first call.

    Every method takes `timeout`, seconds, the log's by default. All raise LogNotFound, NotFound for
    a group that does not exist, Unavailable, Timeout, and Unauthorized. Looking needs the right to
    read the group's keys; decisions and `delete` need the verb `group` on the log.
    """

    def __init__(self, cluster: Cluster, routes: LogRoutes, name: str, *, timeout: float) -> None:
        self._cluster = cluster
        self._routes = routes
        self._name = group_names.checked_name(name)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<AsyncGroup {self._name!r} of {self._routes.name!r}>"

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    async def describe(self, *, timeout: float | None = None) -> GroupInfo:
        """Return the id and the options of the group."""
        return await self._info(self._deadline(timeout))

    async def lag(self, *, timeout: float | None = None) -> GroupLag:
        """Return what the group has not done: entries, bytes, the oldest entry, and keys.

        Each range counts exactly at one index; the ranges answer one after another. The call reads
        the entries that are not done, so it costs time after a long pause of all consumers.
        """
        deadline = self._deadline(timeout)

        async def one(known: Range, body: Body) -> Body:
            left = max(1, milliseconds(deadline - self._cluster.now()))
            answer, _ = await self._cluster.call(
                self._routes, body["start_key"], GROUP_LAG, {**body, "timeout_ms": left},
                deadline=deadline, waits=True,
            )  # fmt: skip
            return answer

        found = await self._each_range(one, deadline)
        oldest = [row["oldest_ms"] for row in found if row["oldest_ms"] is not None]
        names = ("entries", "bytes", "waiting", "in_flight", "parked")
        sums = {name: sum(row[name] for row in found) for name in names}
        return GroupLag(
            **sums,
            oldest_ms=min(oldest, default=None),
            begun=all(row["begun"] for row in found),
            consumers=max((row["consumers"] for row in found), default=0),
        )

    async def parked(self, *, timeout: float | None = None) -> list[GroupKey]:
        """Return the keys that wait for `retry` or `skip`, in order, with their last errors."""
        return await self._keys(PARKED, self._deadline(timeout))

    async def in_flight(self, *, timeout: float | None = None) -> list[GroupKey]:
        """Return the keys that consumers have now, in order."""
        return await self._keys(IN_FLIGHT, self._deadline(timeout))

    async def history(self, *, timeout: float | None = None) -> list[GroupDecision]:
        """Return what was decided about keys, the oldest first: parked, rejected, retried, skipped,
        dead letter, reset, lost. Each range remembers the last 1,000 decisions."""
        deadline = self._deadline(timeout)

        async def one(known: Range, body: Body) -> list[GroupDecision]:
            rows: list[GroupDecision] = []
            after: int | None = 0
            while after is not None:
                answer, _ = await self._cluster.call(
                    self._routes, body["start_key"], GROUP_HISTORY, {**body, "after": after},
                    deadline=deadline,
                )  # fmt: skip
                rows += map(_decision, answer["decisions"])
                following = answer["after"]
                after = None if following is None else progress.higher(answer, "after", after)
            return rows

        found = await self._each_range(one, deadline)
        rows = [row for rows in found for row in rows]
        return sorted(rows, key=lambda row: row.at_ms)

    async def retry(self, key: bytes | str, *, timeout: float | None = None) -> None:
        """Let a parked key go on with the entry at which it stopped. Raises Conflict for a key that
        is not parked, with unknown outcome if an attempt without an answer may have let it go on.
        """
        wanted = checked_key(key)
        refused, outcome = await self._decide(wanted, {"retry": [wanted]}, self._deadline(timeout))
        if refused:
            raise Conflict(
                f"key {wanted!r} is not parked in the group {self._name!r}", outcome=outcome
            )

    async def skip(
        self, key: bytes | str, through: int | None = None, *, why: str = "",
        timeout: float | None = None,
    ) -> int:  # fmt: skip
        """Pass entries of a key, parked or not, without a consumer: up to the seq `through`,
        inclusive; None: the next entry alone. Without an order, pass the entry with this seq alone;
        None: the first parked entry, or else the first entry. Returns the seq.

        The range remembers who has skipped what, and `why`. Raises NotFound for a key without
        another entry, InvalidArgument for a seq that is passed already, and Conflict when the key
        has moved meanwhile, but not past the seq.
        """
        wanted, deadline = checked_key(key), self._deadline(timeout)
        row = await self._key(wanted, deadline)
        last = through
        by_entry = (await self._info(deadline)).ordering == BY_ENTRY
        if last is None:
            last = await self._next_seq(wanted, row.position, deadline)
        if type(last) is not int or last < row.position:
            raise InvalidArgument(
                f"through is {last!r}; the next entry of key {wanted!r} has seq {row.position} or "
                "above. Give the seq of the last entry to pass",
                what="through",
            )
        begin = last if by_entry else row.position
        asked = {"skip": [[wanted, begin, last + 1]], "why": told(why)}
        refused, _ = await self._decide(wanted, asked, deadline)
        if any(position <= last for _, position in refused):
            raise Conflict(
                f"key {wanted!r} of the group {self._name!r} has moved meanwhile, or the log has "
                f"no entry with seq {last}; look again"
            )
        return last

    async def reset(
        self, to: CursorStart, *, key: bytes | str | None = None, timeout: float | None = None
    ) -> None:
        """Set the position of all keys of the group, or of one `key`, forwards or back.

        `to`: a seq, "earliest", "latest" or Timestamp(ms). Consumers lose what they have, and their
        acknowledgements raise Fenced; parked keys are parked no longer. A failed call may be made
        again: some ranges may have been reset.
        """
        start, deadline = checked_start(to), self._deadline(timeout)
        if key is not None:
            wanted = checked_key(key)
            position = await self._position_of(wanted, start, deadline)
            await self._decide(wanted, {"keys": [[wanted, position]]}, deadline)
            return
        info = await self._info(deadline)
        rows: list[Position] = []
        for low, high in spans_of(info):
            if isinstance(start, Timestamp):
                rows += await span_positions(
                    self._cluster, self._routes, ["ts", start.ms], low, high, deadline=deadline
                )
            else:
                rows.append((low, high, _seq_of(start)))

        async def one(known: Range, body: Body) -> None:
            own = [
                [max(low, known.start), least(high, known.end), max(1, seq)]
                for low, high, seq in rows
                if known.overlaps(low, high)
            ]
            most = limits.group_reset_spans_max
            for at in range(0, len(own), most):
                asked = {"group": info.id, "spans": own[at : at + most]}
                await self._cluster.call(
                    self._routes, body["start_key"], GROUP_DECIDE, asked, deadline=deadline
                )

        await self._each_range(one, deadline)

    async def delete(self, *, timeout: float | None = None) -> None:
        """Delete the group with its positions; its consumers raise NotFound. A group that is
        created later with this name begins anew."""
        deadline = self._deadline(timeout)
        info = await self._info(deadline)
        try:
            name = self._routes.name
            await group_names.deleted(self._cluster, name, self._name, info.id, deadline)
        finally:  # its views go with the group
            self._routes.views_changed_at = self._cluster.now()

    # Internal.

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)

    async def _info(self, deadline: float) -> GroupInfo:
        return await group_names.found(self._cluster, self._routes.name, self._name, deadline)

    async def _each_range(
        self, ask: Callable[[Range, Body], Awaitable[Any]], deadline: float
    ) -> list[Any]:
        """Return the answers of the ranges that have keys of the group, in order. `ask` gets a
        range, and what a request about the group's keys there has."""
        info = await self._info(deadline)
        low, high = hull(info)
        prefix = prefix_of(info)

        async def one(known: Range) -> Any:
            start, end = max(low, known.start), least(high, known.end)
            body = {"group": info.id, "prefix": prefix, "start_key": start, "end_key": end}
            return await ask(known, body)

        return await each(await self._cluster.all_ranges(self._routes, deadline, (low, high)), one)

    async def _keys(self, what: str, deadline: float) -> list[GroupKey]:
        async def one(known: Range, body: Body) -> list[GroupKey]:
            rows: list[GroupKey] = []
            after: bytes | None = None
            seq = 0
            while True:
                answer, _ = await self._cluster.call(
                    self._routes, body["start_key"], GROUP_KEYS,
                    {**body, "what": what, "after": after, "after_seq": seq}, deadline=deadline,
                )  # fmt: skip
                rows += map(_key, answer["rows"])
                if answer["after"] is None:
                    return rows
                if answer["after"] != after or answer["after_seq"] <= seq:
                    after = progress.later_key(answer, "after", after)
                seq = answer["after_seq"]

        found = await self._each_range(one, deadline)
        return [row for rows in found for row in rows]

    async def _key(self, key: bytes, deadline: float) -> GroupKey:
        info = await self._info(deadline)
        body = {"group": info.id, "key": key}
        answer, _ = await self._cluster.call(self._routes, key, GROUP_KEYS, body, deadline=deadline)
        if not answer["rows"] or not answer["rows"][0][1]:
            raise NotFound(
                f"the group {self._name!r} has not begun at key {key!r}, or does not read the key"
            )
        return _key(answer["rows"][0])

    async def _next_seq(self, key: bytes, position: int, deadline: float) -> int:
        body = {"key": key, "start": position, "limit": 1}
        answer, _ = await self._cluster.call(self._routes, key, SCAN, body, deadline=deadline)
        if not answer["seqs"]:
            raise NotFound(f"key {key!r} has no entry that the group {self._name!r} has not done")
        seq: int = answer["seqs"][0]
        return seq

    async def _position_of(self, key: bytes, start: CursorStart, deadline: float) -> int:
        if not isinstance(start, Timestamp):
            return _seq_of(start)
        body: Body = {"key": key, "start": ["ts", start.ms]}
        end: int | None = None
        while True:
            answer, _ = await self._cluster.call(
                self._routes, key, RESOLVE, body, deadline=deadline
            )
            if not answer["more"]:
                return max(1, int(answer["seq"]))
            body["end"] = end = progress.lower(answer, "seq", end)

    async def _decide(self, key: bytes, asked: Body, deadline: float) -> tuple[list[Any], Outcome]:
        """Ask the range of a key for a decision; return the refused keys, with their positions, and
        the outcome of earlier attempts (x18)."""
        info = await self._info(deadline)
        attempts = self._cluster.attempts(self._routes, GROUP_DECIDE, deadline)
        answer, _ = await self._cluster.call(
            self._routes, key, GROUP_DECIDE, {"group": info.id, **asked}, deadline=deadline,
            attempts=attempts,
        )  # fmt: skip
        return answer["refused"], attempts.outcome


def pulls_of(group: AsyncGroup) -> GroupPulls:
    """Return the pulls of the groups of the log, which the client makes once."""
    routes = group._routes
    if routes.pulls is None:
        routes.pulls = GroupPulls(group._cluster, routes)
    return routes.pulls


async def create_group(
    group: AsyncGroup, options: Mapping[str, Any], prefix: bytes | None,
    pattern: Sequence[bytes] | None,
) -> GroupInfo:  # fmt: skip
    """Create the group unless it exists, and let it begin in each range. `options` are fields of
    GROUP_CREATE. Raises Conflict if the group exists with other options."""
    deadline = group._deadline(None)
    chosen = None if pattern is None else list(pattern)
    await group_names.created(
        group._cluster, group._routes, group.name, options, prefix, chosen, deadline
    )
    return await group_names.begun(group._cluster, group._routes, group.name, deadline)


def _seq_of(start: int | str) -> int:
    """Return the seq of a start. A range takes its own end instead of a seq behind its end."""
    if isinstance(start, int):
        return max(1, start)
    return 1 if start == "earliest" else limits.number_max


def _key(row: list[Any]) -> GroupKey:
    key, position, deliveries, _, parked, error = row
    return GroupKey(key, position, deliveries, parked, error)


def _decision(row: list[Any]) -> GroupDecision:
    at_ms, what, *others = row
    return GroupDecision(at_ms, _DECISIONS.get(what, f"decision {what}"), *others)
