"""Take batches of a consumer group from one range: long polls to the leader, one at a time.

A leader with another fence than that of the last answer gives nothing: the consumer learns the
fence, and claims the keys that it has. A consumer without keys claims none, whatever the fence, and
gets batches at once. The same claim follows an attempt without an answer, since the leader may have
given keys that never arrived; the claim gives these back. A consumer settles nothing with a leader
before it has claimed.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from .cluster import Body, Cluster, LogRoutes
from .group_credit import HeldKeys
from .group_held import Columns, Held
from .protocol.errors import LognodeError, RemoteProtocolError
from .protocol.groups import GROUP_TAKE
from .retry import Attempts
from .routing import Range

_PATIENCE_S: Final = 0.1
"""How long a consumer without room waits before it asks for no key."""
_ANSWER_S: Final = 5.0
"""How long an answer may take besides."""


class RangeTakes:
    """The takes of one range. `common` is what every request of the consumer has. A lease lasts for
    `lease_s`. `moved` is called when the ranges have changed; the takes go on with `known`, or are
    cancelled."""

    def __init__(
        self, cluster: Cluster, routes: LogRoutes, common: Body, known: Range, keys: HeldKeys,
        lease_s: float, moved: Callable[[], Awaitable[None]], *, by_entry: bool,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._routes = routes
        self._common = common
        self._keys = keys
        self._moved = moved
        self._by_entry = by_entry
        self._known = known
        self._fence = 0
        self._lease_s = lease_s
        self._must_claim = True
        self._is_over = False
        self._claimed: tuple[int, int] | None = None
        """The generation and the node whose leader knows the keys of the consumer."""
        self._asked: tuple[int, int] | None = None
        """The generation and the node of the request under way."""
        self._elsewhere = asyncio.Event()
        """Set when another leader is known than the node of the request under way."""
        self._news = asyncio.Event()
        """Set at each claim, and when the generation changes."""
        self.begun = asyncio.Event()
        """Set when a leader has opened the group in the range."""

    @property
    def known(self) -> Range:
        """The range as the consumer knows it."""
        return self._known

    def at(self, known: Range) -> None:
        """Go on with a later generation of the range."""
        if known.generation != self._known.generation:
            self._must_claim = True
            self._news.set()
        self._known = known

    async def claimed(self, known: Range, node: int) -> int:
        """Wait until a leader of that generation knows the keys that the consumer has.

        `node`: where the leader should be. Return the node of that leader; `node` if the generation
        is over.
        """
        while self._claimed != (known.generation, node) and not self._is_over:
            if known.generation < self._known.generation:
                break
            self._must_claim = True
            if self._asked not in (None, (known.generation, node)):
                self._elsewhere.set()  # the node that was asked need not know that it is replaced
            self._news.clear()
            await self._news.wait()
            if self._claimed is not None and self._claimed[0] == known.generation:
                return self._claimed[1]
        return node

    def end(self) -> None:
        """Take no more: the range is gone."""
        self._is_over = True
        self._news.set()

    async def run(self) -> None:
        """Take batches until cancelled or ended. Raises the error that no repetition mends."""
        self._cluster.polls.joined()
        try:
            await self._run()
        finally:
            self._cluster.polls.left()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        attempts = self._attempts()
        while not self._is_over:
            known, tried = self._known, 0
            try:
                current = self._routes.table.find(known.start)
                if current is None or not _is_same(current, known):
                    await self._moved()
                    known, current = self._known, self._routes.table.find(self._known.start)
                    if self._is_over or current is None:
                        continue
                tried = self._cluster.target(current)
                await self._ask(known, tried)
                attempts = self._attempts()
            except LognodeError as error:
                # The leader may have given keys in an answer that is lost.
                self._must_claim = True
                news = self._cluster.heed(self._routes, known, tried, error)
                step = attempts.failed(error, loop.time(), news=news)
                until = loop.time() + _ANSWER_S
                await self._cluster.prepare(self._routes, known, tried, step, until)

    def _attempts(self) -> Attempts:
        return Attempts(f"{GROUP_TAKE} of log {self._routes.name!r}", math.inf, writes=False)

    async def _ask(self, known: Range, node: int) -> None:
        """Ask once; without room only to hear of another leader, until there is room."""
        if not self._must_claim:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._keys.more_room(known)
        async with self._cluster.polls.turn():
            await self._ask_now(known, node)

    async def _ask_now(self, known: Range, node: int) -> None:
        keys, size = self._keys.room(known)
        asked_s = self._cluster.now()
        wait_ms = self._cluster.polls.wait_ms
        holds = self._lasting(known, asked_s) if self._must_claim else None
        body = {
            **self._common, "count": keys, "bytes": max(1, size), "fence": self._fence,
            "wait_ms": 0 if holds is not None else wait_ms,
            "holds": None if holds is None else [[held.key, held.token] for held in holds],
            "seqs": [held.unit[1] for held in holds or ()] if self._by_entry else [],
            "fences": [held.fence for held in holds or ()],
        }  # fmt: skip
        deadline = self._cluster.now() + wait_ms / 1000 + _ANSWER_S
        asked = self._cluster.ask(known, GROUP_TAKE, body, deadline, node=node)
        self._elsewhere.clear()
        self._asked = known.generation, node
        request = asyncio.ensure_future(asked)
        waits = [request, asyncio.ensure_future(self._elsewhere.wait())]
        if not keys and holds is None:
            waits.append(asyncio.ensure_future(self._keys.more_room(known)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                self._take(request.result(), known, node, holds, asked_s)
            elif self._elsewhere.is_set():
                self._must_claim = True
        finally:
            self._asked = None
            for task in waits:
                task.cancel()
            await asyncio.wait(waits)

    def _lasting(self, known: Range, now: float) -> list[Held]:
        """Return the keys to claim. A key whose lease may be over is lost: another consumer may
        have had the key, and the next leader knows nothing of that (G1)."""
        found = []
        for held in self._keys.holds(known):
            if held.surely_lasts(now, self._lease_s):
                found.append(held)
            else:
                self._keys.over(held, lost=True)
        return found

    def _take(
        self, answer: Body, known: Range, node: int, holds: Sequence[Held] | None, asked_s: float
    ) -> None:
        self.begun.set()
        if answer["fence"] != self._fence:
            self._fence = answer["fence"]
            if holds is None or holds:  # no batch comes with it, and no claim was heard
                self._must_claim = True
                return
        if holds is not None:
            self._must_claim = False
            self._claimed = known.generation, node
            self._news.set()
            keys = answer["refused"]
            seqs = answer["refused_seqs"] or [0] * len(keys)
            refused = set(zip(keys, seqs, strict=True))
            for held in holds:
                held.fence = self._fence
                if held.unit in refused:
                    self._keys.lost(held.unit, held.token)
                elif held.is_ended:  # it was settled while the claim was under way
                    self._keys.unwanted(held)
        self._keys.took(
            known, batches_of(answer, self._cluster.now(), asked_s, by_entry=self._by_entry)
        )


def _is_same(one: Range, other: Range) -> bool:
    return (one.range_id, one.generation) == (other.range_id, other.generation)


def batches_of(answer: Body, now: float, asked_s: float, *, by_entry: bool) -> list[Held]:
    """Return the batches of an answer. Raises RemoteProtocolError."""
    columns = Columns(
        answer["seqs"], answer["timestamps"], answer["values"], answer["headers"] or {}
    )
    keys, counts = answer["keys"], answer["counts"]
    shapes = {len(keys), len(counts), len(answer["tokens"]), len(answer["deliveries"])}
    is_fit = len(shapes) == 1 and sum(counts) == len(columns.seqs)
    units = zip(keys, columns.seqs, strict=False) if by_entry else keys
    if not is_fit or len(set(units)) != len(keys) or (by_entry and len(keys) != len(columns.seqs)):
        raise RemoteProtocolError("an answer with batches has columns that do not fit together")
    make = partial(Held, fence=answer["fence"], by_entry=by_entry)
    found, first = [], 0
    for key, token, deliveries, count in zip(
        keys, answer["tokens"], answer["deliveries"], counts, strict=True
    ):
        end = first + count
        found.append(make(key, token, deliveries, columns, first, end, now, asked_s))
        first = end
    return found
