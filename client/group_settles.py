"""Settle batches of a consumer group: what is ready goes to each range in one request at a time.

While a request to a range is under way, further keys of the range gather for the next one. A failed
attempt is repeated with the same tokens. After a split or a merge, the keys go to the ranges that
have them by then.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

from .cluster import Body, Cluster, LogRoutes
from .group_held import Unit
from .protocol import limits
from .protocol.errors import (
    Fenced,
    LognodeError,
    Overloaded,
    Unavailable,
    bare,
    of_unknown_outcome,
)
from .protocol.groups import FULL, GROUP_SETTLE, LEASE, POSITION
from .retry import Attempts
from .routing import Range

ACKS: Final = "acks"
RELEASES: Final = "releases"
REJECTS: Final = "rejects"
EXTENDS: Final = "extends"
_KINDS: Final = (ACKS, RELEASES, REJECTS, EXTENDS)
_ROWS_MAX: Final = limits.group_keys_a_command_max
_FULL_PAUSE_S: Final = 0.1
OnOver = Callable[[LognodeError | None], None]
_is_patient: Final = attrgetter("is_patient")
_NOWHERE: Final = -1
"""In place of the range of a key that no known range has."""


class Settle:
    """One key of a request, until the range has answered."""

    __slots__ = (
        "is_over", "is_patient", "is_unknown", "key", "kind", "on_over", "row", "turn", "unit",
        "until",
    )  # fmt: skip

    def __init__(
        self, kind: str, row: list[Any], on_over: OnOver, turn: "_Turn", unit: Unit,
        *, is_patient: bool,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.key: bytes = row[0]
        self.unit = unit
        self.row = row
        """The row of the request: the key, its token, and more."""
        self.on_over = on_over
        self.until: float | None = None
        """Until when the key is settled again, once the range had no room for its position."""
        self.turn = turn
        self.is_patient, self.is_over, self.is_unknown = is_patient, False, False
        """`is_patient`: nobody waits for the answer, so that the leader may let keys gather.
        `is_unknown`: an attempt may have been applied whose answer is missing."""


class _Turn:
    """The settles that were added between two flushes."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0
        """How many of them are not over."""


