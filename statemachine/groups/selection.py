"""Which keys of a log a group reads: all keys, the keys of a prefix, or the keys of patterns."""

from collections.abc import Iterator, Sequence

from ...client.protocol.key_spans import prefix_span
from ...client.protocol.patterns import Patterns
from ..spans import Span, common, has


class Selection:
    """The keys of a group; by default all keys."""

    def __init__(self, prefix: bytes = b"", patterns: Patterns | None = None) -> None:
        self._patterns = patterns
        self._spans = [prefix_span(prefix)] if patterns is None else patterns.spans

    def within(self, span: Span) -> Iterator[Span]:
        """Yield the parts of a span outside of which the group reads no key."""
        for each in self._spans:
            part = common(each, span)
            if part is not None:
                yield part

    def positions(self, keys: Sequence[bytes]) -> Sequence[int]:
        """Return which of the keys, which lie in `within`, the group reads."""
        return range(len(keys)) if self._patterns is None else self._patterns.positions(keys)

    def matches(self, key: bytes) -> bool:
        """Whether the group reads the key."""
        if self._patterns is not None:
            return self._patterns.matches(key)
        return any(has(span, key) for span in self._spans)
