"""The rows of a cursor: positions of spans of keys and of single keys, as requests carry them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .appends import checked_key
from .protocol.key_spans import Span
from .protocol.types import Cursor
from .span_positions import Position, least


@dataclass(slots=True, repr=False)
class Rows:
    """Spans and keys with positions, each in the order of keys."""

    spans: list[Position] = field(default_factory=list)
    keys: list[tuple[bytes, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.spans or self.keys)

    @property
    def first(self) -> bytes:
        """The first key that the rows name."""
        return min([row[0] for row in self.spans[:1]] + [key for key, _ in self.keys[:1]])

    def within(self, start: bytes, end: bytes | None) -> "Rows":
        """Return the parts of the rows with keys in [start, end)."""
        return Rows(
            [cut for row in self.spans if (cut := of_span(row, start, end))],
            [row for row in self.keys if row[0] >= start and (end is None or row[0] < end)],
        )

    def head(self, spans_max: int, keys_max: int) -> tuple["Rows", "Rows"]:
        """Return the rows of one request, and the other rows."""
        return (
            Rows(self.spans[:spans_max], self.keys[:keys_max]),
            Rows(self.spans[spans_max:], self.keys[keys_max:]),
        )

    def joined(self, later: "Rows") -> "Rows":
        """Return these rows and then the later ones."""
        return Rows([*self.spans, *later.spans], [*self.keys, *later.keys])


def of_span(row: Position, start: bytes, end: bytes | None) -> Position | None:
    """Return the part of a row with keys in [start, end), or None without a part."""
    low, high = max(row[0], start), least(row[1], end)
    return (low, high, row[2]) if high is None or low < high else None


def of_keys(keys: Iterable[bytes]) -> list[Span]:
    """Return a span for each key alone, in order."""
    return [(key, key + b"\0") for key in sorted(set(keys))]


def without_seams(spans: Iterable[Span]) -> list[Span]:
    """Return the same keys without seams between neighbours: a follow joins the spans there, and
    its positions then have no bound there. The spans are disjoint, in the order of keys."""
    found: list[Span] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def of_position(position: Cursor | Mapping[bytes, int] | Mapping[str, int]) -> Rows:
    """Return the rows that commit a position.

    A follow whose readers were joined has pieces of single keys that are ahead of the keys around
    them. Such a piece becomes the row of its key, and the span around the key stays whole.
    """
    if not isinstance(position, Cursor):
        return Rows([], sorted((checked_key(key), next_) for key, next_ in position.items()))
    if position.keys is not None:
        return Rows([], sorted(position.keys.items()))
    rows = Rows()
    for start, end, next_ in sorted(position.spans, key=lambda row: row[0]):
        before = rows.spans[-1] if rows.spans and rows.spans[-1][1] == start else None
        if before is not None and end == start + b"\0" and next_ > before[2]:
            rows.keys.append((start, next_))
            rows.spans[-1] = (before[0], end, before[2])
        elif before is not None and next_ == before[2]:
            rows.spans[-1] = (before[0], end, next_)
        else:
            rows.spans.append((start, end, next_))
    return rows


def missing(found: Sequence[Position], spans: Sequence[Span]) -> Span | None:
    """Return a part of the spans that no row covers, or None. Both are in the order of keys."""
    for start, end in spans:
        at: bytes | None = start
        for first, last, _ in found:
            if at is not None and first <= at and (last is None or at < last):
                at = last
        if at is not None and (end is None or at < end):
            return at, end
    return None
