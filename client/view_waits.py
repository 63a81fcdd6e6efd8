"""The waits of appends for views of a log.

An append is acknowledged first. Then the client asks the leader of each range to wait until the
views have acknowledged the entries. Errors of a wait are not errors of the append: what no leader
could tell in time counts as not seen. After a change of leader, a split or a merge the client asks
at the new place of the keys, with the rest of the time. When a view is gone, the client looks at
the names again, and waits for the others and for a new view of the name.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from .cluster import Body, Cluster, LogRoutes
from .durations import milliseconds
from .protocol import limits
from .protocol.errors import InvalidArgument, LognodeError, NotFound, RemoteProtocolError
from .protocol.types import Ack, ViewInfo
from .protocol.views import VIEWS_WAIT
from .retry import Attempts
from .routing import Range
from .view_choice import WaitFor, checked_choice
from .view_names import ViewNames

wait_ms_default: Final = 1_000
_WAITS_AT_ONCE: Final = 128
"""Requests of the waits for views of a log that are under way; more wait here, in their own time.
"""
_ANSWER_S: Final = 0.5
"""How long an answer may take beyond the wait."""


class Waited:
    """The views of one append, and what they have seen."""

    def __init__(self, views: Sequence[ViewInfo], count: int, *, live: bool, wait_ms: int) -> None:
        self.names = [view.name for view in views]
        self.ids: list[int | None] = [view.id for view in views]
        """The view of each name; None: the view is gone."""
        self.count = count
        """The append waits for so many of the views."""
        self.live = live
        self.wait_ms = wait_ms
        self.together = False
        """Whether a view counts only when it has acknowledged all entries of a request."""
        self.masks: dict[bytes, int] = {}
        """For each key, a number whose bit n says that view n has acknowledged the entry."""

    @property
    def together_mask(self) -> int:
        """The views that have acknowledged the entries of all keys."""
        mask = (1 << len(self.names)) - 1
        for each in self.masks.values():
            mask &= each
        return mask

    def body(self, count: int) -> Body:
        """Return the fields of a request that choose the views."""
        ids = [view_id for view_id in self.ids if view_id is not None]
        return {
            "views": ids, "enough": min(count, len(ids)), "live": self.live,
            "together": self.together,
        }  # fmt: skip


class Views(ViewNames):
    """The views of one log: their names, and waits for them."""

    def __init__(self, cluster: Cluster, routes: LogRoutes) -> None:
        super().__init__(cluster, routes)
        self._gate: asyncio.Semaphore | None = None

    async def waited(
        self, wait_for: WaitFor, wait_ms: int, keys: Sequence[bytes], deadline: float
    ) -> Waited:
        """Return the views that an append of these keys is to wait for, before it is sent.

        Raises NotFound for a view that does not exist, and InvalidArgument.
        """
        names, count, live = checked_choice(wait_for)
        if type(wait_ms) is not int or not 0 <= wait_ms <= limits.view_wait_ms_max:
            raise InvalidArgument(
                f"wait_ms is {wait_ms!r}; give 0 to {limits.view_wait_ms_max} milliseconds",
                what="wait_ms",
            )
        views = await self.chosen(names, keys, deadline)
        return Waited(views, count, live=live, wait_ms=wait_ms)

    async def seen(self, waited: Waited, keys: Sequence[bytes], acks: Sequence[Ack]) -> list[Ack]:
        """Wait until enough of the views have acknowledged each entry, or for the limit of the
        wait; return the acks with what was seen. The entries of a key count together, as its last
        one."""
        rows = _rows(keys, acks)
        await self._wait(rows, waited, waited.count, self._until(waited))
        names, masks = waited.names, waited.masks
        return [
            ack._replace(seen=_by_name(names, 0 if ack.seq is None else masks.get(key, 0)))
            for key, ack in zip(keys, acks, strict=True)
        ]

    async def seen_together(
        self, waited: Waited, keys: Sequence[bytes], acks: Sequence[Ack]
    ) -> dict[str, bool]:
        """Wait until enough of the views have acknowledged all entries, or for the limit of the
        wait; return which views have."""
        waited.together = True
        rows = _rows(keys, acks)
        waited.masks.update((key, 0) for key in keys)
        until = self._until(waited)
        # Where the keys need several requests, each may end by other views: then ask for more.
        for count in range(waited.count, len(waited.names) + 1):
            await self._wait(rows, waited, count, until)
            if waited.together_mask.bit_count() >= waited.count or self._cluster.now() >= until:
                break
        return _by_name(waited.names, waited.together_mask)

    def _until(self, waited: Waited) -> float:
        return self._cluster.now() + waited.wait_ms / 1000

    async def _wait(
        self, rows: list[tuple[bytes, int]], waited: Waited, count: int, until: float
    ) -> None:
        """Ask the leaders of the rows' ranges, and note the answers in the masks."""
        known: Range | None = None
        tried = 0
        give_up = until + _ANSWER_S
        attempts = Attempts(f"{VIEWS_WAIT} of log {self._routes.name!r}", give_up, writes=False)
        loop = asyncio.get_running_loop()
        while rows:
            ids = list(waited.ids)
            try:
                known = await self._cluster.locate(self._routes, rows[0][0], give_up)
                own = [row for row in rows if known.contains(row[0])][: limits.view_wait_keys_max]
                if len(own) < len(rows):
                    asked = {*own}
                    rest = [row for row in rows if row not in asked]
                    await asyncio.gather(
                        self._wait(own, waited, count, until),
                        self._wait(rest, waited, count, until),
                    )
                    return
                tried = self._cluster.target(known)
                await self._ask(known, tried, own, waited, count, until)
                return
            except LognodeError as error:
                if type(error) is NotFound:  # a view is gone
                    if await self._look_again(waited, ids, give_up):
                        continue
                    return
                news = known is not None and self._cluster.heed(self._routes, known, tried, error)
                try:
                    step = attempts.failed(error, loop.time(), news=news)
                    if self._cluster.now() + step.delay_s >= give_up:
                        return
                    if known is not None:
                        await self._cluster.prepare(self._routes, known, tried, step, give_up)
                    else:
                        await asyncio.sleep(step.delay_s)
                except LognodeError:
                    return  # no leader can tell: the entries count as not seen

    async def _look_again(self, waited: Waited, ids: Sequence[int | None], deadline: float) -> bool:
        """Learn the present views of the names; return whether a wait for them makes sense: there
        are views, and others than `ids`, which a leader has refused."""
        try:
            views = await self.known(self._cluster.now(), deadline)
        except LognodeError:
            return False
        waited.ids = [views[name].id if name in views else None for name in waited.names]
        return waited.ids != ids and any(waited.ids)

    async def _ask(
        self, known: Range, node: int, rows: Sequence[tuple[bytes, int]], waited: Waited,
        count: int, until: float,
    ) -> None:  # fmt: skip
        """Make one attempt at one leader, which waits for the rest of the time."""
        if self._gate is None:
            self._gate = asyncio.Semaphore(_WAITS_AT_ONCE)
        try:
            async with asyncio.timeout_at(until + _ANSWER_S):
                async with self._gate:
                    left_ms = max(0, milliseconds(until - self._cluster.now()))
                    bits = [bit for bit, view_id in enumerate(waited.ids) if view_id is not None]
                    body = {"keys": list(map(list, rows)), "wait_ms": left_ms, **waited.body(count)}
                    answer = await self._cluster.ask(
                        known, VIEWS_WAIT, body, until + _ANSWER_S, node=node
                    )
        except TimeoutError:
            return
        if len(answer["seen"]) != len(rows):
            raise RemoteProtocolError("the answer to a wait for views does not fit its keys")
        for (key, _), told in zip(rows, answer["seen"], strict=True):
            mask = sum((told >> at & 1) << bit for at, bit in enumerate(bits))
            waited.masks[key] = waited.masks.get(key, 0) | mask


def _rows(keys: Sequence[bytes], acks: Sequence[Ack]) -> list[tuple[bytes, int]]:
    """Return the last entry of each key."""
    last: dict[bytes, int] = {}
    for key, ack in zip(keys, acks, strict=True):
        if ack.seq is not None:
            last[key] = max(last.get(key, 0), ack.seq)
    return [*last.items()]


def _by_name(names: Sequence[str], mask: int) -> dict[str, bool]:
    return {name: bool(mask >> bit & 1) for bit, name in enumerate(names)}
