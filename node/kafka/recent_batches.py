"""The numbers of an idempotent producer's batches, and which of them it may send again.

A Kafka producer has at most five requests under way, so it sends none of its batches again but the
last five, and Kafka remembers five for each producer and partition. Ranges are told the first
number that may come again, and forget the numbers below (`client.appends`). Until this node has
seen enough batches, it takes the largest number of records that five batches may have: an earlier
leader of the partition may have taken them.

A batch names the sequence of its first record. A *turn* is one pass through the 2^31 sequences,
after which they begin at 0 again; numbers go on. A node takes a batch for one of the turn that puts
it nearest to the newest batch of the pair that a range has (serial number arithmetic, RFC 1982). A
node that knows of no such batch takes the first turn.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...client.protocol import limits

BATCHES: Final = 5
"""Batches before the newest that may come again."""
RECORDS: Final = BATCHES * limits.batch_records_max
PLACES_MAX: Final = 16_384
"""Pairs of a producer and a partition that are remembered; the pairs that wrote last."""
SEQUENCES: Final = 1 << 31
"""Sequences are below this number."""
TURNS: Final = 1 << 16
"""Turns of an epoch. The last of the 2^15 epochs has numbers below 2^62."""

Place = tuple[str, int, int]
"""Topic, partition and producer."""


class Numbered(NamedTuple):
    """The numbers of a batch."""

    first: int
    """The number of its first record."""
    oldest: int
    """The first number that may come again."""


@dataclass(slots=True)
class _Pair:
    epoch: int
    newest: int
    """The first number of the newest batch that a range has."""
    end: int | None = None
    """The last number of that batch; None: no range has one."""
    firsts: tuple[int, ...] = ()
    """The first numbers of the last batches, also of those that no range has."""


def start_of(epoch: int) -> int:
    """Return the first number of an epoch. Each epoch counts from 0 again."""
    return epoch * TURNS * SEQUENCES + 1


class RecentBatches:
    """The last batches of each pair of a producer and a partition."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[Place, _Pair] = OrderedDict()

    def note(self, place: Place, epoch: int, sequence: int) -> Numbered:
        """Note a batch by the sequence of its first record, which is there again when the batch
        comes again; return its numbers."""
        start, pair = start_of(epoch), self._pairs.pop(place, None)
        if pair is None or pair.epoch != epoch:
            pair = _Pair(epoch, start)
        first = max(start + sequence, _nearest(pair.newest, start + sequence))
        if not pair.firsts or first > pair.firsts[-1]:
            pair.firsts = (*pair.firsts, first)[-BATCHES - 1 :]
        self._pairs[place] = pair
        if len(self._pairs) > PLACES_MAX:
            self._pairs.popitem(last=False)
        firsts = pair.firsts
        oldest = firsts[0] if len(firsts) > BATCHES else first - RECORDS
        return Numbered(first, max(start, min(oldest, first)))

    def stored(self, place: Place, first: int, count: int) -> None:
        """Note that a range has a batch of so many records with these numbers."""
        pair = self._pairs.get(place)
        if pair is not None and first >= pair.newest:
            pair.newest, pair.end = first, first + count - 1

    def had(self, place: Place, number: int) -> bool:
        """Whether a range had the record with this number, the last of a batch."""
        pair = self._pairs.get(place)
        return pair is not None and pair.end == number


class Turns:
    """The search for the turn of a batch of which this node knows none. A range has forgotten the
    numbers of earlier turns, and lacks the predecessors of numbers of later turns."""

    def __init__(self) -> None:
        self.turn = 0
        """The turn that is tried."""
        self._low = -1
        self._high = TURNS

    def forgotten(self) -> bool:
        """The range has forgotten the numbers; return whether there is another turn to try."""
        self._low = self.turn
        return self._goes_on()

    def too_high(self) -> bool:
        """The range lacks the predecessor; return whether there is another turn to try."""
        self._high = self.turn
        return self._goes_on()

    def _goes_on(self) -> bool:
        """Choose the next turn: by doubling, and by halving once a turn was too high."""
        middle = (self._low + self._high) // 2
        self.turn = min(2 * self._low + 1, middle) if self._high == TURNS else middle
        return self.turn > self._low >= 0


def _nearest(near: int, number: int) -> int:
    """Return the number nearest to `near` that differs from `number` by whole turns."""
    ahead = (number - near) % SEQUENCES
    return near + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
