"""Who is connected to a listener, and who gives way when the listener is full.

Pure bookkeeping: no sockets, no clock. A guest stands at the door until its handshake is done, and
then has a seat. The door and the seats have bounds of their own, so that guests who never finish a
handshake cannot take a seat from anybody, nor keep others from the door.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ..protocol import limits
from ..protocol.errors import Overloaded

_SAMPLE: Final = 16
"""Guests of which the one that is idle for longest gives way: all of them would take too long."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a listener allows."""

    connections: int = limits.connections_max
    """After their handshake."""
    handshakes: int = limits.handshakes_max
    """Before its end."""
    host_share: float = limits.connections_per_host_share
    """Of `connections`, the most that one host gets; 1: all of them."""
    idle_s: float = 0.0
    """A guest without a request for so long has to go, and an idle guest gives way to a new one;
    0: neither."""
    frame_bytes_per_s: int = 0
    """An incomplete frame has to grow this fast; 0: at any pace."""
    incomplete_bytes: int = limits.incomplete_frames_bytes_max
    """Of the incomplete frames of all guests together."""

    @property
    def per_host(self) -> int:
        """Seats that one host gets."""
        return max(1, int(self.connections * self.host_share))


class Guest(Protocol):
    """Somebody who is connected."""

    @property
    def host(self) -> str:
        """Where the guest is from, without the port."""

    @property
    def idle_since(self) -> float | None:
        """When the guest was last busy; None: it is busy now."""


Someone = TypeVar("Someone", bound=Guest)


class Seats(Generic[Someone]):
    """The guests of one listener. `rng` chooses whom to look at when somebody has to go."""

    def __init__(self, bounds: Bounds, rng: random.Random) -> None:
        self._bounds = bounds
        self._rng = rng
        self._door: dict[Someone, None] = {}
        self._seated: dict[str, dict[Someone, None]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken + len(self._door)

    @property
    def guests(self) -> list[Someone]:
        """All of them, at the door and seated."""
        return [*self._door, *(guest for group in self._seated.values() for guest in group)]

    @property
    def taken(self) -> int:
        """How many seats are taken."""
        return self._taken

    def arrive(self, guest: Someone) -> Someone | None:
        """Somebody comes to the door. Returns the guest that has to go for it: of the host with
        most guests there, the one that has stood there for longest."""
        gives_way = None
        if len(self._door) >= self._bounds.handshakes:
            at_door = Counter(each.host for each in self._door)
            crowd = max(at_door, key=at_door.__getitem__)  # the first of them, where two are equal
            gives_way = next(each for each in self._door if each.host == crowd)
            del self._door[gives_way]
        self._door[guest] = None
        return gives_way

    def sit(self, guest: Someone) -> Someone | None:
        """The handshake is done. Returns the guest that has to go for it.

        Raises Overloaded when there is no seat and nobody can go.
        """
        host = guest.host
        of_host = self._seated.get(host, {})
        greedy, full = (
            len(of_host) >= self._bounds.per_host, self._taken >= self._bounds.connections
        )  # fmt: skip
        gives_way = None
        if greedy or full:
            crowd = of_host if greedy else max(self._seated.values(), key=len)
            gives_way = self._idlest(crowd)
            if gives_way is None:
                told = (
                    f"{self._taken} connections, as many as it may have; try another node"
                    if full
                    else f"{len(of_host)} connections from {host}, as many as one host gets; "
                    "share connections"
                )
                raise Overloaded(f"this node has {told}, or come back later", retry_after=1.0)
        if gives_way is not None:
            self.leave(gives_way)
        self._door.pop(guest, None)
        self._seated.setdefault(host, {})[guest] = None
        self._taken += 1
        return gives_way

    def leave(self, guest: Someone) -> None:
        """The guest has gone, or is about to. Doing it twice is doing it once."""
        self._door.pop(guest, None)
        host = guest.host
        of_host = self._seated.get(host)
        if of_host is not None and guest in of_host:
            del of_host[guest]
            self._taken -= 1
            if not of_host:
                del self._seated[host]

    def _idlest(self, group: dict[Someone, None]) -> Someone | None:
        """One of those who are idle, for about as long as anybody of the group."""
        if not self._bounds.idle_s:
            return None
        everybody = list(group)
        looked = self._rng.sample(everybody, min(_SAMPLE, len(everybody)))
        found, since = None, float("inf")
        for guest in looked:
            idle_since = guest.idle_since
            if idle_since is not None and idle_since < since:
                found, since = guest, idle_since
        return found
