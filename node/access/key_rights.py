"""The keys of one log for which a principal has a permission: spans, and keys that match patterns.

A pattern of a token allows single keys that match the pattern. It allows a read of many keys only
if the read has patterns too, and each of these lies within a pattern of the token: a read of a span
would reach keys that do not match. Such a read goes over keys that begin as the token's patterns
begin, and over no others. A pattern with `>` at its end and no other wildcard is a span.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from ...client.protocol.errors import InvalidArgument, LimitExceeded
from ...client.protocol.key_spans import KeySpans, Span
from ...client.protocol.patterns import Patterns, patterns_of
from ...client.protocol.scopes import Scope


class KeyRights:
    """Spans of keys, and patterns of keys beside them."""

    __slots__ = ("patterns", "spans")

    def __init__(self, spans: KeySpans, patterns: Sequence[Patterns] = ()) -> None:
        self.spans = spans
        self.patterns = patterns

    @classmethod
    def of_scopes(cls, scopes: Iterable[Scope], hierarchy: bytes) -> Self:
        """Return the keys that the scopes allow in a log with this hierarchy."""
        spans: list[Span] = []
        patterns: list[Patterns] = []
        for scope in scopes:
            if not scope.by_pattern:
                spans.append(scope.span())
                continue
            found = _in_log(scope.keys, hierarchy)
            if found is None:
                continue
            whole = found.whole_spans
            if whole is None:
                patterns.append(found)
            else:
                spans += whole
        return cls(KeySpans(spans), tuple(patterns))

    @property
    def has_no_key(self) -> bool:
        """Whether there is no such key."""
        return not self.spans.rows and not self.patterns

    @property
    def has_every_key(self) -> bool:
        """Whether the spans have every key."""
        return self.spans.has_every_key

    @property
    def around(self) -> KeySpans:
        """The spans, and the spans of all keys that begin as the patterns begin."""
        if not self.patterns:
            return self.spans
        begins = (span for each in self.patterns for span in each.spans)
        return KeySpans((*self.spans.rows, *begins))

    def covers(self, start: bytes, end: bytes | None) -> bool:
        """Return whether the principal has every key from `start` on and below `end`."""
        return self.spans.covers(start, end) or (end == start + b"\0" and self.has(start))

    def covers_matching(self, asked: Patterns) -> bool:
        """Return whether the principal has every key that matches."""
        return asked.lies_within(self.patterns, self.spans.covers)

    def has(self, key: bytes) -> bool:
        """Return whether the principal has the key."""
        return self.spans.has(key) or any(each.matches(key) for each in self.patterns)

    def has_all(self, keys: Sequence[bytes]) -> bool:
        """Return whether the principal has every key. Each pattern goes over the keys in C."""
        if self.spans.has_all(keys):
            return True
        rest = keys
        for each in self.patterns:
            rest = each.others(rest)
        return len(rest) < len(keys) and self.spans.has_all(rest)


def _in_log(pattern: bytes, hierarchy: bytes) -> Patterns | None:
    """Return the pattern of a token in a log; None where the log has no such pattern."""
    if not hierarchy:
        return None
    try:
        return patterns_of(hierarchy, pattern)
    except (InvalidArgument, LimitExceeded):
        return None
