"""Removals and leases of simulated clients, and which entries may, or must, be gone by them.

A removal may have been applied at any time after its first request, however often it is repeated,
and has been applied once it is acknowledged. A floor never falls. Seqs are those that the client
knew at the request: later appends lie above, and are never covered.
"""

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...statemachine import commands

_KINDS: Final = {
    "trim": commands.TRIM_KEYS,
    "delete": commands.DELETE_KEYS,
    "retention": commands.TRIM_SPANS,
    "compact": commands.COMPACT_TO,
}


class Removal(NamedTuple):
    """Removes the entries of each key below `before`.

    With `how` compact, all but the last of them.
    """

    how: str
    keys: tuple[bytes, ...]
    before: int
    span: tuple[bytes, bytes]

    @property
    def spans(self) -> bool:
        """Whether the removal covers a span of keys, which may lie in several ranges."""
        return self.how in ("retention", "compact")

    @property
    def first(self) -> bytes:
        """A key of the range that is asked first."""
        return self.span[0] if self.spans else self.keys[0]

    def part(self, start: bytes, end: bytes | None, before: int) -> "Removal":
        """Return one range's part: its own keys, and no seq beyond its last."""
        keys = [key for key in self.keys if key >= start and (end is None or key < end)]
        return self._replace(keys=tuple(keys), before=before)

    @property
    def command(self) -> tuple[int, Any]:
        """Return kind and payload of the Raft entry."""
        kind = _KINDS[self.how]
        if kind == commands.COMPACT_TO:
            return kind, [*self.span, self.before, commands.COMPACT, 0]
        if kind == commands.TRIM_SPANS:
            return kind, [[*self.span, self.before]]
        return kind, [[key, self.before] for key in self.keys]


class Lease(NamedTuple):
    """A lease on all keys of a group; the lease is used to read `key`."""

    name: str
    group: int
    key: bytes
    through: int

    @property
    def take(self) -> tuple[int, Any]:
        """Return kind and payload of the Raft entry; the leader adds the end of the lease."""
        start, end = span_of(self.group)
        return commands.TAKE_LEASE, [self.name, start, end, self.through]

    @property
    def release(self) -> tuple[int, Any]:
        """Return kind and payload of the Raft entry."""
        return commands.RELEASE_LEASE, [self.name]


def span_of(group: int) -> tuple[bytes, bytes]:
    """Return the span of all keys of a group."""
    return b"%d/" % group, b"%d0" % group


def draw(rng: random.Random, group: int, keys: int, last: int, key: bytes) -> Removal:
    """Draw a removal from a group of this many keys; `last` is the last known seq of `key`.

    Retention removes little, so that most acknowledged entries are still checked at the end.
    """
    how = rng.choice(tuple(_KINDS))
    before = last + 1
    if how == "trim":
        before = rng.randint(1, last + 1)
    elif how == "retention":
        before = rng.randint(1, last // 3 + 1)
    whole = tuple(b"%d/k%d" % (group, number) for number in range(keys))
    named = (key,) if how in ("trim", "delete") else whole
    return Removal(how, named, before, span_of(group))


class Removed:
    """The effect of all removals of a run together, per key."""

    def __init__(self) -> None:
        self._trims_asked: dict[bytes, int] = {}
        self._trims_done: dict[bytes, int] = {}
        self._compactions_asked: dict[bytes, int] = {}
        self._compactions_done: dict[bytes, int] = {}
        self.done_count = 0

    def asked(self, removal: Removal) -> None:
        """Note the first request of a removal: it may be applied from now on."""
        compacts = removal.how == "compact"
        _raise(self._compactions_asked if compacts else self._trims_asked, removal)

    def done(self, removal: Removal) -> None:
        """Note an acknowledged removal: every linearizable read from now on reflects it."""
        compacts = removal.how == "compact"
        _raise(self._compactions_done if compacts else self._trims_done, removal)
        self.done_count += 1

    def trimmed(self, key: bytes) -> int:
        """Return the seq below which no entry of the key is left."""
        return self._trims_done.get(key, 0)

    def compacted(self, key: bytes) -> int:
        """Return the seq below which at most one entry of the key is left."""
        return self._compactions_done.get(key, 0)

    def may_be_trimmed(self, key: bytes, seq: int) -> bool:
        """Whether this entry and all before it may be gone."""
        return seq < self._trims_asked.get(key, 0)

    def may_be_gone(self, key: bytes, seq: int, known: Sequence[int]) -> bool:
        """Whether this entry may be gone. `known` are the seqs that the key has or had."""
        below = self._compactions_asked.get(key, 0)
        return self.may_be_trimmed(key, seq) or any(seq < other < below for other in known)

    def touches(self, key: bytes) -> bool:
        """Whether any removal of the key was requested."""
        return key in self._trims_asked or key in self._compactions_asked


def _raise(floors: dict[bytes, int], removal: Removal) -> None:
    for key in removal.keys:
        floors[key] = max(floors.get(key, 0), removal.before)