class Settles:
    """The keys that a consumer settles. `common` is what every request of the consumer has.
    `timeout` is for each request, in seconds. `on_lost` is told of each unit and token that the
    consumer no longer has. `on_reached` is told of each unit and token whose acknowledgement an
    earlier leader has applied: the present leader may keep the lease. `claimed` waits until a
    leader knows what the consumer has, and returns the leader's node: another leader would refuse
    everything."""

    def __init__(
        self, cluster: Cluster, routes: LogRoutes, common: Body, timeout: float,
        on_lost: Callable[[Unit, int], None], on_reached: Callable[[Unit, int], None],
        claimed: Callable[[Range, int], Awaitable[int]],
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._routes = routes
        self._common = common
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_reached = on_reached
        self._claimed = claimed
        self._pending: dict[int, list[Settle]] = {}
        """What is to be sent, by the id of the range."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._open: dict[Settle, None] = {}
        self._turn = _Turn()
        """The turn of the settles that are added now."""
        self._flushed: dict[_Turn, asyncio.Event] = {}
        """The turns that flushes wait for, each with what is set when the turn is over."""

    def add(
        self, kind: str, row: list[Any], on_over: OnOver, unit: Unit, *, is_patient: bool = False
    ) -> None:
        """Settle a unit: `row` is the row of the request. `on_over` is called once: with None when
        the unit is settled, or with the error. `is_patient`: nobody waits for that but a flush."""
        settle = Settle(kind, row, on_over, self._turn, unit, is_patient=is_patient)
        self._turn.left += 1
        self._open[settle] = None
        self._put(settle)

    async def flush(self) -> None:
        """Wait until everything is settled that was added before, refused or not."""
        if self._turn.left:
            self._flushed[self._turn] = asyncio.Event()
            self._turn = _Turn()
        for is_over in list(self._flushed.values()):
            await is_over.wait()

    def _over(self, settle: Settle, error: LognodeError | None = None) -> None:
        """End a settle, unless it is over."""
        if settle.is_over:
            return
        settle.is_over = True
        del self._open[settle]
        turn = settle.turn
        turn.left -= 1
        settle.on_over(error)
        if not turn.left and turn in self._flushed:
            self._flushed.pop(turn).set()

    async def close(self) -> None:
        """Give up what is not settled."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        error = Unavailable(
            "the consumer was closed before the range answered", reason="closed", outcome="unknown"
        )
        self._fail(list(self._open), error)

    def _put(self, settle: Settle) -> None:
        """Let a key wait for its range's next request."""
        known = self._routes.table.find(settle.key)
        at = _NOWHERE if known is None else known.range_id
        waiting = self._pending.get(at)
        if waiting is None:
            waiting = self._pending[at] = []
        waiting.append(settle)
        if at not in self._tasks:
            self._tasks[at] = asyncio.create_task(self._run(at))

    def _put_all(self, settles: Iterable[Settle]) -> None:
        for settle in settles:
            self._put(settle)

    async def _run(self, at: int) -> None:
        """Send what waits for a range, one request at a time."""
        try:
            while pending := self._pending.pop(at, None):
                if at == _NOWHERE:
                    await self._locate(pending)
                    continue
                settles, rest = _first(pending)
                if rest:
                    self._pending[at] = rest
                await self._send(settles)
        finally:
            del self._tasks[at]

    async def _locate(self, settles: list[Settle]) -> None:
        deadline = self._cluster.now() + self._timeout
        for settle in settles:
            try:
                await self._cluster.locate(self._routes, settle.key, deadline)
            except LognodeError as error:
                self._fail((settle,), error)
            else:
                self._put(settle)

    async def _send(self, settles: list[Settle]) -> None:
        """Send a request until it is answered, or refused for good."""
        loop = asyncio.get_running_loop()
        attempts = Attempts(
            f"{GROUP_SETTLE} of log {self._routes.name!r}", loop.time() + self._timeout, writes=True
        )
        while settles:
            known = self._routes.table.find(settles[0].key)
            if known is None:
                self._put_all(settles)
                return
            keys = [settle.key for settle in settles]
            if not (known.contains(min(keys)) and known.contains(max(keys))):
                self._put_all(settle for settle in settles if not known.contains(settle.key))
                settles = [settle for settle in settles if known.contains(settle.key)]
            tried = self._cluster.target(known)
            try:
                until = attempts.attempt_deadline(loop.time())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        tried = await self._claimed(known, tried)
                if self._routes.table.find(known.start) != known:
                    continue  # the ranges have changed meanwhile
                until = attempts.attempt_deadline(loop.time())
                answer = await self._cluster.ask(
                    known, GROUP_SETTLE, self._body(settles), until, node=tried
                )
            except LognodeError as error:
                if error.outcome == "unknown":
                    for settle in settles:
                        settle.is_unknown = True
                if not await self._may_repeat(attempts, known, tried, settles, error):
                    return
            else:
                self._answered(settles, answer)
                return

    async def _may_repeat(
        self, attempts: Attempts, known: Range, tried: int, settles: list[Settle],
        error: LognodeError,
    ) -> bool:  # fmt: skip
        """Whether the request may be sent again, after a pause; otherwise its keys have failed."""
        news = self._cluster.heed(self._routes, known, tried, error)
        try:
            step = attempts.failed(error, self._cluster.now(), news=news)
            await self._cluster.prepare(self._routes, known, tried, step, attempts.deadline)
        except LognodeError as final:
            self._fail(settles, final)
            return False
        return True

    def _body(self, settles: list[Settle]) -> Body:
        rows = {kind: [settle.row for settle in settles if settle.kind == kind] for kind in _KINDS}
        return {**self._common, **rows, "patient": all(map(_is_patient, settles))}

    def _answered(self, settles: list[Settle], answer: Body) -> None:
        if not answer["refused"]:
            for settle in settles:
                self._over(settle)
            return
        rows, tokens = answer["refused"], answer["tokens"]
        refused = {
            (key, token): (reason, position)
            for (key, reason, position), token in zip(rows, tokens or repeat(0), strict=False)
        }
        for settle in settles:
            token = settle.row[1] if tokens else 0
            reason, position = refused.get((settle.key, token), ("", 0))
            if settle.is_over:
                continue
            if not reason:
                self._over(settle)
            elif _is_done(settle, reason, position):
                self._over(settle)
                self._on_reached(settle.unit, settle.row[1])
            elif _may_be_done(settle, reason, position):
                self._on_lost(settle.unit, settle.row[1])
                self._over(settle, unsure(settle.key))
            elif reason == FULL:
                self._later(settle)
            else:
                self._on_lost(settle.unit, settle.row[1])
                self._over(settle, fenced(settle.key))

    def _fail(self, settles: Iterable[Settle], error: LognodeError) -> None:
        """End settles by an error. An earlier attempt may have settled a key, perhaps in a range
        that was split since (x18)."""
        for settle in settles:
            told = error
            if settle.is_unknown and error.outcome == "not_applied":
                told = of_unknown_outcome(error)
            self._over(settle, bare(told))

    def _later(self, settle: Settle) -> None:
        """Settle a key again for which the range has no room at present."""
        now = self._cluster.now()
        if settle.until is None:
            settle.until = now + self._timeout
        if now + _FULL_PAUSE_S >= settle.until:
            error = Overloaded(
                f"the range of key {settle.key!r} has no room for another position of the group: "
                "too many keys failed or are ahead of others. Retry or skip the parked keys",
                retry_after=1.0,
            )
            self._over(settle, error)
            return
        asyncio.get_running_loop().call_later(_FULL_PAUSE_S, self._again, settle)

    def _again(self, settle: Settle) -> None:
        if not settle.is_over:
            self._put(settle)


