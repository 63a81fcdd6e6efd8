"""WAL rounds: gather what all groups want written, write and sync it once, tell the groups.

At most one round is on the disk at a time. While it is, replicas gather the appends that arrive
and propose them as one Raft entry each when the next round begins: the group commit of Gray and
Reuter, with the disk's own pace as the timer.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ..raft.types import GroupId
from ..raft.wal import Round, Wal
from .bugs import guarded
from .metrics import Metrics
from .sync_thread import SyncThread


class Proposer(Protocol):
    """A replica with appends that wait for the next round."""

    def propose_gathered(self) -> None: ...


class Rounds:
    """Drives the WAL from the event loop.

    `on_synced` gets the groups that a finished round touched; `on_failure` the error of a write
    or sync that failed, or a bug, after which the process must end (raft.md 2.12).
    """

    def __init__(
        self,
        wal: Wal,
        thread: SyncThread,
        *,
        on_synced: Callable[[Iterable[GroupId]], None],
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._wal = wal
        self._thread = thread
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._waiting: dict[Proposer, None] = {}
        self._in_flight = False
        self._began_at = 0.0
        self._syncs = wal.syncs
        self._scheduled = False
        self._idle_mark: asyncio.TimerHandle | None = None
        self._stopped = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def gather(self, replica: Proposer) -> None:
        """The replica has appends to propose when the next round begins."""
        self._waiting[replica] = None
        self.kick()

    def kick(self) -> None:
        """Begin a round at the end of this turn of the event loop if there is anything to write."""
        if not self._scheduled and not self._in_flight and not self._stopped:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def durable(self) -> None:
        """Return when everything queued up to now is synced."""
        if not self._wal.dirty and not self._in_flight:
            return
        number = self._wal.open_round if self._wal.dirty else self._wal.open_round - 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        self.kick()
        await future

    def stop(self) -> None:
        """Begin no further round."""
        self._stopped = True
        if self._idle_mark is not None:
            self._idle_mark.cancel()

    def _begin(self) -> None:
        self._scheduled = False
        if self._in_flight or self._stopped:
            return
        try:
            current = self._collect()
        except Exception as error:  # what was gathered hangs in the air: going on is not safe
            self._give_up(error)
            return
        if current is None:
            return
        self._in_flight = True
        self._began_at = time.monotonic()
        written = self._thread.run(lambda: self._wal.write(current))
        finish = partial(self._finish, current, written)
        written.add_done_callback(lambda _: guarded(finish, self._give_up)())

    def _collect(self) -> Round | None:
        waiting, self._waiting = self._waiting, {}
        for replica in waiting:
            replica.propose_gathered()
        return self._wal.collect()

    def _give_up(self, error: BaseException) -> None:
        self._stopped = True
        self._on_failure(error)

    def _finish(self, current: Round, done: "asyncio.Future[None]") -> None:
        self._in_flight = False
        error = done.exception()
        if error is not None:
            self._give_up(error)
            return
        self._metrics.wal_round_seconds.observe(time.monotonic() - self._began_at)
        self._metrics.wal_syncs.inc(self._wal.syncs - self._syncs)
        self._syncs = self._wal.syncs
        self._on_synced(self._wal.complete(current))
        done_waiters = [future for number, future in self._waiters if number <= current.number]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > current.number]
        for future in done_waiters:
            if not future.done():
                future.set_result(None)
        if self._wal.dirty or self._waiting:
            self.kick()
        elif current.must_sync and not self._stopped:
            self._mark_when_idle()

    def _mark_when_idle(self) -> None:
        # Within a second of the last sync its round is repeated as synced (executions 1.5).
        if self._idle_mark is not None:
            self._idle_mark.cancel()
        loop = asyncio.get_running_loop()
        self._idle_mark = loop.call_later(0.5, guarded(self._mark, self._give_up))

    def _mark(self) -> None:
        self._idle_mark = None
        if not self._in_flight and not self._stopped:
            self._wal.mark()
            self.kick()
