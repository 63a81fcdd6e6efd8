"""Follows of few keys, by the thousand: they share streams, where each would hold one.

A node serves a thousand follows of a connection, and a follow of ten thousand keys. So from
`shared_from` follows of a log on, the reads of further follows are gathered for a moment, grouped
by range, and a group reads its keys with one stream. When there are many groups, a new one takes
over those of its range that are not much larger, so that a key is asked for again only a few times.

A follow whose caller is slow must not slow the other follows of its group, and must not fill the
memory. When its queue is full it leaves the group, which drops its entries from then on. It comes
back, with its own position, when the caller has emptied the queue. Every follow keeps its own
position, and takes from a stream only entries from there on: none is skipped and none comes twice,
whatever group it is in. Errors that end a follow are told to the follow by a stream of its own.

Nothing is done for a follow to which nothing happens. A page that leaves entries for the next page
tells only the follows whose entries it has. All follows of a group are told when the whole stream
is behind or lost, a slice of them in each turn of the loop.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from .cluster import Cluster, LogRoutes
from .follow_span import FollowSpan
from .pages import read_page
from .protocol import limits
from .protocol.errors import LognodeError, Timeout, Unavailable
from .protocol.reads import FOLLOW
from .protocol.types import Entry
from .retry import Attempts
from .routing import Range

shared_from: Final = 64
"""Follows of a log with streams of their own; later ones share."""
shared_keys_max: Final = 16
"""A follow of more keys has a stream of its own."""
groups_max: Final = 192
"""Groups of a log before new groups take over others of their range."""
credit_bytes_min: Final = 64 * limits.KIB
gather_s: Final = 0.005
groups_gathered: Final = 16
"""New follows are gathered for `gather_s`, and as long again for each time that there are so many
groups: thousands of follows that open one after the other get fewer and larger groups."""
behind_s: Final = 0.5
"""A member that is behind for this long tells all its followers; shorter delays only those that get
entries. It is below the time within which a batch that says `caught_up` may be stale."""
told_a_turn: Final = 256
"""Follows that are told in one turn of the loop that their stream is behind: 3 to 5 ms."""
attempt_s: Final = 10.0


class Sharer(Protocol):
    """A follow that shares streams."""

    def hand_over(
        self, span: FollowSpan, entries: list[Entry], *, caught_up: bool, fresh_at: float | None
    ) -> bool:
        """Take entries of a span; return False when there is no room, and nothing was taken."""

    def read_alone(self, span: FollowSpan) -> None:
        """Read the span with a stream of its own from now on."""


class _Group:
    """Spans of one range that are read with one stream."""

    def __init__(self, members: dict[FollowSpan, Sharer]) -> None:
        self.members = members
        self.by_key: dict[bytes, list[FollowSpan]] = {}
        for span in members:
            for key in span.keys or ():
                self.by_key.setdefault(key, []).append(span)
        self.task: asyncio.Task[None] | None = None
        self.on = (0, 0)
        """The range and the generation that are read."""
        self.told: bool | None = None
        """What the stream has said last about being caught up."""
        self.behind = {span for span in members if not span.told_caught_up}
        """The spans whose callers were not told that they are caught up."""
        self.lags = False
        """Whether the last page said that the member is behind, and not merely that more pages
        follow."""
        self.telling: Iterator[FollowSpan] | None = None
        """The spans that are still to be told that the stream is behind, if it is."""
        self.timer: asyncio.Handle | None = None
        """Begins the next telling."""

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.by_key)

    def positions(self) -> dict[bytes, int]:
        """Return where to read each key from: the lowest position of its spans."""
        return {
            key: min(span.keys[key] for span in spans if span.keys is not None)
            for key, spans in self.by_key.items()
        }

    def drop(self, span: FollowSpan) -> None:
        """Take the span out; the stream still has its keys."""
        del self.members[span]
        self.behind.discard(span)
        for key in span.keys or ():
            spans = self.by_key[key]
            spans.remove(span)
            if not spans:
                del self.by_key[key]

    def deliver(
        self, entries: list[Entry], *, more: bool, caught_up: bool, fresh_at: float | None
    ) -> None:
        """Hand the entries over; spans without room leave the group.

        `more`: more entries of some keys come with the next page, which says nothing about the
        other keys. A page that is neither caught up nor followed by more is of a member that is
        behind. All spans are told so when that lasts: `behind_s`.
        """
        parts: dict[FollowSpan, list[Entry]] = {}
        for entry in entries:
            for span in self.by_key.get(entry.key, ()):
                if span.keys is not None and entry.seq >= span.keys[entry.key]:
                    parts.setdefault(span, []).append(entry)
        self.told = caught_up
        self.lags = not caught_up and not more
        if caught_up:
            self.telling = None
            for span in self.behind:
                parts.setdefault(span, [])
        elif self.lags and self.timer is None:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(behind_s, self._tell_behind, fresh_at)
        self._hand_over(parts, caught_up=caught_up, fresh_at=fresh_at)

    def lost(self) -> None:
        """Tell all spans that they are no longer known to be caught up."""
        self._tell_all(None)

    def end(self) -> None:
        """Hand over nothing from now on."""
        if self.timer is not None:
            self.timer.cancel()
        if self.telling is not None:  # the next stream may take long to come
            self._tell(self.telling, None)
        self.members, self.by_key, self.behind = {}, {}, set()

    def _tell_behind(self, fresh_at: float | None) -> None:
        self.timer = None
        if self.lags:
            self._tell_all(fresh_at)

    def _tell_all(self, fresh_at: float | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.telling = iter([span for span in self.members if span not in self.behind])
        self._tell_some(fresh_at)

    def _tell_some(self, fresh_at: float | None) -> None:
        self.timer = None
        if self.telling is not None and self._tell(islice(self.telling, told_a_turn), fresh_at):
            loop = asyncio.get_running_loop()
            self.timer = loop.call_soon(self._tell_some, fresh_at)
        else:
            self.telling = None

    def _tell(self, spans: Iterator[FollowSpan], fresh_at: float | None) -> int:
        """Tell these spans that they are behind; return how many there were."""
        asked = list(spans)
        parts: dict[FollowSpan, list[Entry]] = {
            span: [] for span in asked if span in self.members and span not in self.behind
        }
        self._hand_over(parts, caught_up=False, fresh_at=fresh_at)
        return len(asked)

    def _hand_over(
        self, parts: dict[FollowSpan, list[Entry]], *, caught_up: bool, fresh_at: float | None
    ) -> None:
        for span, own in parts.items():
            hand_over = self.members[span].hand_over
            if not hand_over(span, own, caught_up=caught_up, fresh_at=fresh_at):
                self.drop(span)
            elif caught_up:
                self.behind.discard(span)
            else:
                self.behind.add(span)


class SharedFollows:
    """The shared streams of one client and log."""

    def __init__(self, cluster: Cluster, log: LogRoutes) -> None:
        self.follows = 0
        """Open follows of few keys."""
        self._cluster = cluster
        self._log = log
        self._waiting: dict[FollowSpan, Sharer] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._groups: set[_Group] = set()
        self._placing: set[asyncio.Task[None]] = set()
        self._group_of: dict[FollowSpan, _Group] = {}

    def add(self, span: FollowSpan, sharer: Sharer) -> None:
        """Read the span from its position on."""
        group = self._group_of.pop(span, None)
        if group is not None and span in group.members:
            group.drop(span)
        self._waiting[span] = sharer
        if self._timer is None:
            delay_s = gather_s * (1 + len(self._groups) // groups_gathered)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._gather)

    def remove(self, span: FollowSpan) -> None:
        """Hand nothing of the span over from now on."""
        self._waiting.pop(span, None)
        group = self._group_of.pop(span, None)
        if group is not None and span in group.members:
            group.drop(span)
            if not group.members:
                self._end(group)

    def _gather(self) -> None:
        self._timer = None
        task = asyncio.create_task(self._place())
        self._placing.add(task)
        task.add_done_callback(self._placing.discard)

    async def _place(self) -> None:
        """Group the waiting spans by range, and begin to read."""
        attempts = self._fresh_attempts()
        final = None
        while final is None:
            asked = list(self._waiting)
            keys = [key for span in asked for key in span.keys or ()]
            try:
                ranges = await self._cluster.ranges_of(self._log, keys, self._deadline())
                break
            except LognodeError as error:
                try:
                    step = attempts.failed(error, self._cluster.now())
                    await asyncio.sleep(step.delay_s)
                except LognodeError as found:
                    final, ranges = found, []
        # Some may have been removed or placed meanwhile, and others have come, which are not asked.
        placed = {span: self._waiting.pop(span) for span in asked if span in self._waiting}
        starts = [known.start for known in ranges]
        own: dict[int, dict[FollowSpan, Sharer]] = {}
        alone: dict[FollowSpan, Sharer] = {}  # after a final error, and with keys of several ranges
        for span, sharer in placed.items():
            at = bisect_right(starts, span.start) - 1
            fits = at >= 0 and span.within(ranges[at])
            (own.setdefault(at, {}) if fits else alone)[span] = sharer
        for at, members in own.items():
            self._begin(ranges[at], members)
        self._read_alone(alone)

    def _begin(self, known: Range, members: dict[FollowSpan, Sharer]) -> None:
        """Begin groups of these spans, which take over smaller groups of the range."""
        on = known.range_id, known.generation
        size = sum(len(span.keys or ()) for span in members)
        own = [group for group in self._groups if group.on == on]
        if len(self._groups) < groups_max:
            own = []  # a group that is taken over asks for all of its keys again
        for group in sorted(own, key=lambda each: each.size):
            if group.size > 2 * size or size + group.size > limits.follow_keys_max:
                break
            size += group.size
            members |= group.members
            self._end(group)
        some: dict[FollowSpan, Sharer] = {}
        size = 0
        for span, sharer in members.items():
            size += len(span.keys or ())
            if size > limits.follow_keys_max:
                self._start(_Group(some), on)
                some, size = {}, len(span.keys or ())
            some[span] = sharer
        self._start(_Group(some), on)

    def _start(self, group: _Group, on: tuple[int, int]) -> None:
        group.on = on
        self._groups.add(group)
        self._group_of.update(dict.fromkeys(group.members, group))
        group.task = asyncio.create_task(self._run(group))

    def _end(self, group: _Group) -> None:
        """End a group, whose spans are read no more."""
        self._groups.discard(group)
        group.end()
        if group.task is not None:
            group.task.cancel()

    def _read_alone(self, members: dict[FollowSpan, Sharer]) -> None:
        for span, sharer in members.items():
            self._group_of.pop(span, None)
            sharer.read_alone(span)

    async def _run(self, group: _Group) -> None:
        """Read for ever; a group whose range has changed is placed again."""
        attempts = self._fresh_attempts()
        while group.members:
            known, tried = None, 0
            try:
                known = await self._cluster.locate(
                    self._log, next(iter(group.by_key)), self._deadline()
                )
                if not all(span.within(known) for span in group.members):
                    break
                group.on = known.range_id, known.generation
                tried = self._cluster.target(known)
                group.told = None
                await self._read(group, known, tried)
                attempts = self._fresh_attempts()
            except LognodeError as error:
                if group.told is not None:
                    attempts = self._fresh_attempts()  # the stream has come to be
                if isinstance(error, (Unavailable, Timeout)):
                    group.lost()
                news = known is not None and self._cluster.heed(self._log, known, tried, error)
                try:
                    step = attempts.failed(error, self._cluster.now(), news=news)
                    if known is not None:
                        await self._cluster.prepare(self._log, known, tried, step, self._deadline())
                    elif step.delay_s:
                        await asyncio.sleep(step.delay_s)
                except LognodeError as final:
                    self._give_up(group, at_node=known is not None and final is error)
                    return
            except Exception:  # a bug: the callers must not wait for ever
                self._give_up(group, at_node=False)
                raise
        members = group.members
        self._groups.discard(group)
        group.end()
        for span, sharer in members.items():
            self.add(span, sharer)

    def _give_up(self, group: _Group, *, at_node: bool) -> None:
        """Go on after a final error. `at_node`: a node has refused the group, maybe because of a
        single key; the other spans must not suffer, so both halves are tried."""
        members = list(group.members.items())
        on = group.on
        self._groups.discard(group)
        group.end()
        if not at_node or len(members) == 1:
            self._read_alone(dict(members))
            return
        half = len(members) // 2
        for some in (members[:half], members[half:]):
            self._start(_Group(dict(some)), on)

    async def _read(self, group: _Group, known: Range, node: int) -> None:
        """Read until the stream ends, or until half of its keys are nobody's."""
        positions = group.positions()
        body = {
            "keys": positions, "prefix": b"", "start_key": min(positions), "end_key": None,
            "from_seq": 1,
        }  # fmt: skip
        credit = max(credit_bytes_min, self._cluster.follow_bytes_max // len(self._groups))
        stream = await self._cluster.stream(
            known, FOLLOW, body, self._deadline(), node=node, credit_bytes=credit
        )
        try:
            async for push in stream:
                page = read_page(push["page"])
                self._cluster.remember(self._log, known, push)
                staleness_ms = push.get("staleness_ms")
                fresh_at = (
                    None if staleness_ms is None else self._cluster.now() - staleness_ms / 1000
                )
                group.deliver(
                    page.entries, more=page.more, caught_up=push["caught_up"], fresh_at=fresh_at
                )
                if 2 * group.size < len(positions):
                    return
                await asyncio.sleep(0)  # the callers take what they got before more comes
        finally:
            stream.cancel()
        raise Unavailable(f"the node ended the follow of {known}", reason="ended")

    def _deadline(self) -> float:
        return self._cluster.now() + attempt_s

    def _fresh_attempts(self) -> Attempts:
        return Attempts(f"follow of log {self._log.name!r}", float("inf"), writes=False)
