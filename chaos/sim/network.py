"""The network between nodes: one link for each ordered pair, with faults drawn from a seed.

A link is a node's outgoing connection. It has an epoch, keeps the order of messages, and tells its
owner when it goes up or down, late or never. Faults go beyond what TCP allows, since the guard must
not depend on TCP: messages are dropped inside a live epoch, delivered twice, and delivered after
their connection has ended. A cut is one-way; a cut without notice is a half-open link. A stalled
link keeps its messages and delivers them when the stall ends, as retransmission does.

Healing ends asynchrony too. The promises of progress (L1, L2) hold from the time on at which
messages arrive within a known bound, including those sent before it (partial synchrony: Dwork,
Lynch and Stockmeyer, 1988). A late message is therefore under way no longer than the latency then.

Messages are packed and unpacked as on the wire, so that no two nodes ever share an object.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgpack

from .clock import Scheduler, Timer
from .trace import Trace

_STRAYS_KEPT: Final = 4096
"""At this length of the list, delivered messages are removed from it."""


class Endpoint(Protocol):
    """A node as the network sees it."""

    node_id: int

    @property
    def alive(self) -> bool: ...
    def link_up(self, peer: int, epoch: int) -> None: ...
    def link_down(self, peer: int) -> None: ...
    def receive(self, sender: int, payload: Any) -> None: ...


@dataclass(slots=True)
class Conditions:
    """Times in seconds; all other values are probabilities per message."""

    delay_min: float = 0.0003
    delay_mean: float = 0.0007
    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    late_max: float = 4.0
    notice_max: float = 1.5
    """The latest notice of a broken connection, if it is noticed at all."""
    reconnect: float = 0.1


@dataclass(slots=True)
class Link:
    """The link from `source` to `target`."""

    source: int
    target: int
    epoch: int = 0
    up: bool = False
    cuts: int = 0
    """Faults in force that cut this direction."""
    stalls: int = 0
    lost: bool = False
    """Whether this connection lost anything: if the cut ends first, it may be reset."""
    connecting: bool = False
    ready_at: float = 0.0
    held: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"n{self.source}>n{self.target}"


class Network:
    """All links of one cluster."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, trace: Trace) -> None:
        self.conditions = Conditions()
        self.sent = 0
        self.lost = 0
        self._scheduler = scheduler
        self._rng = rng
        self._trace = trace
        self._nodes: dict[int, Endpoint] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._strays: list[Timer] = []
        """Deliveries that are late by seconds, some of them made already."""
        self._epoch = 0
        self._pack: Callable[[Any], bytes] = msgpack.Packer().pack
        """`msgpack.packb` would make a packer, with a buffer of 256 KiB, for each message."""

    def add(self, node: Endpoint) -> None:
        """Add a machine; its process may start and end."""
        for other in self._nodes:
            for pair in ((node.node_id, other), (other, node.node_id)):
                self._links[pair] = Link(*pair)
        self._nodes[node.node_id] = node

    # Calls of nodes.

    def process_started(self, node_id: int) -> None:
        """Connect the node's outgoing links; the links of others to it are new connections too."""
        for other in self._nodes:
            if other != node_id:
                self._reset(self._links[node_id, other], notice=False)
                self._reset(self._links[other, node_id], notice=True)

    def process_ended(self, node_id: int, *, silent: bool) -> None:
        """Disconnect a killed process, or, when `silent`, a machine that lost power.

        Such a machine sends nothing.
        """
        for other in self._nodes:
            if other != node_id:
                self._links[node_id, other].up = False
                self._links[node_id, other].held.clear()
                self._broken(self._links[other, node_id], at_once=not silent)

    def send(self, source: int, target: int, payload: Any) -> None:
        """Queue a message on the link; it is lost when the link is down or cut."""
        link = self._links[source, target]
        self.sent += 1
        packed = self._pack(payload)
        self._trace.bytes(packed)
        if not link.up or link.cuts:
            link.lost = True
            self.lost += 1
            self._trace(link.name, "lost")
            return
        if link.stalls:
            link.held.append((link.epoch, packed))
            return
        self._transmit(link, packed)

    # Calls of a nemesis.

    def cut(self, source: int, target: int, *, notice: bool) -> None:
        """Drop the packets of this direction.

        Without notice, the link is half-open until healed.
        """
        link = self._links[source, target]
        link.cuts += 1
        if notice:
            self._broken(link, at_once=False)

    def uncut(self, source: int, target: int) -> None:
        """End one cut; after the last cut, a connection that lost something is reset, or not."""
        link = self._links[source, target]
        link.cuts -= 1
        if not link.cuts and link.up and link.lost and self._rng.random() < 0.5:
            self._broken(link, at_once=True)

    def stall(self, source: int, target: int) -> None:
        """Hold the packets of this direction until the stall ends."""
        self._links[source, target].stalls += 1

    def unstall(self, source: int, target: int) -> None:
        """End one stall; after the last stall, deliver the waiting packets."""
        link = self._links[source, target]
        link.stalls -= 1
        if not link.stalls:
            held, link.held = link.held, []
            for epoch, packed in held:
                if epoch == link.epoch:
                    self._transmit(link, packed)

    def reset(self, source: int, target: int) -> None:
        """Break the connection and make it again under a new epoch."""
        self._broken(self._links[source, target], at_once=True)

    def heal(self) -> None:
        """End all cuts and stalls, and deliver late messages."""
        strays, self._strays = self._strays, []
        for timer in strays:
            if (deliver := timer.action) is not None:
                timer.cancel()
                self._scheduler.after(self._latency(), deliver)
        for link in self._links.values():
            if link.stalls:
                link.stalls = 1
                self.unstall(link.source, link.target)
            if link.cuts:
                link.cuts = 1
                self.uncut(link.source, link.target)

    # Internals.

    def _transmit(self, link: Link, packed: bytes) -> None:
        rng, conditions, now = self._rng, self.conditions, self._scheduler.clock.now
        if conditions.drop and rng.random() < conditions.drop:
            link.lost = True
            self.lost += 1
            self._trace(link.name, "drop")
            return
        delay = self._latency()
        if conditions.late and rng.random() < conditions.late:
            self._stray(link, now + delay + rng.random() * conditions.late_max, packed)
            return
        link.ready_at = max(link.ready_at, now + delay)
        self._deliver_at(link, link.ready_at, packed)
        if conditions.duplicate and rng.random() < conditions.duplicate:
            self._stray(link, now + delay + rng.random() * conditions.late_max / 4, packed)

    def _latency(self) -> float:
        conditions = self.conditions
        return conditions.delay_min + self._rng.expovariate(1.0) * conditions.delay_mean

    def _stray(self, link: Link, time_s: float, packed: bytes) -> None:
        if len(self._strays) >= _STRAYS_KEPT:
            self._strays = [timer for timer in self._strays if timer.action is not None]
        self._strays.append(self._deliver_at(link, time_s, packed))

    def _deliver_at(self, link: Link, time_s: float, packed: bytes) -> Timer:
        node = self._nodes[link.target]

        def deliver() -> None:
            if link.cuts or not node.alive:
                self.lost += 1
                return
            node.receive(link.source, msgpack.unpackb(packed, strict_map_key=False))

        return self._scheduler.at(time_s, deliver)

    def _reset(self, link: Link, *, notice: bool) -> None:
        """End the old connection, if any; a new one follows."""
        if link.up and notice:
            self._broken(link, at_once=True)
        elif not link.up:
            self._reconnect(link)

    def _broken(self, link: Link, *, at_once: bool) -> None:
        if not link.up:
            return
        epoch = link.epoch
        limit = 0.002 if at_once else self.conditions.notice_max

        def noticed() -> None:
            if link.up and link.epoch == epoch:
                link.up = False
                link.held.clear()
                self._trace(link.name, "down", f"epoch={epoch}")
                self._nodes[link.source].link_down(link.target)
                self._reconnect(link)

        self._scheduler.after(self._rng.random() * limit, noticed)

    def _reconnect(self, link: Link) -> None:
        if link.connecting:
            return
        link.connecting = True

        def attempt() -> None:
            link.connecting = False
            source, target = self._nodes[link.source], self._nodes[link.target]
            if link.up or not source.alive:
                return
            back = self._links[link.target, link.source]
            if not target.alive or link.cuts or back.cuts or link.stalls:
                self._reconnect(link)
                return
            self._epoch += 1
            link.epoch, link.up, link.lost, link.ready_at = self._epoch, True, False, 0.0
            self._trace(link.name, "up", f"epoch={link.epoch}")
            source.link_up(link.target, link.epoch)

        delay = self.conditions.reconnect * (0.2 + self._rng.random())
        self._scheduler.after(delay, attempt)
