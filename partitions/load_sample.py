"""Where the load of a range halves, or which key has most of the load, estimated from a sample.

The method is CockroachDB's load-based splitting (`pkg/kv/kvserver/split`, the unweighted finder). A
reservoir of 20 keys (Vitter's algorithm R) holds the candidates for a split. Each candidate counts,
for every later sample, whether it would go to the left child, to the right child, or to both.

The unit is a record appended or a read answered. On average, one in `every` is sampled, whatever
the requests hold, so that a busy range costs no more than a quiet one.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..client.protocol.key_column import KeyColumn

CANDIDATES: Final = 20
COUNTED_MIN: Final = 100
"""The samples that a candidate needs before its counts are used."""
ENOUGH: Final = 2 * COUNTED_MIN
"""The samples that a result needs."""
PICKS_MAX: Final = 32
"""The most records of one request that are looked at."""
UNBALANCED: Final = 0.25
"""The least difference of the two sides, as a part of the samples on one side only, at which a
split halves nothing. Below it the smaller side has at least three eighths."""
CONTAINED_MAX: Final = 0.5
"""The part of the samples on both sides from which on a split divides nothing."""
HOT: Final = 0.6
"""A key with this part of the load is hot. Its range is not split: the child with the key would
have almost the same load."""
IN_THE_WAY: Final = 0.25
"""A key with this part of the load is reported as hot if no key halves the load."""


class Halves(NamedTuple):
    """A key that halves the load: the first key of the right child."""

    at: bytes


class HotKey(NamedTuple):
    """A key that has a large part of the load of its range."""

    key: bytes
    share: float
    """The key's part of the load of its range, 0 to 1."""


class _Candidate:
    __slots__ = ("contained", "key", "left", "right", "same")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.left = self.right = self.contained = 0
        self.same = 0
        """The samples on the right side that are for exactly this key."""

    @property
    def counted(self) -> int:
        return self.left + self.right + self.contained

    @property
    def score(self) -> float | None:
        """Return how bad a split here would be, 0 being the best.

        Returns None if no split is possible here.
        """
        aside = self.left + self.right
        if aside == 0:
            return None
        balance, contained = abs(self.left - self.right) / aside, self.contained / self.counted
        if balance >= UNBALANCED or contained >= CONTAINED_MAX:
            return None
        return balance + contained


class Sample:
    """A sample of the load of a range over some time, of bounded size.

    Callers add requests only while the range is busy.
    """

    __slots__ = ("_candidates", "_rng", "_seen", "_skip", "every")

    def __init__(self, rng: random.Random, every: int) -> None:
        self.every = every
        """One request in so many is sampled; at least 1; may be set at any time."""
        self._rng = rng
        self._candidates: list[_Candidate] = []
        self._seen = 0
        self._skip = self._gap()

    def appended(self, keys: KeyColumn, *, together: bool) -> None:
        """Count a request that appends records with these keys.

        With `together`, all records go to one range; otherwise each record goes where its key is.
        No object is made of a key that is not looked at.
        """
        count = keys.count
        if self._skip >= count:
            self._skip -= count
            return
        whole = (keys.least, keys.greatest + b"\0") if together else None
        at = self._skip
        for _ in range(PICKS_MAX):
            self._add(*(whole or _alone(keys.string(at))))
            at += 1 + self._gap()
            if at >= count:
                break
        self._skip = max(0, at - count)

    def read(self, first: bytes, end: bytes | None) -> None:
        """Count an answered read of the keys in [first, end).

        With `end` None, the read goes to the last key of the range.
        """
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._gap()
        self._add(first, end)

    @property
    def is_enough(self) -> bool:
        """Whether the sample is large enough for a result."""
        return self._seen >= ENOUGH

    def found(self) -> Halves | HotKey | None:
        """Return where to split the range, or the hot key because of which a split is useless.

        None: no split helps, and no key is to blame (ascending keys only, or reads of all keys).
        """
        counted = [each for each in self._candidates if each.counted >= COUNTED_MIN]
        if not counted:
            return None
        hot = _most_wanted(counted)
        if hot.share < HOT:
            scored = [(each.score, each.key) for each in counted]
            halves = [(score, key) for score, key in scored if score is not None]
            if halves:
                return Halves(min(halves)[1])
        return hot if hot.share >= IN_THE_WAY else None

    def _gap(self) -> int:
        """Draw the number of requests to skip, with the mean `every` - 1.

        It is random, since different requests may alternate.
        """
        return self._rng.randrange(2 * self.every - 1)

    def _add(self, first: bytes, end: bytes | None) -> None:
        self._seen += 1
        at = self._seen - 1
        if at >= CANDIDATES:
            at = self._rng.randrange(self._seen)
        if at < len(self._candidates):
            self._candidates[at] = _Candidate(first)
        elif at < CANDIDATES:
            self._candidates.append(_Candidate(first))
        else:
            for candidate in self._candidates:
                _count(candidate, first, end)


def _alone(key: bytes) -> tuple[bytes, bytes]:
    """Return the span of one key."""
    return key, key + b"\0"


def _most_wanted(candidates: Sequence[_Candidate]) -> HotKey:
    """Return the most wanted key. A key may be a candidate several times, as a hot key is."""
    same: dict[bytes, int] = defaultdict(int)
    counted: dict[bytes, int] = defaultdict(int)
    for each in candidates:
        same[each.key] += each.same
        counted[each.key] += each.counted
    key = max(same, key=lambda key: same[key] / counted[key])
    return HotKey(key, same[key] / counted[key])


def _count(candidate: _Candidate, first: bytes, end: bytes | None) -> None:
    key = candidate.key
    if key > first:
        if end is None or key < end:
            candidate.contained += 1
        else:
            candidate.left += 1
        return
    candidate.right += 1
    if key == first and end == first + b"\0":
        candidate.same += 1
