"""Cursors of a range: named positions of readers, kept as replicated rows.

A position is the next seq wanted: everything below it is done. A cursor has a position for each
span of keys, and above it positions of single keys. Each span also names its holder: the number of
the reader that opened the cursor there last. Only the holder commits, so an older reader cannot
move the position of a newer reader. Holders and positions belong to keys and follow them through
splits and merges of ranges. The seqs of merged ranges are unrelated, so each span keeps its own
position (x2.20).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..client.protocol.errors import Fenced, LimitExceeded, LognodeError, NotFound
from .rules import Rules, of_level
from .span_map import Steps
from .spans import Span, has, rows_in

SpanPosition = tuple[bytes, bytes | None, int]
"""The start and the end of a span, and its position."""


class Held(NamedTuple):
    """The holder of a span of keys, and the span's position."""

    holder: int
    next: int


NOBODY: Final = Held(0, 0)
"""The cursor does not exist for these keys."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """One cursor in a range. Never changed, only replaced."""

    spans: Steps[Held]
    keys: Mapping[bytes, int] = field(default_factory=dict)
    """Positions of keys above the positions of their spans."""

    @property
    def held(self) -> int:
        """The number of spans that have a holder."""
        return len(self.spans.values) - self.spans.values.count(NOBODY)

    def position(self, key: bytes) -> int:
        """Return the position of the key; 0: the cursor does not exist for the key."""
        return self.keys.get(key) or self.spans.at(key).next

    def clipped(self, start: bytes, end: bytes | None) -> "Cursor | None":
        """Return the part for the keys in [start, end), or None without a part."""
        spans = self.spans.clipped(start, end, NOBODY)
        return Cursor(spans, rows_in(self.keys, (start, end))) if spans.values != [NOBODY] else None

    def above_spans(self) -> "Cursor":
        """Return the cursor without the positions of keys that their spans have reached."""
        at = self.spans.at
        return Cursor(
            self.spans, {key: next_ for key, next_ in self.keys.items() if next_ > at(key).next}
        )

    def to_wire(self) -> list[Any]:
        """Return the cursor as tables store it."""
        return [list(self.spans.starts), [list(held) for held in self.spans.values],
                dict(self.keys)]  # fmt: skip

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Cursor":
        """Undo `to_wire`."""
        starts, values, keys = body
        return cls(Steps(starts, [Held(*value) for value in values]), dict(keys))


_NEW: Final = Cursor(Steps([b""], [NOBODY]))


class Cursors:
    """The cursors of a range of keys. A refused change has changed nothing."""

    def __init__(self, found: Mapping[str, Cursor] | None = None) -> None:
        self.rules: Rules = of_level(1)
        self.found: dict[str, Cursor] = dict(found or {})

    # Changes.

    def open(self, name: str, holder: int, spans: Sequence[SpanPosition]) -> LognodeError | None:
        """Make `holder` the holder of the spans; keys without a position begin at that of their
        span.

        Refused with Fenced where a key has a higher holder, and with LimitExceeded.
        """
        cursor = self.found.get(name, _NEW)
        refused = _fenced(name, holder, _over(cursor, [span[:2] for span in spans]))
        if refused is not None:
            return refused
        steps = cursor.spans
        for start, end, first in spans:
            steps = steps.raised(start, end, Held(holder, first), _opened)
        return self._replace(name, Cursor(steps, cursor.keys))

    def commit(
        self, name: str, holder: int, spans: Sequence[SpanPosition],
        keys: Sequence[tuple[bytes, int]],
    ) -> LognodeError | None:  # fmt: skip
        """Raise positions; a position that is higher already stays.

        Refused with Fenced unless `holder` holds all these keys, with NotFound where the cursor
        does not exist for some of them, and with LimitExceeded.
        """
        cursor = self.found.get(name, _NEW)
        over = _over(cursor, [span[:2] for span in spans])
        over += [cursor.spans.at(key) for key, _ in keys]
        if NOBODY in over:
            return NotFound(f"cursor {name!r} does not exist here; open the cursor", cursor=name)
        if any(held.holder != holder for held in over):
            return _refusal(name, over)
        steps = cursor.spans
        for start, end, next_ in spans:
            steps = steps.raised(start, end, Held(holder, next_), max)
        own = {key: next_ for key, next_ in keys if next_ > cursor.position(key)}
        raised = Cursor(steps, {**cursor.keys, **own})
        return self._replace(name, raised.above_spans() if spans else raised)

    def set(self, name: str, holder: int, spans: Sequence[SpanPosition]) -> LognodeError | None:
        """Set positions, which may go back, and make `holder` the holder of the spans.

        Keys in the spans lose their own positions. Refused as `open` is.
        """
        cursor = self.found.get(name, _NEW)
        refused = _fenced(name, holder, _over(cursor, [span[:2] for span in spans]))
        if refused is not None:
            return refused
        steps, keys = cursor.spans, dict(cursor.keys)
        for start, end, next_ in spans:
            steps = steps.raised(start, end, Held(holder, next_), _latter)
            for key in rows_in(keys, (start, end)):
                del keys[key]
        return self._replace(name, Cursor(steps, keys))

    def delete(self, name: str, span: Span) -> None:
        """Forget the cursor for the keys in the span."""
        cursor = self.found.get(name)
        if cursor is None:
            return
        spans = cursor.spans.raised(*span, NOBODY, _latter)
        if spans.values == [NOBODY]:
            del self.found[name]
        else:
            keys = {key: next_ for key, next_ in cursor.keys.items() if not has(span, key)}
            self.found[name] = Cursor(spans, keys)

    def _replace(self, name: str, cursor: Cursor) -> LognodeError | None:
        """Replace a cursor, unless the range would then have more than its rules allow."""
        before, rules = self.found.get(name), self.rules
        after = {**self.found, name: cursor}
        old = before or _NEW
        for limit, grows, count, allowed in (
            ("cursors_max", before is None, len(after), rules.cursors_max),
            ("cursor_spans_max", cursor.held > old.held,
             sum(each.held for each in after.values()), rules.cursor_spans_max),
            ("cursor_keys_max", len(cursor.keys) > len(old.keys),
             sum(len(each.keys) for each in after.values()), rules.cursor_keys_max),
        ):  # fmt: skip
            if grows and count > allowed:
                return _exceeded(limit, count, allowed)
        self.found = after
        return None

    # What is stored and shown.

    def told(self, name: str, spans: Iterable[Span], keys: Iterable[bytes]) -> list[Any]:
        """Return the rows that a command may have changed, for the hash of effects."""
        cursor = self.found.get(name, _NEW)
        return [
            len(self.found), cursor.held, len(cursor.keys),
            [list(row) for span in spans for row in cursor.spans.within(*span)],
            [cursor.position(key) for key in keys],
        ]  # fmt: skip

    def page(self, name: str, span: Span, limit: int) -> tuple[list[Any], list[Any], bytes | None]:
        """Return the spans and keys with positions in the span, and where the page ends.

        Each span is (start, end, holder, position), each key (key, position). The page has at most
        `limit` spans and as many keys, in their order; None: it has all rows.
        """
        cursor = self.found.get(name)
        if cursor is None:
            return [], [], None
        rows = [row for row in cursor.spans.within(*span) if row[2] != NOBODY]
        keys = sorted(rows_in(cursor.keys, span).items())
        # A span and a key may begin alike, so a page may have twice as many rows.
        until = sorted({row[0] for row in rows} | {key for key, _ in keys})[limit : limit + 1]
        end = until[0] if until else span[1]
        cut = [(first, _lower(last, end), *held) for first, last, held in rows
               if end is None or first < end]  # fmt: skip
        own = [row for row in keys if end is None or row[0] < end]
        return cut, own, until[0] if until else None

    def listed(self, span: Span, after: str | None, limit: int) -> list[tuple[str, int, int, int]]:
        """Return at most `limit` cursors with a position in the span, by name, behind `after`.

        Each has its name, its highest holder, its lowest position, and the number of keys with a
        position of their own.
        """
        found: list[tuple[str, int, int, int]] = []
        for name in sorted(name for name in self.found if after is None or name > after):
            part = self.found[name].clipped(*span)
            if part is not None:
                held = [each for each in part.spans.values if each != NOBODY]
                holder, next_ = max(each.holder for each in held), min(each.next for each in held)
                found.append((name, holder, next_, len(part.keys)))
                if len(found) == limit:
                    break
        return found

    def to_wire(self) -> dict[str, Any]:
        """Return the cursors as tables store them."""
        return {name: cursor.to_wire() for name, cursor in self.found.items()}

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> "Cursors":
        """Undo `to_wire`."""
        return cls({name: Cursor.from_wire(cursor) for name, cursor in body.items()})


def clipped(table: Mapping[str, Any], span: Span) -> dict[str, Any]:
    """Return the part of a table of cursors that concerns the keys in the span."""
    parts = {name: Cursor.from_wire(body).clipped(*span) for name, body in table.items()}
    return {name: part.to_wire() for name, part in parts.items() if part is not None}


def united(parents: Sequence[tuple[Span, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return one table of cursors: each parent's positions hold for its own keys."""
    names = dict.fromkeys(name for _, table in parents for name in table)
    found = {}
    for name in names:
        parts = [(span, Cursor.from_wire(table[name]).clipped(*span))
                 for span, table in parents if name in table]  # fmt: skip
        rows = [row for span, part in parts if part for row in part.spans.within(*span)]
        keys = {key: next_ for _, part in parts if part for key, next_ in part.keys.items()}
        found[name] = Cursor(Steps.of(rows, NOBODY), keys).to_wire()
    return found


