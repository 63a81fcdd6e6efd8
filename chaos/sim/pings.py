"""Pings of a simulated host: the real `Liveness`, for one life of its process.

Every message between hosts carries the header of a frame between nodes. Each message therefore says
that its sender lives, and which groups it lets rest; so do late and doubled messages.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...raft.liveness import Liveness, Ping
from ...raft.types import RaftOptions

if TYPE_CHECKING:
    from .host import Host


class Pings:
    """The pings of one life. Its `incarnation` is higher than in all earlier lives."""

    def __init__(self, host: "Host", incarnation: int, send: Callable[[int], None]) -> None:
        self._host = host
        self._incarnation = incarnation
        self._send = send
        self.liveness = Liveness(
            incarnation=incarnation,
            clock=host.world.clock,
            rng=host.rng,
            options=RaftOptions(),
            on_wake=self._woken,
        )

    def _woken(self, role: str) -> None:
        if role == "leader":
            self._host.world.wakes += 1

    def header(self, peer: int) -> list[Any]:
        """Return the header of a message to this peer."""
        return [self._incarnation, *self.liveness.ping(peer)]

    def heard(self, sender: int, header: list[Any]) -> None:
        """Take the header of a message."""
        incarnation, *ping = header
        self.liveness.heard(sender, incarnation, Ping.from_wire(ping))
        self._disturb()

    def tick(self) -> None:
        """Send the due pings, and pass on what is known by now."""
        if self.liveness.tick():
            for peer in list(self._host.links):
                self._send(peer)
        self._disturb()

    def _disturb(self) -> None:
        for wake in self.liveness.take_wakes():
            member = self._host.member(wake.gid)
            if member is not None:
                member.group.disturb(wake.peer, campaign=wake.campaign)
                self._host.touch(member)
