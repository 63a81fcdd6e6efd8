"""Views of a log, and the waits of appends for them.

An append is acknowledged first. Then the client asks the leader of each range to wait until the
views have acknowledged the entries. Errors of a wait are not errors of the append: what no leader
could tell in time counts as not seen. After a change of leader, a split or a merge the client asks
at the new place of the keys, with the rest of the time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import group_names
from .cluster import Body, Cluster, LogRoutes
from .cursor import AsyncKeptCursor
from .durations import milliseconds
from .protocol import limits
from .protocol.errors import InvalidArgument, LognodeError, NotFound, RemoteProtocolError
from .protocol.patterns import patterns_of
from .protocol.types import Ack, ViewInfo
from .protocol.views import VIEW_DELETE, VIEW_LIST, VIEW_REGISTER, VIEWS_WAIT
from .retry import Attempts
from .routing import Range

wait_ms_default: Final = 1_000
_WAITS_AT_ONCE: Final = 128
"""Requests of the waits for views of a log that are under way; more wait here, in their own time.
"""
_ANSWER_S: Final = 0.5
"""How long an answer may take beyond the wait."""


class Views:
    """The views of one log."""

    def __init__(self, cluster: Cluster, routes: LogRoutes) -> None:
        self._cluster = cluster
        self._routes = routes
        self._gate: asyncio.Semaphore | None = None

    # Names.

    async def listed(self, deadline: float) -> list[ViewInfo]:
        """Return the views of the log by name. Raises LogNotFound."""
        body = {"log": self._routes.name}
        answer = await self._cluster.call_any(VIEW_LIST, body, deadline=deadline)
        return list(map(_info_of, answer["views"]))

    async def register(self, asked: Body, timeout: float, deadline: float) -> ViewInfo:
        """Register a view once its group has begun, or once its cursor exists, for all keys: a
        position that begins later could pass entries that nobody has read."""
        if asked["group"] is not None:
            await group_names.begun(self._cluster, self._routes, asked["group"], deadline)
        elif asked["cursor"] is not None:
            cursor = AsyncKeptCursor(
                self._cluster, self._routes, asked["cursor"], keys=None,
                prefix=asked["prefix"] or None, pattern=None, start="earliest", timeout=timeout,
            )  # fmt: skip
            await cursor.rows(timeout=deadline - self._cluster.now())
        body = {"log": self._routes.name, **asked}
        answer = await self._cluster.call_any(VIEW_REGISTER, body, deadline=deadline)
        return _info_of(answer)

    async def delete(self, name: str, deadline: float) -> None:
        """Delete a view. Raises LogNotFound, NotFound."""
        body = {"log": self._routes.name, "name": name}
        await self._cluster.call_any(VIEW_DELETE, body, deadline=deadline)

    # Waits.

    async def chosen(
        self, names: Sequence[str], wait_ms: int, keys: Sequence[bytes], deadline: float
    ) -> list[ViewInfo]:
        """Return the views that an append of these keys is to wait for, before it is sent.

        Raises NotFound for a view that does not exist, and InvalidArgument.
        """
        if isinstance(names, str) or len(names) > limits.view_waits_for_max:
            raise InvalidArgument(
                f"wait_for is {names!r}; give a list of at most {limits.view_waits_for_max} names "
                "of views",
                what="wait_for",
            )
        if type(wait_ms) is not int or not 0 <= wait_ms <= limits.view_wait_ms_max:
            raise InvalidArgument(
                f"wait_ms is {wait_ms!r}; give 0 to {limits.view_wait_ms_max} milliseconds",
                what="wait_ms",
            )
        known = {view.name: view for view in await self.listed(deadline)}
        found = []
        for name in dict.fromkeys(names):
            view = known.get(name)
            if view is None:
                raise NotFound(
                    f"log {self._routes.name!r} has no view {name!r}, or the client may not read "
                    "its keys; nothing was appended",
                    view=name,
                )
            _check_keys(view, keys)
            found.append(view)
        return found

    async def seen(
        self, views: Sequence[ViewInfo], wait_ms: int, keys: Sequence[bytes], acks: Sequence[Ack]
    ) -> list[Ack]:
        """Wait until the views have acknowledged the entries, or for `wait_ms`; return the acks
        with what was seen. The entries of a key count together, as its last one."""
        last: dict[bytes, int] = {}
        for key, ack in zip(keys, acks, strict=True):
            if ack.seq is not None:
                last[key] = max(last.get(key, 0), ack.seq)
        masks: dict[bytes, int] = {}
        until = self._cluster.now() + wait_ms / 1000
        await self._wait([*last.items()], [view.id for view in views], masks, until)
        told = []
        for key, ack in zip(keys, acks, strict=True):
            mask = 0 if ack.seq is None else masks.get(key, 0)
            seen = {view.name: bool(mask >> bit & 1) for bit, view in enumerate(views)}
            told.append(ack._replace(seen=seen))
        return told

    async def _wait(
        self, rows: list[tuple[bytes, int]], views: list[int], masks: dict[bytes, int],
        until: float,
    ) -> None:  # fmt: skip
        """Ask the leaders of the rows' ranges, and note the answers in `masks`."""
        known: Range | None = None
        tried = 0
        give_up = until + _ANSWER_S
        attempts = Attempts(f"{VIEWS_WAIT} of log {self._routes.name!r}", give_up, writes=False)
        loop = asyncio.get_running_loop()
        while rows:
            try:
                known = await self._cluster.locate(self._routes, rows[0][0], give_up)
                own = [row for row in rows if known.contains(row[0])][: limits.view_wait_keys_max]
                if len(own) < len(rows):
                    asked = {*own}
                    rest = [row for row in rows if row not in asked]
                    await asyncio.gather(
                        self._wait(own, views, masks, until),
                        self._wait(rest, views, masks, until),
                    )
                    return
                tried = self._cluster.target(known)
                await self._ask(known, tried, own, views, masks, until)
                return
            except LognodeError as error:
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

    async def _ask(
        self, known: Range, node: int, rows: Sequence[tuple[bytes, int]], views: list[int],
        masks: dict[bytes, int], until: float,
    ) -> None:  # fmt: skip
        """Make one attempt at one leader, which waits for the rest of the time."""
        if self._gate is None:
            self._gate = asyncio.Semaphore(_WAITS_AT_ONCE)
        try:
            async with asyncio.timeout_at(until + _ANSWER_S):
                async with self._gate:
                    left_ms = max(0, milliseconds(until - self._cluster.now()))
                    body = {"keys": list(map(list, rows)), "views": views, "wait_ms": left_ms}
                    answer = await self._cluster.ask(
                        known, VIEWS_WAIT, body, until + _ANSWER_S, node=node
                    )
        except TimeoutError:
            return
        if len(answer["seen"]) != len(rows):
            raise RemoteProtocolError("the answer to a wait for views does not fit its keys")
        for (key, _), mask in zip(rows, answer["seen"], strict=True):
            masks[key] = mask


def of_all(acks: Sequence[Ack]) -> dict[str, bool]:
    """Return which views have acknowledged all of the entries."""
    names = (acks[0].seen or {}).keys()
    return {name: all((ack.seen or {})[name] for ack in acks) for name in names}


def _check_keys(view: ViewInfo, keys: Sequence[bytes]) -> None:
    """Raise InvalidArgument for a key that the view does not have: it would never be seen."""
    if view.patterns:
        matching = patterns_of(view.separator, view.patterns)
        strange = [key for key in keys if not matching.matches(key)]
    else:
        strange = [key for key in keys if not key.startswith(view.prefix)]
    if strange:
        raise InvalidArgument(
            f"the view {view.name!r} does not have the key {strange[0]!r}; nothing was appended",
            what="wait_for",
        )


def _info_of(row: Mapping[str, Any]) -> ViewInfo:
    """Return a view from a checked answer."""
    separator, texts = row["patterns"] or (b"", ())
    return ViewInfo(
        row["id"], row["name"], row["group"], row["cursor"], row["prefix"], separator,
        tuple(texts), row["policy"], row["created_ms"],
    )  # fmt: skip
