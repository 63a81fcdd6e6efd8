"""Ping the other nodes: `raft.liveness` on the event loop.

A frame goes to every peer five times a second, even if no group has a message, and every frame
shows that its sender is alive. Only the groups that `Liveness` names are disturbed: idle groups
cost nothing.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from ...client.timer import Timer
from ...raft.liveness import Liveness, Ping
from ...raft.types import GroupId, RaftOptions
from ..metrics import Metrics
from ..replicas.replica import Replica
from ..runtime.unexpected import OnBroken, guarded


class Pings:
    """Sends and takes pings. `replica` returns the running replica of a group, or None; `send`
    sends one frame to each peer.

    `boot` is this node's boot number, the incarnation of `Liveness`.
    """

    def __init__(
        self,
        *,
        boot: int,
        options: RaftOptions,
        rng: random.Random,
        replica: Callable[[GroupId], Replica | None],
        send: Callable[[], None],
        metrics: Metrics,
        on_broken: OnBroken,
    ) -> None:
        self._replica = replica
        self._send = send
        self._tick_guarded = guarded(self._tick, on_broken)
        self._timer: Timer | None = None
        self._loop = asyncio.get_running_loop()
        self.liveness = Liveness(
            incarnation=boot,
            clock=time.monotonic,
            rng=rng,
            options=options,
            on_wake=lambda role: metrics.wakes.labels(role).inc(),
        )

    def start(self) -> None:
        """Start the pings."""
        self._tick_guarded()

    def stop(self) -> None:
        """Stop the pings."""
        if self._timer is not None:
            self._timer.cancel()

    def ping(self, peer: int) -> list[Any]:
        """Return the ping for a frame to this peer."""
        return list(self.liveness.ping(peer))

    def heard(self, peer: int, boot: int, told: Any) -> None:
        """Take a frame's ping from the peer's latest process. Raises RemoteProtocolError for a
        malformed ping."""
        self.liveness.heard(peer, boot, Ping.from_wire(told))
        if self._timer is not None and self.liveness.next_deadline() < self._timer.when:
            self._timer.cancel()
            self._timer = Timer.at(self._loop, self.liveness.next_deadline(), self._tick_guarded)

    def _tick(self) -> None:
        if self.liveness.tick():
            self._send()
        for wake in self.liveness.take_wakes():
            replica = self._replica(wake.gid)
            if replica is not None:
                replica.disturb(wake.peer, campaign=wake.campaign)
        self._timer = Timer.at(self._loop, self.liveness.next_deadline(), self._tick_guarded)
