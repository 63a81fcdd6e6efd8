"""Push entries to a follower as they are applied, at the pace of the reader's credit.

A follower that falls behind is served from segments like any read, and joins the tail when it has
caught up. A follow costs the memory of one page, which keeps to the rule of `statemachine.room`. It
waits for room for the page, and holds no room while it waits for entries or for credit.

A member that is cut off from the other members pushes what it has, says that this is not
everything, and ends the follow, so that the asker continues at another member.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import Any

from ...client.accepting.request import Request
from ...client.protocol import limits
from ...client.protocol.errors import NotLeader, Sealed, Unavailable
from ...client.protocol.key_spans import prefix_span
from ...client.protocol.patterns import Patterns
from ...statemachine.page import Page
from ...statemachine.turn_limits import ENTRIES_A_TURN
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import in_turns

_KEYS_A_PAGE = 256
_KEYS_A_TURN = 16
_PASSED_MAX = 1_024
"""Seqs that a follow passes without a push. A reader that opens the follow again elsewhere begins
at the position of the last push."""
_KEYS_A_LOOK = 4_096
"""Keys for which a turn looks whether they have entries to push: 2.5 to 4 ms."""


def no_pause() -> float:
    """Return the pause of a reader without quota."""
    return 0.0


class Follow:
    """One follow request on one replica. It runs until it is cancelled or the generation ends."""

    def __init__(
        self, replica: RangeReplica, request: Request, pause_s: Callable[[], float] = no_pause
    ) -> None:
        body = request.body
        self._replica = replica
        self._request = request
        self._pause_s = pause_s
        """Returns how long to wait before the next page, because the reader's quota is used up."""
        self._news = asyncio.Event()
        self._news_from: int | None = None
        """The lowest seq among the news of the span since the last page began, or None."""
        self._news_s: float | None = None
        """When the first news came since the follow began to wait; None: it does not wait."""
        self._waits = False
        self._positions: dict[bytes, int] | None = body["keys"]
        self._ready: dict[bytes, None] = {}
        """Keys that may have entries to push, in the order of their turns."""
        prefix = body["prefix"]
        self._start_key = max(body["start_key"], prefix)
        ends = (body["end_key"], prefix_span(prefix)[1])
        self._end_key: bytes | None = min((end for end in ends if end is not None), default=None)
        self._from_seq: int = body["from_seq"]
        self._told_seq = self._from_seq
        """The position of the last push of a span."""
        self._patterns = Patterns.from_wire(body["patterns"])
        self._narrowed_to: bytes | None = None
        """The narrower end of the span, until the asker is told; None if the end is the asker's."""

    async def run(self) -> None:
        """Push until the asker leaves. Raises Sealed when the replica ends, and Unavailable when
        this member is cut off from the other members.

        In a merged range, a follower may still be at entries of the parents, whose seqs cannot be
        compared. It then follows as many of its keys as share one order of seq. Its first push
        says so, and the asker follows the other keys separately.
        """
        replica = self._replica
        if self._positions is None:
            self._narrowed_to = replica.state.readable_to(
                self._start_key, self._end_key, self._from_seq
            )
            self._end_key = self._narrowed_to or self._end_key
        watched = list(self._positions or ())
        if self._positions is None:
            replica.news.listen_span(self._on_news, self._start_key, self._end_key)
        else:
            replica.news.listen(self._on_news, watched)
        try:
            await self._look_for_unread()
            await self._push_on()
        finally:
            if self._positions is None:
                replica.news.unlisten_span(self._on_news, self._start_key, self._end_key)
            else:
                replica.news.unlisten(self._on_news, watched)
            if not replica.news.has_listeners:
                replica.contact.end()

    async def _look_for_unread(self) -> None:
        """Begin with the keys that may have entries to push already; news tells of later entries.

        Most of thousands of keys have nothing to read, and a read of each would take longer.
        """
        positions = list((self._positions or {}).items())
        for at in range(0, len(positions), _KEYS_A_LOOK):
            if at:
                await asyncio.sleep(0)
            found = self._replica.state.unread(positions[at : at + _KEYS_A_LOOK])
            self._ready.update(dict.fromkeys(found))

    async def _push_on(self) -> None:
        replica, request = self._replica, self._request
        told_caught_up = False
        while not request.answered:
            if replica.stopped:
                raise Sealed("this replica has ended; its successor serves the follow")
            await request.wait_credit()
            while (pause_s := self._pause_s()) > 0:  # noqa: ASYNC110  it waits for time to pass
                await asyncio.sleep(pause_s)
            await request.room()
            self._news.clear()
            self._news_from = None
            committed = replica.group.commit_index
            try:
                page, more = await self._next_page()
            except NotLeader:
                raise Sealed("this replica has ended; its successor serves the follow") from None
            # A leader acknowledges what it has applied. So the leader may have acknowledged an
            # entry that this follower only knows to be committed.
            lags = not replica.leads and replica.applied_index < committed
            caught_up = not more and not lags and replica.group.in_contact
            has_passed = self._from_seq - self._told_seq > _PASSED_MAX
            if len(page) or has_passed or (not more and caught_up != told_caught_up):
                request.push(self._push_body(page, caught_up=caught_up))
                replica.count_push(self._waited_s() if len(page) else None)
                told_caught_up = caught_up
            request.leave_room()
            if more:
                await asyncio.sleep(0)
                continue
            if replica.is_sealed:
                raise Sealed("the generation has ended; its successor serves the follow")
            if lags:
                await replica.wait_applied(committed)
                continue
            if not caught_up:
                raise Unavailable(
                    f"node {replica.services.node_id} has no contact with a majority of the "
                    f"members of {replica.gid}: follow at another member",
                    reason="cut_off",
                )
            replica.contact.begin()
            self._waits, self._news_s = True, None
            await self._news.wait()
            # Everything is read up to here, and the span has no entry below the news.
            self._from_seq = max(self._from_seq, self._news_from or 0)

    def _waited_s(self) -> float | None:
        """Return how long the first news waited for this push; None: the follow did not wait."""
        since, self._news_s = self._news_s, None
        return None if since is None else time.monotonic() - since

    def _on_news(self, keys: Collection[bytes] | None, seq: int) -> None:
        if self._waits:
            self._waits, self._news_s = False, time.monotonic()
        if keys is not None:
            self._news_from = seq if self._news_from is None else min(self._news_from, seq)
            if self._positions is not None:
                self._ready.update(dict.fromkeys(keys))
        self._news.set()

    async def _next_page(self) -> tuple[Page, bool]:
        state = self._replica.state
        if self._positions is None:
            page = await in_turns(
                self._replica,
                lambda: state.read_span(
                    self._start_key, self._end_key, self._from_seq,
                    limit=limits.page_entries_max, bytes_max=limits.page_bytes_default,
                ),
            )  # fmt: skip
            if page.end_key is not None:
                # A base of another member has other rows: the asker starts again from here.
                raise Sealed("the order of the entries of the follow has changed; follow again")
            self._from_seq = page.next
            if self._patterns is not None:
                page = page.of_positions(self._patterns.positions(page.keys))
            return page, page.more
        page = Page(limit=ENTRIES_A_TURN, bytes_max=limits.page_bytes_default)
        for at, key in enumerate(list(islice(self._ready, _KEYS_A_PAGE)), 1):
            scan = partial(
                state.scan, key, self._positions[key], None, limit=page.entries_left,
                bytes_max=page.bytes_left, begun=page.begun,
            )  # fmt: skip
            part = await in_turns(self._replica, scan)
            page.extend(part)
            self._positions[key] = part.next
            del self._ready[key]
            if part.more:
                self._ready[key] = None  # behind the other keys
            if page.full:
                break
            if at % _KEYS_A_TURN == 0:
                await asyncio.sleep(0)
        page.ends(more=bool(self._ready))
        return page, page.more

    def _push_body(self, page: Page, *, caught_up: bool) -> dict[str, Any]:
        following: int | dict[bytes, int] = self._from_seq
        self._told_seq = self._from_seq
        if self._positions is not None:
            following = {key: self._positions[key] for key in dict.fromkeys(page.keys)}
        body = {
            "page": page.to_wire(),
            "caught_up": caught_up,
            "next": following,
            "applied": self._replica.applied_index,
            "staleness_ms": self._staleness_ms(),
        }
        if self._patterns is not None:
            body["matched"] = True
        if self._narrowed_to is not None:
            body["end_key"], self._narrowed_to = self._narrowed_to, None
        return body

    def _staleness_ms(self) -> int | None:
        """Return the staleness in ms, or None if this member has heard nothing yet."""
        staleness_s = self._replica.group.staleness_s
        return None if math.isinf(staleness_s) else math.ceil(1000 * staleness_s)
