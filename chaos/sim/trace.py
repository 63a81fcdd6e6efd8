"""The trace of a run: one line per event, and the hash that proves a replay.

`COLUMNS` describes the columns, and `lognode-chaos sim --help` prints it.

The hash covers every line, whether printed or not, and every byte sent, so that two runs of one
seed can be compared cheaply. `recv` lines are there only for reading. A line may contain only
functions of the seed.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..trace_hash import TraceHash
from .clock import START_S, VirtualClock

COLUMNS: Final = """\
one line an event, four columns separated by one space:

  1  virtual seconds since the start of the run, six decimals
  2  where: n1.. a node, c1.. a client, n1>n2 a link, `nemesis`, `world`
  3  what happened there
  4  the rest: words and name=value

  nodes      start, kill, power, disk-failure, pause, resume: the process; sync N: a WAL round is
             durable; term, lead, propose: consensus; checkpoint, base: index=; seal, begin,
             retire, damaged, alone, aside, continue: generations, as range/generation; rot,
             doubt, repaired, unrepaired: a segment, by the start of its content id; recv (not in
             the hash): a message
  links      up, down: a connection; drop, lost: a message that goes nowhere
  clients    invoke, ack, read, prefix, mismatch, give-up; removed: a removal is acknowledged;
             leased: a read through a lease is answered
  nemesis    fault: planned time, kind, nodes or directions, value, duration; stays: broken while
             the others must go on; heal: all faults end
  operator   remove, undrain, recover: what is asked for when a machine, or most of a range, is lost
             for good
  world      finale: power loss of all; change: an operation on a range is asked for; wreck: all
             replicas of a range but one are lost; recovered: it goes on, lost=
"""


class Trace:
    """Feeds a hash, a short memory of the last lines, and a sink if one is given."""

    def __init__(self, clock: VirtualClock, sink: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._sink = sink
        self._hash = TraceHash()
        self.bytes = self._hash.add
        """Adds sent bytes to the hash: they are part of the run."""
        self.digest = self._hash.digest
        """Returns the hash of all lines so far, in hex."""
        self.tail: deque[str] = deque(maxlen=40)
        self.lines = 0

    def __call__(self, where: str, what: str, detail: str = "") -> None:
        line = f"{self._clock.now - START_S:.6f} {where} {what} {detail}"
        self.bytes(line.encode())
        self.tail.append(line)
        self.lines += 1
        if self._sink is not None:
            self._sink(line)

    def note(self, where: str, what: str, form: str, *values: Any) -> None:
        """Write a line to the sink, if there is one; the line is not in the hash."""
        if self._sink is not None:
            self._sink(f"{self._clock.elapsed:.6f} {where} {what} {form % values}")
