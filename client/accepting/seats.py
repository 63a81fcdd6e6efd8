"""The connections of a listener, and which of them gives way when the listener is full.

Pure bookkeeping: no sockets, no clock. A guest is a connection; it stands at the door until its
handshake is done, and then has a seat. The door and the seats have separate bounds, so guests that
never finish a handshake can neither take a seat from anybody nor keep others from the door.
"""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ..protocol import limits
from ..protocol.errors import Overloaded

_SAMPLE: Final = 16
"""The number of guests from which the longest idle one is chosen: checking all would take too
long."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a listener."""

    connections: int = limits.connections_max
    """Connections after their handshake."""
    handshakes: int = limits.handshakes_max
    """Connections before the end of their handshake."""
    host_share: float = limits.connections_per_host_share
    """The largest share of `connections` for one host; 1: all of them."""
    idle_s: float = 0.0
    """A guest without a request for this time is closed, and an idle guest gives way to a new
    one; 0: neither."""
    frame_bytes_per_s: int = 0
    """The minimum growth of an incomplete frame; 0: any."""
    incomplete_bytes: int = limits.incomplete_frames_bytes_max
    """Bytes of the incomplete frames of all guests together."""

    @property
    def per_host(self) -> int:
        """The seats that one host may have."""
        return max(1, int(self.connections * self.host_share))


class Guest(Protocol):
    """A connection."""

    @property
    def host(self) -> str:
        """The remote address without the port."""

    @property
    def idle_since(self) -> float | None:
        """The time at which the guest was last busy; None: it is busy now."""


Someone = TypeVar("Someone", bound=Guest)


class Seats(Generic[Someone]):
    """The guests of one listener. `rng` chooses the candidates when a guest has to leave."""

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
        """All guests, at the door and seated."""
        return [*self._door, *(guest for group in self._seated.values() for guest in group)]

    @property
    def taken(self) -> int:
        """The number of taken seats."""
        return self._taken

    def arrive(self, guest: Someone) -> Someone | None:
        """Admit a guest to the door. Returns the guest that must leave: the longest-standing one
        of the host with most guests at the door."""
        gives_way = None
        if len(self._door) >= self._bounds.handshakes:
            at_door = Counter(each.host for each in self._door)
            crowd = max(at_door, key=at_door.__getitem__)  # the first host in a tie
            gives_way = next(each for each in self._door if each.host == crowd)
            del self._door[gives_way]
        self._door[guest] = None
        return gives_way

    def sit(self, guest: Someone) -> Someone | None:
        """Seat a guest whose handshake is done. Returns the guest that must leave for it.

        Raises Overloaded when there is no seat and no guest can leave.
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
                    f"{self._taken} connections, the limit of the node; try another node"
                    if full
                    else (
                        f"{len(of_host)} connections from {host}, the limit of a host; share "
                        "connections"
                    )
                )
                raise Overloaded(f"this node has {told}, or come back later", retry_after=1.0)
        if gives_way is not None:
            self.leave(gives_way)
        self._door.pop(guest, None)
        self._seated.setdefault(host, {})[guest] = None
        self._taken += 1
        return gives_way

    def leave(self, guest: Someone) -> None:
        """Remove a guest that has left or is about to. The call is idempotent."""
        self._door.pop(guest, None)
        host = guest.host
        of_host = self._seated.get(host)
        if of_host is not None and guest in of_host:
            del of_host[guest]
            self._taken -= 1
            if not of_host:
                del self._seated[host]

    def _idlest(self, group: dict[Someone, None]) -> Someone | None:
        """Return the longest idle guest of a sample of the group, or None."""
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
