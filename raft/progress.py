"""One peer as the leader sees it: its entries, the appends on their way, whether to send more.

The engine sends whatever it can to every peer it sees, in one go. So the leader shows a peer to the
engine only while more may be sent. It sends heartbeats to hidden peers itself, so that no live peer
is left in silence (x2.15). The states are etcd's: the leader replicates to a peer optimistically,
probes it with one append at a time after a rejection, or waits for a base.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from ..client.protocol import limits


class Flow(Enum):
    """How much the engine may send to a peer."""

    REPLICATE = "replicate"
    """Send up to a window of unacked bytes."""
    PROBE = "probe"
    """Send one append, then wait: a peer with a gap would reject each append of a window."""
    BASE = "base"
    """Send nothing: the peer needs, or may need, entries that the log no longer holds."""


@dataclass(slots=True)
class Progress:
    """The replication state of a peer.

    Bytes are bytes of commands. `epoch` is None without a link.
    """

    peer: int
    epoch: int | None = None
    flow: Flow = Flow.REPLICATE
    next_index: int = 1
    """The first entry that was not sent yet; a mirror of the engine's."""
    acked: int = 0
    """Highest index that the peer has durable in this term."""
    credited: int = 0
    """The highest acked index that the engine was told."""
    heard_at: float = -math.inf
    needs_base: bool = False
    """The peer said that it holds no entry that our log continues."""
    probed: bool = False
    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    """The (last index, bytes) of each unacked append with entries."""
    in_flight_bytes: int = 0
    window_full: bool = False
    paused: bool = False
    """Our link to the peer has too much to send, over all groups."""

    def lead(self, next_index: int, now: float) -> None:
        """Begin a leadership: the peer's log is unknown, and the peer counts as heard now."""
        self.acked = self.credited = 0
        self.heard_at = now
        self.needs_base = False
        self.rewind(next_index, Flow.REPLICATE)

    def rewind(self, next_index: int, flow: Flow) -> None:
        """Send from `next_index` on; the appends on their way count as lost."""
        self.next_index = next_index
        self.flow = flow
        self.probed = False
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.window_full = False

    def sent(self, last_index: int, size: int) -> None:
        """Note that an append up to last_index has left, with commands of `size` bytes."""
        self.next_index = max(self.next_index, last_index + 1)
        self.probed = True
        if size:
            self.in_flight.append((last_index, size))
            self.in_flight_bytes += size
            if self.in_flight_bytes >= limits.group_window_bytes_max:
                self.window_full = True

    def ack(self, last_index: int) -> None:
        """Note that the peer has all up to last_index.

        A full window reopens when half of it is acked.
        """
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
