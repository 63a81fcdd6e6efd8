"""What a node does at the end of a turn of its event loop, all in one go.

Requests and messages that arrive in a turn wake replicas and are gathered. At its end each woken
replica is pumped, a WAL round begins if none is under way, and what all of them have to say to
other nodes leaves, a frame a peer. Done one after the other by the loop each of these steps would
be a turn of its own, and a look at every socket between two of them: an append came by some
twenty of these, most of what it took on an idle node.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from .unexpected import OnBroken, guarded


class Pumped(Protocol):
    """A replica that has something to do."""

    def pump(self) -> None: ...


class TurnEnds:
    """`begin_round` begins a WAL round, and wakes the replicas that propose in it; `flush` sends
    what is queued for the peers; `on_broken` ends the node."""

    def __init__(
        self,
        *,
        begin_round: Callable[[], None],
        flush: Callable[[], None],
        on_broken: OnBroken,
    ) -> None:
        self._begin_round = begin_round
        self._flush = flush
        self._on_broken = on_broken
        self._woken: dict[Pumped, None] = {}
        self._scheduled = False

    def wake(self, replica: Pumped) -> None:
        """Pump the replica at the end of this turn; one that is being pumped, after the next."""
        self._woken[replica] = None
        self.schedule()

    def schedule(self) -> None:
        """There is something to do at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(guarded(self._end, self._on_broken))

    def turn(self, call: Callable[[], None]) -> None:
        """The call is all of a turn: what it wakes is not put off to the next."""
        self._scheduled = True
        call()
        guarded(self._end, self._on_broken)()

    def _end(self) -> None:
        self._pump_woken()
        later, self._woken = self._woken, {}  # pumped, and not done: others get their turn first
        self._begin_round()
        self._pump_woken()
        self._woken |= later
        self._flush()
        self._scheduled = False
        if self._woken:
            self.schedule()

    def _pump_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for replica in woken:
            replica.pump()