def fenced(key: bytes) -> Fenced:
    """Return the error of a key that the consumer no longer has."""
    return Fenced(
        f"the consumer no longer has key {key!r}: its lease ended, or the group was reset. Another "
        "consumer may get the same entries; do not settle this batch",
        key=key,
    )


def unsure(key: bytes) -> Unavailable:
    """Return the error of a key that the consumer has lost after an attempt without an answer."""
    return Unavailable(
        f"the consumer has lost key {key!r} before it heard whether its batch was settled. "
        "Another consumer may have got the same entries",
        outcome="unknown", reason="lease", key=key,
    )  # fmt: skip


def _first(pending: list[Settle]) -> tuple[list[Settle], list[Settle]]:
    """Return what goes into one request, and the rest: a key once, and few of each kind."""
    if len(pending) <= _ROWS_MAX and len({settle.unit for settle in pending}) == len(pending):
        return [settle for settle in pending if not settle.is_over], []
    found: dict[Unit, Settle] = {}
    counts = dict.fromkeys(_KINDS, 0)
    rest: list[Settle] = []
    for settle in pending:
        if settle.unit in found or counts[settle.kind] >= _ROWS_MAX:
            rest.append(settle)
        elif not settle.is_over:
            found[settle.unit] = settle
            counts[settle.kind] += 1
    return list(found.values()), rest


def _is_done(settle: Settle, reason: str, position: int) -> bool:
    """Whether a refusal says that the key is where the acknowledgement moves it.

    The consumer has the key, so that an earlier attempt has moved it: perhaps with the leader
    before, from which the consumer has claimed the key.
    """
    return settle.kind == ACKS and reason == POSITION and position >= settle.row[2]


def _may_be_done(settle: Settle, reason: str, position: int) -> bool:
    """Whether an earlier attempt may have done what the request asks, or another consumer.

    The consumer no longer has the key, and nobody knows who has settled it.
    """
    if not settle.is_unknown or reason != LEASE or settle.kind == EXTENDS:
        return False
    return settle.kind != ACKS or position >= settle.row[2]
