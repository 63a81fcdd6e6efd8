"""Messages between the members of groups: consensus, rounds of read confirmations, and pings.
`raft.messages`, `raft.read_rounds` and `raft.liveness` define their meaning, and take their
validation from here.
"""

import random
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

from . import limits
from .kinds import Array, Binary, Column, Fault, Integer, Kind, Nullable, Row, Variant, too_large

FINGERPRINT: Final = Binary(64)
_COMMAND: Final = frozenset({b"\0", b"\1"})
"""The first byte of a command: a client's command, or a no-op. The library's other two,
membership and version, never travel (holes 17 and 18)."""
_first_byte: Final = itemgetter(slice(1))
_NUMBER: Final = Integer()
"""Terms, indexes, epochs and rounds count up from 0."""


class Entries(Kind):
    """An array of entries, `[term, command]` each. No Python runs per entry, since there may be
    many."""

    types = frozenset({list, tuple})

    def check(self, value: Any, name: str) -> Any:
        if not isinstance(value, list | tuple) or len(value) > limits.raft_parts_max:
            self.refuse(value, name)
        if not value:
            return value
        if not self.types.issuperset(map(type, value)) or set(map(len, value)) != {2}:
            self.refuse(value, name)
        terms, commands = zip(*value, strict=True)
        if not (
            {int}.issuperset(map(type, terms))
            and 0 <= min(terms) <= max(terms) <= _NUMBER.high
            and {bytes}.issuperset(map(type, commands))
            and _COMMAND.issuperset(map(_first_byte, commands))
        ):
            self.refuse(value, name)
        return value

    def text(self) -> str:
        return (
            f"an array of at most {limits.raft_parts_max:,} entries [term, command]: an integer of "
            "63 bits, and bytes that begin with 0, or with 1 for an entry without a command"
        )

    def sample(self, rng: random.Random) -> list[list[Any]]:
        return [[0, rng.choice((b"\0command", b"\1"))] for _ in range(rng.choice((0, 1, 3)))]

    def beyond(self) -> Iterator[Fault]:
        entries: tuple[Any, ...] = (
            [], [1], [1, b"\0", 0], [-1, b"\0"], [1 << 63, b"\0"], [True, b"\0"], [1.0, b"\0"],
            [1, b""], [1, b"\2"], [1, "\0"], [1, None], {}, "ab", 5, None,
        )  # fmt: skip
        for entry in entries:
            yield f"an entry {entry!r}", [[1, b"\0"], entry]
        yield "more entries than allowed", [[1, b"\0"]] * (limits.raft_parts_max + 1)


MESSAGE: Final = Variant({
    1: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, prev_index=_NUMBER, prev_term=_NUMBER,
           commit=_NUMBER, entries=Entries()),
    2: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, next_index=_NUMBER),
    3: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, next_index=_NUMBER, last_index=_NUMBER,
           last_term=_NUMBER),
    4: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, last_index=_NUMBER, last_term=_NUMBER),
    5: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER),
    6: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, round=_NUMBER, last_index=_NUMBER,
           last_term=_NUMBER),
    7: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, round=_NUMBER),
    8: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER),
    9: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, base_index=_NUMBER, base_term=_NUMBER),
    10: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER),
    11: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, commit=_NUMBER),
    12: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, round=_NUMBER, last_index=_NUMBER,
            version=_NUMBER),
    13: Row(kind=_NUMBER, term=_NUMBER, epoch=_NUMBER, round=_NUMBER),
})  # fmt: skip
"""A message of one group. The kinds are those of `raft.messages`."""


class Rounds(Array):
    """An array of rows whose last elements are arrays, of at most `raft_parts_max` elements
    together, as the text of the operation says. The sum is taken before the first element is
    checked: 520,000 numbers, which 128 rows may have, take a turn of 30 ms."""

    def check(self, value: Any, name: str) -> list[Any]:
        if isinstance(value, list | tuple) and len(value) <= self.high:
            lasts = [row[-1] for row in value if isinstance(row, list | tuple) and row]
            parts = sum(len(last) for last in lasts if isinstance(last, list | tuple))
            if parts > limits.raft_parts_max:
                too_large(name, parts, "elements in all", limits.raft_parts_max, "raft_parts_max")
        return super().check(value, name)


_READ_ROUND: Final = Row(
    epoch=_NUMBER, round=_NUMBER,
    items=Array(
        Nullable(Row(range=_NUMBER, generation=_NUMBER, fingerprint=FINGERPRINT, term=_NUMBER)),
        limits.raft_parts_max,
    ),
)  # fmt: skip
_READ_ANSWER: Final = Row(
    epoch=_NUMBER, round=_NUMBER, numbers=Column(int, limits.raft_parts_max, nil=True)
)
READ_ROUNDS: Final = Rounds(_READ_ROUND, limits.raft_items_max)
READ_ANSWERS: Final = Rounds(_READ_ANSWER, limits.raft_items_max)
PING: Final = Row(
    version=_NUMBER, seen=_NUMBER,
    left=Array(Row(range=_NUMBER, generation=_NUMBER), limits.raft_left_max),
)  # fmt: skip
