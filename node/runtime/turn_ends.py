"""Runs, in one step, what a node does at the end of a turn of its event loop.

Requests and messages that arrive in a turn wake replicas and are gathered. At the end of the turn
each woken replica is pumped, gathered appends are proposed if no WAL round is under way, messages
to other nodes leave, one frame a peer, and a WAL round is given to its thread. If the loop ran
these steps one by one, each would be a turn of its own, with a check of every socket in between. An
append needed about twenty such turns, most of its time on an idle node.

The messages leave before the round begins: followers have the longer way to their disks, and the
thread of the WAL would compete with the loop for the interpreter while the loop still sends.

A turn that begins with messages of one node, and with no other event, ends with the messages: the
next turn would only ask the sockets again, and the answer to a client would wait behind the next
node's messages (`alone`). An append of a client is no such event. It would begin a WAL round alone,
and the appends that arrive with it would wait for the next; and the client would pay for the turn.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from .unexpected import OnBroken, guarded


class Pumped(Protocol):
    """A replica that may be pumped."""

    def pump(self) -> None: ...


class TurnEnds:
    """Runs the work at the end of turns.

    `propose` lets replicas propose for the next WAL round, and wakes them. `flush` sends what is
    queued for the peers. `begin_round` begins the round. `on_broken` ends the node. `is_alone`
    returns whether the turn began with one event.
    """

    def __init__(
        self,
        *,
        propose: Callable[[], None],
        flush: Callable[[], None],
        begin_round: Callable[[], None],
        on_broken: OnBroken,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._propose = propose
        self._flush = flush
        self._begin_round = begin_round
        self._on_broken = on_broken
        self._woken: dict[Pumped, None] = {}
        self._is_alone = is_alone
        self._scheduled = False
        self._has_work = False
        """Whether `schedule` was called since the last end of a turn."""

    def wake(self, replica: Pumped) -> None:
        """Pump the replica at the end of this turn, or after the next if it is being pumped."""
        self._woken[replica] = None
        self.schedule()

    def schedule(self) -> None:
        """Run the end of this turn: there is work for it."""
        self._has_work = True
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(guarded(self._end, self._on_broken))

    def turn(self, call: Callable[[], None]) -> None:
        """Run the call as a whole turn: replicas that it wakes are pumped in the same turn."""
        self._scheduled = True
        call()
        guarded(self._end, self._on_broken)()

    def alone(self, call: Callable[[], None]) -> None:
        """Make a call that takes what a node has sent. If the turn began with this one event, run
        the end of the turn right after the call."""
        if self._scheduled or not self._is_alone():
            call()
            return
        self._scheduled, self._has_work = True, False
        try:
            call()
        finally:
            if self._has_work:
                guarded(self._end, self._on_broken)()
            else:
                self._scheduled = False

    def _end(self) -> None:
        self._pump_woken()
        later, self._woken = self._woken, {}  # pumped and not done: others get their turn first
        self._propose()
        self._pump_woken()
        self._woken |= later
        self._flush()
        self._begin_round()
        self._scheduled = False
        if self._woken:
            self.schedule()

    def _pump_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for replica in woken:
            replica.pump()
