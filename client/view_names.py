"""The names of a log's views, and what this client remembers of them.

An append that waits for views needs their ids. The client remembers the list of the views for some
seconds, so that an append asks the controller for nothing. An old list does no harm: no other view
ever gets the id of a deleted view, the options of an id never change, and the leader of a range
refuses an id that is gone. The client asks again before it refuses a name or a key.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import group_names
from .cluster import Body, Cluster, LogRoutes
from .cursor import AsyncKeptCursor
from .protocol.errors import InvalidArgument, NotFound, Timeout
from .protocol.patterns import patterns_of
from .protocol.types import ViewInfo
from .protocol.views import VIEW_DELETE, VIEW_LIST, VIEW_REGISTER

remembered_s: Final = 10.0
"""How long the client uses a list of the views."""


class ViewNames:
    """The names of the views of one log."""

    def __init__(self, cluster: Cluster, routes: LogRoutes) -> None:
        self._cluster = cluster
        self._routes = routes
        self._known: Mapping[str, ViewInfo] = {}
        self._asked_at = float("-inf")
        """When `_known` was asked for."""
        self._lock: asyncio.Lock | None = None

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
        try:
            answer = await self._cluster.call_any(VIEW_REGISTER, body, deadline=deadline)
        finally:
            self._routes.views_changed_at = self._cluster.now()
        return _info_of(answer)

    async def delete(self, name: str, deadline: float) -> None:
        """Delete a view. Raises LogNotFound, NotFound."""
        body = {"log": self._routes.name, "name": name}
        try:
            await self._cluster.call_any(VIEW_DELETE, body, deadline=deadline)
        finally:
            self._routes.views_changed_at = self._cluster.now()

    async def chosen(
        self, names: Sequence[str], keys: Sequence[bytes], deadline: float
    ) -> list[ViewInfo]:
        """Return the views of the names. Raises NotFound for a view that does not exist, and
        InvalidArgument for a key that a view does not have."""
        began = self._cluster.now()
        known = await self.known(began - remembered_s, deadline)
        try:
            return self._found(known, names, keys)
        except (NotFound, InvalidArgument):
            # The view may be new, or registered again with other keys.
            return self._found(await self.known(began, deadline), names, keys)

    async def known(self, since: float, deadline: float) -> Mapping[str, ViewInfo]:
        """Return the views by name, from a list that was asked for at `since` or later. Calls that
        need a new list share one request. Raises LogNotFound, Unavailable, Timeout."""
        if self._is_known(since):
            return self._known
        if self._lock is None:
            self._lock = asyncio.Lock()
        try:
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            raise Timeout(
                f"no node has listed the views of log {self._routes.name!r} in time; nothing was "
                "appended. Check the addresses and the network",
                outcome="not_applied",
            ) from None
        try:
            if not self._is_known(since):
                asked_at = self._cluster.now()
                views = await self.listed(deadline)
                self._known = {view.name: view for view in views}
                self._asked_at = asked_at
            return self._known
        finally:
            self._lock.release()

    def _is_known(self, since: float) -> bool:
        return self._asked_at >= max(since, self._routes.views_changed_at)

    def _found(
        self, known: Mapping[str, ViewInfo], names: Sequence[str], keys: Sequence[bytes]
    ) -> list[ViewInfo]:
        for name in names:
            if name not in known:
                raise NotFound(
                    f"log {self._routes.name!r} has no view {name!r}, or the client may not read "
                    "its keys; nothing was appended",
                    view=name,
                )
            _check_keys(known[name], keys)
        return [known[name] for name in names]


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
