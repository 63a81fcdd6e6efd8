"""What a leader knows in memory of one key with undone entries."""

from enum import Enum

from ...client.protocol.types import Headers
from ...statemachine.page import Page
from ...statemachine.room import ENTRY_BYTES, headers_bytes


class Place(Enum):
    """Where a line is. Each line is in exactly one place."""

    READY = "ready"
    """The line has entries, and waits for a consumer."""
    UNREAD = "unread"
    """The line has no entries in memory, and waits for a read of the key."""
    DELAYED = "delayed"
    LEASED = "leased"


class Line:
    """A key with undone entries below the reading position of its keys.

    The entries in memory are the oldest undone entries of the key, without a gap. Undone entries
    that are not in memory have seqs below `unread_to`, and above those in memory. A line that is
    leased has in memory only what follows the entries below `given_to`, which its consumer has.
    """

    __slots__ = (
        "first", "given_to", "headers", "key", "place", "seqs", "size", "timestamps", "unread_to",
        "values",
    )  # fmt: skip

    def __init__(self, key: bytes, first: int, place: Place, unread_to: int = 0) -> None:
        self.key = key
        self.first = first
        """No undone entry of the key has a seq below this one."""
        self.place = place
        self.unread_to, self.given_to = unread_to, 0
        """`given_to`: up to where its consumer has all that was read of the key; 0: not all."""
        self.seqs: list[int] = []
        self.timestamps: list[int] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] | None = None
        """By seq."""
        self.size = 0
        """The most bytes of the entries in a frame."""

    @property
    def has_unread(self) -> bool:
        """Whether there may be undone entries that are not in memory."""
        return self.unread_to > (self.seqs[-1] + 1 if self.seqs else self.first)

    def has_from(self, position: int) -> bool:
        """Whether there may be undone entries from the position on."""
        return self.unread_to > position or bool(self.seqs and self.seqs[-1] >= position)

    def entry_bytes(self, at: int) -> int:
        """Return the most bytes of an entry in a frame."""
        headers = self.headers and self.headers.get(self.seqs[at])
        size = ENTRY_BYTES + len(self.key) + len(self.values[at] or b"")
        return size + headers_bytes(headers) if headers else size

    def moved(self, place: Place, first: int | None = None) -> None:
        """Note the place, and where the key's undone entries begin."""
        self.place, self.first = place, self.first if first is None else first

    def given(self, first: int, through: int) -> None:
        """Note that a consumer has the entries from `first` up to `through`, which are no longer in
        memory; 0: not known which."""
        self.place, self.first = Place.LEASED, first
        self.given_to = through if self.unread_to == through else 0

    def add(self, seq: int, timestamp_ms: int, value: bytes | None, headers: Headers | None) -> int:
        """Add the next entry; return its size."""
        self.seqs.append(seq)
        self.timestamps.append(timestamp_ms)
        self.values.append(value)
        size = ENTRY_BYTES + len(self.key) + (0 if value is None else len(value))
        if headers:
            self.headers = {**(self.headers or {}), seq: headers}
            size += headers_bytes(headers)
        self.size += size
        return size

    def add_page(self, page: Page) -> int:
        """Add a page of the key, which begins behind the entries in memory; return its size."""
        return sum(
            self.add(seq, page.timestamps[at], page.values[at], page.headers.get(at))
            for at, seq in enumerate(page.seqs)
        )

    def unread_until(self, to: int) -> None:
        """Note that undone entries below `to` may exist that are not in memory."""
        self.unread_to = max(self.unread_to, to)

    def all_read(self) -> None:
        """Note that all undone entries are in memory, as far as the keys are read."""
        self.unread_to = 0

    def drop(self) -> int:
        """Forget the entries in memory, which a later read finds again; return their size."""
        size = self.size
        if self.seqs:
            self.unread_to = max(self.unread_to, self.seqs[-1] + 1)
            self.seqs, self.timestamps, self.values = [], [], []
            self.headers, self.size = None, 0
        return size

    def pass_to(self, position: int) -> int:
        """Forget the entries below the position of the key; return their size."""
        self.first = max(self.first, position)
        if not self.seqs or self.seqs[0] >= position:
            return 0
        before, kept = self.size, [at for at, seq in enumerate(self.seqs) if seq >= position]
        self.seqs = [self.seqs[at] for at in kept]
        self.timestamps = [self.timestamps[at] for at in kept]
        self.values = [self.values[at] for at in kept]
        self.headers = {seq: each for seq, each in (self.headers or {}).items() if seq >= position}
        self.size = sum(
            ENTRY_BYTES + len(self.key) + len(value or b"") + headers_bytes(self.headers.get(seq))
            for seq, value in zip(self.seqs, self.values, strict=True)
        )
        return before - self.size