def _opened(old: Held, new: Held) -> Held:
    return Held(new.holder, old.next or new.next)


def _latter(_old: Held, new: Held) -> Held:
    return new


def _lower(one: bytes | None, other: bytes | None) -> bytes | None:
    return min((end for end in (one, other) if end is not None), default=None)


def _over(cursor: Cursor, spans: Sequence[Span]) -> list[Held]:
    """Return the holders and positions of all keys of the spans."""
    return [held for span in spans for _, _, held in cursor.spans.within(*span)]


def _fenced(name: str, holder: int, over: Sequence[Held]) -> Fenced | None:
    """Return the refusal of a new holder that is below the holder of a span."""
    return _refusal(name, over) if any(held.holder > holder for held in over) else None


def _refusal(name: str, over: Sequence[Held]) -> Fenced:
    return Fenced(
        f"another reader has opened cursor {name!r} since; open the cursor again to go on here",
        cursor=name, holder=max(held.holder for held in over),
    )  # fmt: skip


def _exceeded(limit: str, value: int, allowed: int) -> LimitExceeded:
    what = {"cursors_max": "cursors", "cursor_spans_max": "spans with a cursor's position",
            "cursor_keys_max": "keys with a cursor's position"}[limit]  # fmt: skip
    return LimitExceeded(
        f"the range would have {value:,} {what}; at most {allowed:,} are allowed. Delete cursors "
        "that no reader uses",
        limit=limit, value=value, allowed=allowed,
    )  # fmt: skip
