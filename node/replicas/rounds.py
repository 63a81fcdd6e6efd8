"""WAL rounds: collect the writes of all groups, write and sync them once, tell the groups.

At most one round is on the disk at a time. Meanwhile replicas gather the appends that arrive. They
propose them as one Raft entry each when the next round begins. This is the group commit of Gray and
Reuter, with the disk's own pace as the timer. Writes that need no sync go with the next round that
is synced.

While a principal appends much, every second round may be light: it takes only the appends of
principals that append little, of all ranges. Their appends then wait for at most one round with the
heavy principal's appends, and their own round is short. The round after a light round takes all
appends, so that no principal starves.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ...raft.types import GroupId
from ...raft.wal import Round, Wal
from ..metrics import Metrics
from ..runtime.turn_ends import TurnEnds
from ..runtime.unexpected import guarded
from ..runtime.wal_writer import WalWriter

_PUT_OFF_S = 0.1
"""How long writes that need no sync wait for a round that is synced."""
_MARK_S = 0.5
"""How long after the last idle round the mark comes."""


class Proposer(Protocol):
    """A replica with appends that wait for the next round."""

    def propose_gathered(self) -> None: ...

    def propose_light(self) -> bool:
        """Propose only appends of light principals, where a heavy principal appends too.

        Return whether there were such appends.
        """
        ...


class Rounds:
    """Drives the WAL from the event loop.

    `on_synced` gets the groups that a finished round touched. `on_failure` gets the error of a
    failed write or sync, or a bug; the process must then end (hole 12). `on_file_begun` is called
    after a round that began a WAL file.
    """

    def __init__(
        self,
        wal: Wal,
        writer: WalWriter,
        *,
        on_synced: Callable[[Iterable[GroupId]], None],
        on_failure: Callable[[BaseException], None],
        on_file_begun: Callable[[], None],
        turn_ends: TurnEnds,
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._turn_ends = turn_ends
        self._wal = wal
        self._writer = writer
        self._on_synced = on_synced
        self._on_failure = on_failure
        self._on_file_begun = on_file_begun
        self._waiting: dict[Proposer, None] = {}
        self._light_went = False
        """The previous round was light."""
        self._in_flight = False
        self._began_at = 0.0
        self._syncs = wal.syncs
        self._idle_mark: asyncio.TimerHandle | None = None
        self._mark_at = 0.0
        """The loop time of the mark after the last idle round. The timer may be due earlier."""
        self._late: asyncio.TimerHandle | None = None
        """Timer for writes that need no sync, if no synced round comes before."""
        self._overdue = False
        self._stopped = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def gather(self, replica: Proposer) -> None:
        """Note that the replica has appends to propose when the next round begins."""
        self._waiting[replica] = None
        self.kick()

    def kick(self) -> None:
        """Begin a round at the end of this turn of the event loop if there is anything to write."""
        if not self._in_flight and not self._stopped:
            self._turn_ends.schedule()

    async def durable(self) -> None:
        """Return when everything queued up to now is synced."""
        if self._wal.all_synced:
            return
        number = self._wal.require_sync()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        self.kick()
        await future

    def stop(self) -> None:
        """Begin no further round."""
        self._stopped = True
        if self._idle_mark is not None:
            self._idle_mark.cancel()
        self._none_late()

    def propose(self) -> None:
        """Let waiting replicas propose at the end of a turn, if no round is under way."""
        if not self._in_flight and not self._stopped:
            # The gathered appends are lost after an error: it is not safe to continue.
            guarded(self._propose, self._give_up)()

    def begin(self) -> None:
        """Begin a round at the end of a turn, if there is anything to write and none under way."""
        if not self._in_flight and not self._stopped:
            guarded(self._begin, self._give_up)()

    def _propose(self) -> None:
        self._light_went = not self._light_went and self._propose_light()
        if not self._light_went:
            waiting, self._waiting = self._waiting, {}
            for replica in waiting:
                replica.propose_gathered()

    def _begin(self) -> None:
        if self._wal.dirty and not (self._wal.urgent or self._overdue or self._waiters):
            self._put_off()
            return
        self._none_late()
        current = self._wal.collect()
        if current is None:
            return
        self._in_flight = True
        self._began_at = time.monotonic()
        self._writer.write(current, partial(self._written, current))

    def _propose_light(self) -> bool:
        """Begin a light round; return whether it has anything to write.

        The waiting replicas are asked again only when a round has ended.
        """
        found = [replica.propose_light() for replica in self._waiting]
        return any(found) and self._wal.urgent

    def _put_off(self) -> None:
        # These are mostly commit indexes, which need no sync. A round of their own after each
        # append would cost as much as its entry, and delay the round of the next entry.
        if self._late is None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(_PUT_OFF_S, guarded(self._is_overdue, self._give_up))

    def _is_overdue(self) -> None:
        self._late = None
        self._overdue = True
        self.kick()

    def _none_late(self) -> None:
        self._overdue = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self, error: BaseException) -> None:
        self._stopped = True
        self._on_failure(error)

    def _written(self, current: Round, _: None, error: BaseException | None) -> None:
        self._in_flight = False
        if error is not None:
            self._give_up(error)
            return
        took_s, syncs = time.monotonic() - self._began_at, self._wal.syncs
        # Acks and votes leave at once, and appends gathered meanwhile go into the next round.
        self._turn_ends.turn(guarded(partial(self._finish, current), self._give_up))
        # Nobody waits for the metrics.
        self._metrics.wal_round_seconds.observe(took_s)
        self._metrics.wal_syncs.inc(syncs - self._syncs)
        self._syncs = syncs

    def _finish(self, current: Round) -> None:
        self._on_synced(self._wal.complete(current))
        if current.rotation is not None:
            self._on_file_begun()
        done_waiters = [future for number, future in self._waiters if number <= current.number]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > current.number]
        for future in done_waiters:
            if not future.done():
                future.set_result(None)
        idle = not self._wal.dirty and not self._waiting
        if idle and current.must_sync and not self._stopped:
            self._mark_when_idle()

    def _mark_when_idle(self) -> None:
        # Within a second of the last sync the replica's round is repeated as synced (x5).
        loop = asyncio.get_running_loop()
        self._mark_at = loop.time() + _MARK_S
        if self._idle_mark is None:  # else it looks again when it is due
            self._idle_mark = loop.call_at(self._mark_at, guarded(self._mark, self._give_up))

    def _mark(self) -> None:
        self._idle_mark = None
        loop = asyncio.get_running_loop()
        if loop.time() < self._mark_at and not self._stopped:
            self._idle_mark = loop.call_at(self._mark_at, guarded(self._mark, self._give_up))
            return
        if not self._in_flight and not self._stopped:
            self._wal.mark()
            self.kick()
