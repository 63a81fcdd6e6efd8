"""The WAL of a simulated process, for one life of it.

One round is under way at a time, as with the node's sync thread. A mark follows when nothing more
is queued.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...client.protocol.invariants import DiskFailure
from ...raft.types import GroupId
from ...raft.wal import Round, Wal
from .clock import Timer
from .disk import Died

if TYPE_CHECKING:
    from .host import Host

_MARK_AFTER_S: Final = 0.7
_BEGIN_S: Final = 0.0001
_PUT_OFF_S: Final = 0.1


class Rounds:
    """The rounds of one life.

    `collected(gid, number)` is called for each group with items in a round, `synced(number, gids)`
    for each round on the disk with its groups.
    """

    def __init__(
        self,
        host: "Host",
        wal: Wal,
        *,
        collected: Callable[[GroupId, int], None],
        synced: Callable[[int, list[GroupId]], None],
    ) -> None:
        self.wal = wal
        self._host = host
        self._collected = collected
        self._synced = synced
        self._writing: Round | None = None
        self._mark: Timer | None = None
        self._late: Timer | None = None
        self._overdue = False
        self._waiters: list[tuple[int, Callable[[], None]]] = []

    def run_now(self) -> None:
        """Run the rounds of the recovery, before any message is sent."""
        while self.wal.dirty:
            round_ = self.wal.collect()
            if round_ is None:
                return
            self.wal.write(round_)
            self.wal.complete(round_)

    def begin(self) -> None:
        """Begin a round if anything is queued and none is under way.

        Items that need no sync wait for an item that does, for a while.
        """
        if self._writing is not None or not self.wal.dirty:
            return
        if not (self.wal.urgent or self._overdue or self._waiters):
            if self._late is None:
                self._late = self._host.later(_PUT_OFF_S, self._is_overdue)
            return
        self._overdue = False
        if self._late is not None:
            self._late.cancel()
            self._late = None
        round_ = self.wal.collect()
        if round_ is None:
            return
        self._writing = round_
        for gid in round_.groups:
            self._collected(gid, round_.number)
        delay = _BEGIN_S
        if round_.must_sync:
            delay += self._host.rng.expovariate(1.0) * self._host.sync_mean_s
        self._host.later(delay, self._finish)

    def _finish(self) -> None:
        round_, self._writing = self._writing, None
        if round_ is None:
            return
        self.wal.write(round_)
        self._host.world.trace(self._host.name, "sync", str(round_.number))
        self._synced(round_.number, self.wal.complete(round_))
        ready = [action for number, action in self._waiters if number <= round_.number]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > round_.number]
        for action in ready:
            action()
        if round_.must_sync:
            if self._mark is not None:
                self._mark.cancel()
            self._mark = self._host.later(_MARK_AFTER_S, self._mark_idle)
        self._host.pump()

    def _is_overdue(self) -> None:
        self._late = None
        self._overdue = True
        self._host.pump()

    def when_durable(self, action: Callable[[], None]) -> None:
        """Call back when everything queued so far is synced, as `Rounds.durable` of a node."""
        if self.wal.all_synced:
            self._host.later(0.0, action)
            return
        self._waiters.append((self.wal.require_sync(), action))
        self._host.later(0.0, self.begin)

    def _mark_idle(self) -> None:
        if not self.wal.dirty and self._writing is None:
            self.wal.mark()
            self._host.pump()

    def reclaim(self) -> None:
        """Give back WAL files that nothing needs, after a checkpoint."""
        if self._writing is None:
            self.wal.let_go(self.wal.reclaim())

    def leave_half_done(self) -> None:
        """End in the middle of a round: the sync thread may be anywhere when the process dies."""
        round_, self._writing = self._writing, None
        if round_ is None:
            return
        self._host.fail_disk_in(0)
        self._host.die_in(self._host.rng.randint(1, 4), power=False)
        with contextlib.suppress(Died, DiskFailure):  # a full disk takes no part of it
            self.wal.write(round_)
