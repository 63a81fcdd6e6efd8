"""One peer as the leader sees it: what it has, what is on its way, whether to send more.

The engine sends whatever it can to every peer it sees, in one go. So the leader shows it a peer
only while more may be sent, and speaks to a hidden one itself, once a heartbeat, so that nobody
falls silent to a live peer (x2.15). The states are etcd's: a peer is replicated to
optimistically, probed with one append at a time after a rejection, or waits for a base.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from ..client.protocol import limits


class Flow(Enum):
    """How much the engine may send to a peer."""

    REPLICATE = "replicate"
    """Up to a window of bytes that are not acked."""
    PROBE = "probe"
    """One append, then wait: a peer with a gap would answer each of a window with a rejection."""
    BASE = "base"
    """Nothing: it needs entries that the log no longer holds, or may need them."""


@dataclass(slots=True)
class Progress:
    """Bytes are those of commands. `epoch` is that of our link to the peer; None without one."""

    peer: int
    epoch: int | None = None
    flow: Flow = Flow.REPLICATE
    next_index: int = 1
    """Mirror of the engine's: the first entry that was not sent yet."""
    acked: int = 0
    """Highest index that the peer has durable in this term."""
    credited: int = 0
    """Highest acked index that the engine was told."""
    heard_at: float = -math.inf
    needs_base: bool = False
    """It said that it holds nothing that our log continues."""
    probed: bool = False
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """(last index, bytes) of each append with entries that is not acked."""
    in_flight_bytes: int = 0
    window_full: bool = False
    paused: bool = False
    """Our link to it has more to send than it should, of all groups together."""

    def lead(self, next_index: int, now: float) -> None:
        """We became leader: nothing is known of the peer, and it gets the benefit of the doubt."""
        self.acked = self.credited = 0
        self.heard_at = now
        self.needs_base = False
        self.rewind(next_index, Flow.REPLICATE)

    def rewind(self, next_index: int, flow: Flow) -> None:
        """Send from here on; what was on its way is taken as lost."""
        self.next_index = next_index
        self.flow = flow
        self.probed = False
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.window_full = False

    def sent(self, last_index: int, size: int) -> None:
        """An append up to last_index has left, with commands of `size` bytes."""
        self.next_index = max(self.next_index, last_index + 1)
        self.probed = True
        if size:
            self.in_flight.append((last_index, size))
            self.in_flight_bytes += size
            if self.in_flight_bytes >= limits.group_window_bytes_max:
                self.window_full = True

    def ack(self, last_index: int) -> None:
        """The peer has all up to last_index; a full window opens again once half of it is."""
        self.acked = max(self.acked, last_index)
        self.next_index = max(self.next_index, self.acked + 1)
        self.flow = Flow.REPLICATE
        self.needs_base = False
        while self.in_flight and self.in_flight[0][0] <= last_index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        if self.in_flight_bytes <= limits.group_window_bytes_max // 2:
            self.window_full = False

    def may_send(self, *, bounded: bool = True) -> bool:
        """Whether the engine should see this peer. `bounded` false opens hole 26."""
        if self.epoch is None or self.flow is Flow.BASE or self.paused:
            return False
        if self.flow is Flow.PROBE and self.probed:
            return False
        return not (self.window_full and bounded)
