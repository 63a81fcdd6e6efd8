"""The numbers of an idempotent producer's batches, and which of them it may send again.

A Kafka producer has at most five requests under way, so it sends none of its batches again but the
last five, and Kafka remembers five for each producer and partition. Ranges are told the first
number that may come again, and forget the numbers below (`client.appends`). Until this node has
seen enough batches, it takes the largest number of records that five batches may have: an earlier
leader of the partition may have taken them.

A batch names the sequence of its first record, which begins at 0 again after 2^31 records. Its
number goes on: of all numbers with this sequence, it is the nearest to the number of the newest
batch (serial number arithmetic, RFC 1982). Without a newer batch, a node takes the first turn.
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
PAUSE_S: Final = 3_600.0
"""After a pause of this length, no earlier batch of a pair is under way any more."""
_EPOCH_BITS: Final = 47
"""So an epoch has 65,536 turns, and the last of the 2^15 epochs has numbers below 2^62."""

Place = tuple[int | None, int, int]
"""The id of the log, the partition and the producer. A topic that is made anew has another id."""


class Numbered(NamedTuple):
    """The numbers of a batch."""

    first: int
    """The number of its first record."""
    oldest: int
    """The first number that may come again."""
    begins: bool
    """Whether this node has seen no earlier batch of the pair lately."""


@dataclass(slots=True)
class _Pair:
    epoch: int
    begin: int
    """The first number after the last pause."""
    firsts: tuple[int, ...] = ()
    """The first numbers of the last batches."""
    at: float = 0.0
    """The time of the last batch."""

    def add(self, first: int) -> None:
        if not self.firsts or first > self.firsts[-1]:
            self.firsts = (*self.firsts, first)[-BATCHES - 1 :]


def start_of(epoch: int) -> int:
    """Return the first number of an epoch. Each epoch counts from 0 again."""
    return (epoch << _EPOCH_BITS) + 1


class RecentBatches:
    """The last batches of each pair of a producer and a partition."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[Place, _Pair] = OrderedDict()

    def note(self, place: Place, epoch: int, sequence: int, now: float) -> Numbered:
        """Note a batch by the sequence of its first record, which is there again when the batch
        comes again; return its numbers. `now`: seconds of a clock."""
        start, pair = start_of(epoch), self._pairs.pop(place, None)
        if pair is None or pair.epoch != epoch:
            pair = _Pair(epoch, start + sequence)
        near = pair.firsts[-1] if pair.firsts else start
        first = max(start + sequence, _nearest(near, start + sequence))
        if pair.firsts and now - pair.at > PAUSE_S:
            pair.begin, pair.firsts = first, ()
        pair.at = now
        pair.add(first)
        self._pairs[place] = pair
        if len(self._pairs) > PLACES_MAX:
            self._pairs.popitem(last=False)
        firsts = pair.firsts
        oldest = firsts[0] if len(firsts) > BATCHES else first - RECORDS
        return Numbered(first, max(start, min(oldest, first)), first == pair.begin)

    def turned(self, place: Place, first: int) -> None:
        """Note that the range took a batch with this number: it is of a later turn of the sequences
        than this node took it for."""
        pair = self._pairs.get(place)
        if pair is not None:
            pair.add(first)


def _nearest(near: int, number: int) -> int:
    """Return what is the nearest to `near` of a number and those whole turns away from it."""
    ahead = (number - near) % SEQUENCES
    return near + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
