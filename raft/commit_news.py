"""When a leader tells its peers a newer commit index.

Every append and heartbeat tells the commit index. Without another append the leader waits a little
before it sends the commit index alone: the answers to its clients go first, and under load no
message has the commit index alone. Each such message costs every member a turn of its event loop.
The library tells a newer commit index at once.
"""

import math
from collections.abc import Callable


class CommitNews:
    """The commit index that the peers of a leader may not know. Times are of the given clock."""

    __slots__ = ("_clock", "_delay_s", "_told", "due")

    def __init__(self, clock: Callable[[], float], delay_s: float) -> None:
        """Create this for a member that knows no news. `delay_s`: the wait, in seconds."""
        self._clock = clock
        self._delay_s = delay_s
        self.forget()

    def forget(self) -> None:
        """Begin anew, with another leader: its peers know no commit index."""
        self._told = 0
        self.due = math.inf
        """When to tell the commit index, unless an append tells the index before."""

    def committed(self, index: int) -> None:
        """Note the present commit index."""
        if index > self._told and self.due == math.inf:
            self.due = self._clock() + self._delay_s

    def told(self, index: int) -> None:
        """Note that messages with this commit index leave."""
        self._told, self.due = index, math.inf
