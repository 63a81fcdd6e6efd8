"""The values that the SDK takes and returns: entries, acks, positions, expectations.

A position is the *next seq wanted*. Spans are half-open. The first seq is 1, and 0 names no entry.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self

from .cursor_json import cursor_parts, cursor_text

Headers = Mapping[bytes, bytes]
GivenHeaders = Mapping[bytes, bytes | str] | Mapping[str, bytes | str]
"""Headers in an append: text is encoded as UTF-8."""


# A tuple, because C code makes a page of tuples in a quarter of the time of frozen dataclasses.
class Entry(NamedTuple):
    """One immutable entry of a key. `value` is None for a tombstone."""

    key: bytes
    seq: int
    timestamp_ms: int
    headers: Headers | None
    value: bytes | None
    snapshot: bool = False


class Ack(NamedTuple):
    """An append that a majority has on disk (S1).

    `duplicate`: an earlier attempt was already applied (S8); `seq` is then None when the range no
    longer knows it. `seen`: for each view that the append waited for, whether the view has
    acknowledged the entry; None without such views.
    """

    seq: int | None
    timestamp_ms: int | None
    duplicate: bool = False
    seen: Mapping[str, bool] | None = None


class Updated(NamedTuple):
    """An update that a majority has on disk (S1): the seq, time and value of its entry.

    `seq` and `timestamp_ms` are None when an earlier attempt was already applied (S8) and the range
    no longer knows them.
    """

    seq: int | None
    timestamp_ms: int | None
    value: bytes | None


class _Expect:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ANY: Final = _Expect("ANY")
"""No condition."""
ABSENT: Final = _Expect("ABSENT")
"""The key has no entry."""
Expect = _Expect | int
"""ANY, ABSENT, or the key's last seq."""


class Tail(NamedTuple):
    """Start n entries before the end."""

    n: int


class Timestamp(NamedTuple):
    """Start at the first entry whose timestamp is not below `ms`, Unix time in milliseconds."""

    ms: int


class Cursor(NamedTuple):
    """A position of a follow: per key when it follows keys, per span when it follows a prefix or a
    log.

    `spans` holds (start, end or None, next seq wanted), sorted by start and without overlaps.
    `to_json()` returns a cursor as text, and `Cursor.from_json(text)` the cursor again.
    """

    keys: Mapping[bytes, int] | None = None
    spans: tuple[tuple[bytes, bytes | None, int], ...] = ()

    def to_json(self) -> str:
        """Return one line of JSON, for `from_json`: a reader stores the text, and follows from
        there later. Keys are text, or base64 when they are not UTF-8."""
        return cursor_text(self.keys, self.spans)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Undo `to_json`. Raises InvalidArgument with the reason when the text is not a cursor."""
        return cls(*cursor_parts(text))


class CursorInfo(NamedTuple):
    """A cursor that the ranges of a log keep.

    `holder`: the highest number of a reader that holds it. `next`: the lowest position of a span.
    `keys`: how many keys have a position of their own.
    """

    name: str
    holder: int
    next: int
    keys: int


class GroupInfo(NamedTuple):
    """A consumer group of a log, as `AsyncLog.consume` created it."""

    id: int
    """No other group ever gets this id."""
    name: str
    prefix: bytes
    """The group reads the keys with this prefix."""
    separator: bytes
    """The separator of the levels of keys, for `patterns`."""
    patterns: tuple[bytes, ...]
    """The group reads the keys that match; empty: all keys with the prefix."""
    max_deliveries: int
    on_dead: str
    lease_ms: int
    begin: str
    """`earliest`, `latest` or `time`."""
    begin_ms: int | None
    """With `time`: the time, in Unix time in milliseconds."""
    waits: bool
    """Whether retention keeps entries that the group has not done."""
    created_ms: int
    ordering: str = "key"
    """`key`: the entries of a key come in order. `none`: in any order, to many consumers."""


class ViewInfo(NamedTuple):
    """A view of a log, as `AsyncLog.register_view` registered it."""

    id: int
    """No other view ever gets this id."""
    name: str
    group: str | None
    """The consumer group of the view; None: the view is of a cursor."""
    cursor: str | None
    prefix: bytes
    """The view has the keys with this prefix."""
    separator: bytes
    """The separator of the levels of keys, for `patterns`."""
    patterns: tuple[bytes, ...]
    """The view has the keys that match; empty: all keys with the prefix."""
    policy: str
    """`wait` or `live`."""
    created_ms: int


class GroupLag(NamedTuple):
    """The work that a consumer group has not done; each range is exact at its answer's index."""

    entries: int
    bytes: int
    """Bytes of the keys and values of these entries."""
    oldest_ms: int | None
    """The timestamp of the oldest of these entries; None: everything is done."""
    waiting: int
    """Keys with such entries that no consumer has, and that are not parked."""
    in_flight: int
    """Keys with such entries that a consumer has."""
    parked: int
    """Keys that wait for `retry` or `skip`."""
    begun: bool
    """Whether the group has begun on all keys; entries of other keys do not count."""
    consumers: int
    """Consumers that ask a range now: the highest number of all ranges."""


class GroupKey(NamedTuple):
    """A key of a consumer group that is parked, or that a consumer has."""

    key: bytes
    position: int
    """The next seq wanted."""
    deliveries: int
    """Failed deliveries of the next entry."""
    parked: bool
    error: str
    """The last error of a consumer."""


class GroupDecision(NamedTuple):
    """Something that was decided about keys of a consumer group, other than an acknowledgement."""

    at_ms: int
    """When, by the clock of the range, in Unix time in milliseconds."""
    what: str
    """`parked`, `rejected`, `retried`, `skipped`, `dead letter`, `reset` or `lost`."""
    who: str
    """The principal; empty for the cluster itself."""
    start: bytes
    """The first key concerned."""
    end: bytes | None
    """The keys below it are concerned; None: all keys from `start` on."""
    begin: int
    """The seqs in [begin, through) are concerned."""
    through: int
    why: str
    """The error of the consumer, or the reason."""


class Unchanged:
    """The type of UNCHANGED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
"""Tells `alter_log` to leave a policy unchanged."""

Start = int | Literal["earliest", "latest", "snapshot"] | Tail | Timestamp
"""`snapshot`: the key's newest entry marked snapshot=True; its first when there is none."""
End = int | Timestamp | None
Pattern = bytes | str | Iterable[bytes | str]
"""A pattern of keys, or a list of patterns; see `protocol.patterns`."""
FollowStart = Start | Mapping[bytes, int] | Cursor
CursorStart = int | Literal["earliest", "latest"] | Timestamp
"""Where a kept cursor begins."""
GroupStart = Literal["earliest", "latest"] | Timestamp
"""Where a consumer group begins."""
Ordering = Literal["key", "none"]
ViewPolicy = Literal["wait", "live"]
"""Whether appends wait for a view of a group while no consumer of the group lives."""
Consistency = Literal["linearizable", "prefix"]


@dataclass(frozen=True, slots=True)
class FollowBatch:
    """The entries of one push. `cursor` is the position after the last entry of the batch.

    `caught_up`: the feed has everything acknowledged, as far as the serving members know. It
    becomes false, in a batch without entries, when a member is cut off from the others or is lost;
    the feed then continues at another member. `staleness_ms`: every entry of the range that the
    batch lacks was acknowledged within this many milliseconds, plus the time that messages took
    between nodes; None: unknown to the member. With `caught_up` it is under the election timeout
    when a leader serves the feed, and at most 3 seconds elsewhere.
    """

    entries: tuple[Entry, ...]
    caught_up: bool
    cursor: Cursor
    staleness_ms: int | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
