"""Serve `views_wait`: the leader of a range waits until views have acknowledged entries.

The controller keeps the views (`view_catalog`); a request names them by id. A client remembers the
ids for some seconds, and this node may not have heard of the end of a view. So the node says that a
view has acknowledged entries only when metadata as new as the request still have the view. The
node asks for these while it waits.

Only applied positions count, see `replicas.view_waits`. An entry that may be removed counts as
not seen: positions pass removed entries without an acknowledgement.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation, limits
from ...client.protocol.errors import GenerationMismatch, NotFound, Overloaded
from ...client.protocol.views import LIVE, VIEWS_WAIT
from ...partitions.metadata import Metadata
from ...partitions.views import ViewRecord
from ...statemachine.groups.selection import Selection
from ...statemachine.range_state import RangeState
from ..replicas.range_replica import RangeReplica
from ..replicas.view_waits import Seen, Wait
from .data_service import DataService
from .fresh_metadata import FreshMetadata

Body = dict[str, Any]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]
_RETRY_AFTER_S: Final = 0.1
_CONFIRM_S: Final = 0.25
"""How long the answer may wait for the metadata beyond the wait itself: the client waits for half
a second more."""


class ViewService:
    """Serves waits on the ranges of this node.

    `metadata` returns the cluster as this node knows it, and `confirmed` brings it up to date, see
    `FreshMetadata`.
    `has_consumers` tells whether a consumer of a group lives, as the leader of the range knows.
    """

    def __init__(
        self,
        *,
        data: DataService,
        metadata: Callable[[], Metadata],
        confirmed: Callable[[], Awaitable[bool]],
        has_consumers: Callable[[RangeReplica, int], bool],
    ) -> None:
        self._data = data
        self._metadata = metadata
        self._fresh = FreshMetadata(confirmed)
        self._has_consumers = has_consumers
        self._bounds = Bounds()
        self.paid_handlers: Mapping[Operation, PaidHandler] = {VIEWS_WAIT: self._wait}

    async def _wait(self, body: Body, room: Room) -> Body:
        replica = self._data.find(body)
        entries = [(key, seq) for key, seq in body["keys"]]
        if any(key not in replica.descriptor.span for key, _ in entries):
            raise GenerationMismatch(
                f"a key is not in range {replica.gid.range_id}",
                ranges=[replica.descriptor.to_wire()],
            )
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = began + body["wait_ms"] / 1000
        with self._bounds.one_more(body.get("asker"), len(entries) * len(body["views"])):
            records = await self._records(replica, body["views"], began, until)
            replica.check_tells_views()
            views = [self._seen(replica, record, live=body["live"]) for record in records]
            wait = Wait(entries, views, enough=body.get("enough"), together=body["together"])
            fresh = loop.create_task(self._is_fresh(began, until))
            try:
                await replica.view_waits.wait(wait, until - loop.time())
                is_fresh = await fresh if any(wait.masks) else False
            finally:
                fresh.cancel()
        if not self._metadata().views.keys() >= set(body["views"]):
            raise _gone()
        await room()
        replica.count_read()
        return {"seen": wait.masks if is_fresh else [0] * len(entries)}

    async def _is_fresh(self, began: float, until: float) -> bool:
        """Whether the metadata are as new as the request, at the end of its wait at the latest."""
        try:
            async with asyncio.timeout_at(until + _CONFIRM_S):
                await self._fresh.since(began)
        except TimeoutError:
            return False
        return True

    async def _records(
        self, replica: RangeReplica, wanted: list[int], began: float, until: float
    ) -> list[ViewRecord]:
        """Return the records of the views. Raises NotFound."""
        if not self._metadata().views.keys() >= set(wanted):
            await self._is_fresh(began, until)
        found = [self._metadata().views.get(view_id) for view_id in wanted]
        records = [each for each in found if each is not None]
        if len(records) < len(wanted) or any(
            record.log_id != replica.descriptor.log_id for record in records
        ):
            raise _gone()
        return records

    def _seen(self, replica: RangeReplica, record: ViewRecord, *, live: bool) -> Seen | None:
        """Return how to tell what the view has seen; None: nobody waits for the view. `live`: the
        request waits for live views only."""
        state = replica.state
        if not record.group_id:
            return partial(seen_by_cursor, state, record.cursor, Selection(record.prefix))
        live = live or record.policy == LIVE
        if live and not self._has_consumers(replica, record.group_id):
            return None
        group = self._metadata().groups.get(record.group_id)
        if group is None:
            return None
        selection = Selection(group.prefix, group.selector)
        return partial(seen_by_group, state, record.group_id, selection)


def _gone() -> NotFound:
    return NotFound("a view of the request was deleted, or is of another log")


def seen_by_group(
    state: RangeState, group_id: int, selection: Selection, key: bytes, seq: int
) -> bool:
    """Whether the applied state says that the group has acknowledged the entry."""
    group = state.groups.by_id.get(group_id)
    return (
        group is not None
        and group.position(group.unit(key, seq)) > seq
        and selection.matches(key)
        and not _may_be_removed(state, key, seq)
    )


def seen_by_cursor(
    state: RangeState, name: str, selection: Selection, key: bytes, seq: int
) -> bool:
    """Whether the applied state says that the cursor has passed the entry."""
    cursor = state.cursors.found.get(name)
    return (
        cursor is not None
        and cursor.position(key) > seq
        and selection.matches(key)
        and not _may_be_removed(state, key, seq)
    )


def _may_be_removed(state: RangeState, key: bytes, seq: int) -> bool:
    removal, marks = state.removal, state.removal.marks
    below = max(removal.view.floor(key), marks.compactions.at(key).before, marks.snapshots.at(key))
    return seq < below


class Bounds:
    """Counts the waits of each connection, and of the node: each holds memory while it lasts."""

    def __init__(self) -> None:
        self._count = 0
        self._looks = 0
        self._of_connection: Counter[object] = Counter()

    @contextmanager
    def one_more(self, connection: object, looks: int) -> Iterator[None]:
        """Count a wait of so many pairs of a key and a view for as long as the block lasts. Raises
        Overloaded."""
        own = self._of_connection[connection] + 1
        for what, value, allowed in (
            ("waits of the connection", own, limits.view_waits_per_connection_max),
            ("waits", self._count + 1, limits.view_waits_max),
            ("keys in waits", self._looks + looks, limits.view_waited_keys_max),
        ):
            if value > allowed:
                raise Overloaded(
                    f"this node would have {value} {what} for views; at most {allowed} are "
                    "allowed. Try again later",
                    retry_after=_RETRY_AFTER_S,
                    reason="views",
                )
        self._count += 1
        self._looks += looks
        self._of_connection[connection] = own
        try:
            yield
        finally:
            self._count -= 1
            self._looks -= looks
            self._of_connection[connection] -= 1
            if not self._of_connection[connection]:
                del self._of_connection[connection]
