"""Where the load of a range halves, or which key has most of it, told from a sample of it.

As CockroachDB does it (load-based splitting, `pkg/kv/kvserver/split`, the unweighted finder): a
reservoir of 20 keys (Vitter's algorithm R), each a place to split at. Of whatever is sampled after
it each counts what would go to the child on its left, to that on its right, or to both.

The unit is a record appended or a read answered. One in `every`, on average, is looked at, whatever
the requests hold, so that a busy range costs no more than one that is less so.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

CANDIDATES: Final = 20
COUNTED_MIN: Final = 100
"""What a candidate has counted before it is believed."""
ENOUGH: Final = 2 * COUNTED_MIN
"""What has to be sampled before a sample says anything."""
PICKS_MAX: Final = 32
"""Records of one request that are looked at."""
UNBALANCED: Final = 0.25
"""Of what goes to one side only, by so much of it the sides differ where they halve nothing: the
smaller one has three eighths at least."""
CONTAINED_MAX: Final = 0.5
"""The part that goes to both sides from which on a split divides nothing."""
HOT: Final = 0.6
"""A key with such a part of the load is hot, and its range is not split: the child that has it
would be little better off."""
IN_THE_WAY: Final = 0.25
"""A key with such a part is named hot where nothing halves the load."""


class Halves(NamedTuple):
    """The load halves at a key, the first one of the right child."""

    at: bytes


class HotKey(NamedTuple):
    """A key that has a large part of the load of its range."""

    key: bytes
    share: float
    """Of what its range is asked for, 0 to 1."""


class _Candidate:
    __slots__ = ("contained", "key", "left", "right", "same")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.left = self.right = self.contained = 0
        self.same = 0
        """Of those on the right, what is for this very key."""

    @property
    def counted(self) -> int:
        return self.left + self.right + self.contained

    @property
    def score(self) -> float | None:
        """How bad a split here would be, 0 being the best; None: it is to be made nowhere here."""
        aside = self.left + self.right
        if aside == 0:
            return None
        balance, contained = abs(self.left - self.right) / aside, self.contained / self.counted
        if balance >= UNBALANCED or contained >= CONTAINED_MAX:
            return None
        return balance + contained


class Sample:
    """What a range was asked for over some time; of bounded size. Not for what rests: whoever shows
    it requests does so only while the range is busy."""

    __slots__ = ("_candidates", "_rng", "_seen", "_skip", "every")

    def __init__(self, rng: random.Random, every: int) -> None:
        self.every = every
        """One in so many is looked at, from 1 up; may be set at any time."""
        self._rng = rng
        self._candidates: list[_Candidate] = []
        self._seen = 0
        self._skip = self._gap()

    def appended(self, keys: Sequence[bytes], *, together: bool) -> None:
        """A request appends records with these keys: all of them in one range, or each by itself
        wherever its key is."""
        count = len(keys)
        if self._skip >= count:
            self._skip -= count
            return
        whole = (min(keys), max(keys) + b"\0") if together else None
        at = self._skip
        for _ in range(PICKS_MAX):
            self._add(*(whole or (keys[at], keys[at] + b"\0")))
            at += 1 + self._gap()
            if at >= count:
                break
        self._skip = max(0, at - count)

    def read(self, first: bytes, end: bytes | None) -> None:
        """A read of the keys of [first, end) was answered; None: to the last key of the range."""
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._gap()
        self._add(first, end)

    @property
    def is_enough(self) -> bool:
        """Whether it tells something."""
        return self._seen >= ENOUGH

    def found(self) -> Halves | HotKey | None:
        """Where to split the range, or the key because of which it is of no use; None: nowhere,
        and no key is to blame (keys that only ascend, or reads of all of them)."""
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
        """What to pass before the next. Drawn, since requests may come by turns, of mean
        `every` - 1."""
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


def _most_wanted(candidates: Sequence[_Candidate]) -> HotKey:
    """A key may be there several times, and one that is hot is."""
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
