"""A key that a consumer of a group has: its lease, and the entries of its batch."""

from itertools import accumulate
from typing import Final

from .protocol import limits
from .protocol.entry_rows import entries_in
from .protocol.errors import RemoteProtocolError
from .protocol.types import Entry, Headers

_SURE: Final = 0.9
"""The share of a lease that is over only after the leader's clock has run a tenth faster."""


Unit = tuple[bytes, int]
"""A key and 0, or without an order a key and the seq of an entry."""


class Columns:
    """The entries of one answer, of all its keys."""

    def __init__(
        self, seqs: list[int], timestamps: list[int], values: list[bytes | None],
        headers: dict[int, Headers],
    ) -> None:  # fmt: skip
        if not len(seqs) == len(timestamps) == len(values):
            raise RemoteProtocolError("an answer has columns of entries of different lengths")
        sizes = (0 if value is None else len(value) for value in values)
        self.sizes = list(accumulate(sizes, initial=0))
        """The bytes of the values before each entry, and of all values."""
        self.seqs = seqs
        self.timestamps = timestamps
        self.values = values
        self.headers = headers


class Held:
    """A lease of a consumer. The entries are those of `columns` from `first` on, below `end`."""

    __slots__ = (
        "asked_s", "columns", "deliveries", "end", "fence", "first", "is_ended", "is_handed",
        "is_lost", "key", "size", "taken_s", "token", "unit",
    )  # fmt: skip

    def __init__(
        self, key: bytes, token: int, deliveries: int, columns: Columns, first: int, end: int,
        taken_s: float, asked_s: float, *, fence: int, by_entry: bool = False,
    ) -> None:  # fmt: skip
        self.key = key
        self.unit: Unit = (key, columns.seqs[first] if by_entry else 0)
        """What the consumer has: the key, or without an order the entry."""
        self.token, self.fence = token, fence
        """`fence`: that of the last leader that gave the key, or let the consumer keep the key."""
        self.deliveries = deliveries
        self.columns = columns
        self.first, self.end = first, end
        self.taken_s = taken_s
        """When the answer came, on the client's clock."""
        self.asked_s = asked_s
        """When the request was sent that made the lease, or the last one that extended it."""
        self.size = len(key) + columns.sizes[end] - columns.sizes[first]
        self.is_handed = False
        """Whether the caller has the batch."""
        self.is_lost = False
        """Whether the lease has ended before the batch was settled."""
        self.is_ended = False
        """Whether the consumer no longer has the key."""

    def surely_lasts(self, now: float, lease_s: float) -> bool:
        """Whether the lease lasts by the clocks of both sides, so that nobody else had the key."""
        return now < self.asked_s + _SURE * lease_s

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def entries(self) -> list[Entry]:
        """The entries as objects."""
        first, end, columns = self.first, self.end, self.columns
        headers = {}
        if columns.headers:
            headers = {at - first: found for at, found in columns.headers.items()
                       if first <= at < end}  # fmt: skip
        return entries_in(
            [self.key] * (end - first), columns.seqs[first:end], columns.timestamps[first:end],
            columns.values[first:end], headers, (),
        )  # fmt: skip

    @property
    def first_seq(self) -> int:
        """The seq of the first entry."""
        return self.columns.seqs[self.first]

    @property
    def last_seq(self) -> int:
        """The seq of the last entry."""
        return self.columns.seqs[self.end - 1]

    def acked(self, position: int) -> None:
        """Note that the entries below the position are done. The last entry stays readable."""
        if position > self.last_seq:
            self.is_ended = True
            return
        seqs = self.columns.seqs
        while seqs[self.first] < position:
            self.first += 1

    def over(self, *, lost: bool = False) -> None:
        """Note that the consumer no longer has the key."""
        self.is_lost = self.is_lost or (lost and not self.is_ended)
        self.is_ended = True


def told(error: str) -> str:
    """Return the beginning of an error as the range keeps it."""
    text = "".join(each if each.isprintable() else " " for each in error)
    return text[: limits.group_text_chars_max].encode("utf-8", "replace").decode()
