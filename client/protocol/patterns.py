r"""Patterns of keys: choose the keys of a hierarchy by their levels.

The separator of a log's hierarchy cuts each key into levels, as `bytes.split` does: with the
separator `/` the key `eu/7/orders` has three levels, and the key `eu/` has two levels, of which the
second level is empty. A log without a hierarchy has keys of one level. A pattern has levels too:

    *           as a level: any one level, which may be empty
    prefix*     one level that begins with `prefix`
    >           as the last level: all levels that follow, at least one
    !PATTERN    excludes the keys that match PATTERN

A key matches a list of patterns if the key matches a pattern of the list and none of the excluding
patterns. A list that only excludes begins with all keys. Every other byte stands for itself. A
backslash makes a literal byte of `*`, `>`, `!` or a backslash: `\*`, `\>`, `\!`, `\\`.

The keys before the first wildcard of a pattern are a span, so that a reader reads only this span.
Each list becomes one regular expression without backtracking: the time of a match is linear in the
bytes of the key, for every pattern. The bounds below keep making the expression under 5 ms.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import compress, filterfalse
from typing import Final, Self

from . import limits
from .characters import is_printable
from .errors import InvalidArgument, LimitExceeded
from .key_spans import Span, prefix_span

SPECIAL: Final = b"*>!\\"
"""The bytes that a backslash makes literal. A separator has none of these bytes."""
_CACHED_MAX: Final = 64
"""Lists of patterns whose expressions a process keeps."""


class Patterns:
    """A list of patterns with the separator of a log's hierarchy; b"": no hierarchy.

    Made by `patterns_of`.
    """

    __slots__ = ("_excluded", "_is_match", "_wanted", "given", "prefixes", "separator")

    def __init__(self, separator: bytes, given: tuple[bytes, ...]) -> None:
        self.separator = separator
        self.given = given
        """The patterns as they were given."""
        wanted: list[_Pattern] = []
        excluded: list[_Pattern] = []
        for each in given:
            if each.startswith(b"!"):
                excluded.append(_parsed(each, each[1:], separator))
            else:
                wanted.append(_parsed(each, each, separator))
        self._wanted, self._excluded = wanted, excluded
        self.prefixes = _outermost(each.prefix for each in wanted) if wanted else (b"",)
        """The literal beginnings of the matching keys, in order; none begins with another."""
        expression = b"|".join(each.expression for each in wanted) or b".*+"
        if excluded:
            expression = b"(?!(?:%s)\\Z)(?:%s)" % (
                b"|".join(each.expression for each in excluded), expression,
            )  # fmt: skip
        self._is_match = re.compile(expression, re.DOTALL).fullmatch

    def __repr__(self) -> str:
        return f"<Patterns {' '.join(map(_shown, self.given))}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Copy by the arguments: the expressions are made again, or taken from the cache."""
        return patterns_of, (self.separator, self.given)

    @property
    def spans(self) -> list[Span]:
        """The spans of the prefixes: disjoint, in the order of keys."""
        return list(map(prefix_span, self.prefixes))

    def matches(self, key: bytes) -> bool:
        """Return whether the key matches, in about 0.2 us."""
        return self._is_match(key) is not None

    def matching(self, keys: Iterable[bytes]) -> list[bytes]:
        """Return the keys that match, in their order. No Python function runs for each key."""
        return list(filter(self._is_match, keys))

    def flags(self, keys: Sequence[bytes]) -> list[bool]:
        """Return for each key whether the key matches; equal keys are matched once."""
        found = set(self.matching(dict.fromkeys(keys)))
        return list(map(found.__contains__, keys))

    def positions(self, keys: Sequence[bytes]) -> list[int]:
        """Return the positions of the keys that match; equal keys are matched once."""
        return list(compress(range(len(keys)), self.flags(keys)))

    def others(self, keys: Iterable[bytes]) -> list[bytes]:
        """Return the keys that do not match, in their order, as `matching` does."""
        return list(filterfalse(self._is_match, keys))

    @property
    def whole_spans(self) -> list[Span] | None:
        """The spans of which every key matches, if these have all keys that match; otherwise None.

        Such patterns end with `>` and have no other wildcard.
        """
        wanted = self._wanted or [_EVERYTHING]
        if self._excluded or not all(each.is_whole_span for each in wanted):
            return None
        return [each.span for each in wanted]

    def lies_within(
        self, allowed: "Sequence[Patterns]", has_span: Callable[[bytes, bytes | None], bool]
    ) -> bool:
        """Return whether each wanted pattern lies within a pattern of `allowed`, or in a span that
        `has_span` has.

        Then every key that matches is in these patterns and spans. False may be wrong: a pattern
        may lie within several patterns together, and only without the keys that it excludes.
        `allowed` excludes nothing.
        """
        fit = [each for other in allowed if other.separator == self.separator
               for each in other._wanted if not other._excluded]  # fmt: skip
        return all(
            any(_lies_within(one, each) for each in fit) or has_span(*one.span)
            for one in self._wanted or [_EVERYTHING]
        )

    def to_wire(self) -> list[object]:
        """Return the separator and the patterns as an array."""
        return [self.separator, list(self.given)]

    @classmethod
    def from_wire(cls, row: Sequence[object] | None) -> "Self | None":
        """Return the patterns of a request, None for None. Raises the errors of `patterns_of`."""
        if row is None:
            return None
        separator, given = row
        return patterns_of(separator, given)  # type: ignore[arg-type, return-value]  # checked


def patterns_of(separator: bytes, given: "str | bytes | Iterable[str | bytes]") -> Patterns:
    """Return the patterns of one pattern or a list. Text stands for its bytes in UTF-8.

    Raises InvalidArgument for a pattern that is not valid, and LimitExceeded for too many patterns,
    levels or bytes.
    """
    if isinstance(given, str | bytes):
        given = (given,)
    listed = tuple(given) if isinstance(given, Iterable) else (given,)
    if separator:
        check_separator(separator)
    if not 1 <= len(listed) <= limits.patterns_max:
        raise LimitExceeded(
            f"{len(listed)} patterns are given; 1 to {limits.patterns_max} are allowed. Use "
            "patterns that match more keys, or several reads",
            limit="patterns_max", value=len(listed), allowed=limits.patterns_max,
        )  # fmt: skip
    for each in listed:
        if not isinstance(each, str | bytes):
            raise InvalidArgument(
                f"a pattern is {each!r:.100}; give text or bytes, such as 'eu/*/orders/>'",
                what="pattern",
            )
    texts = tuple(
        each.encode("utf-8", "surrogateescape") if isinstance(each, str) else each
        for each in listed
    )
    size = sum(map(len, texts))
    if size > limits.patterns_bytes_max:
        raise LimitExceeded(
            f"the patterns have {size} bytes together; the limit is {limits.patterns_bytes_max}. "
            "Use shorter patterns, or several reads",
            limit="patterns_bytes_max", value=size, allowed=limits.patterns_bytes_max,
        )  # fmt: skip
    _check_levels(separator, texts)
    return _made(separator, texts)


def check_separator(separator: bytes) -> None:
    """Raise InvalidArgument unless the bytes can separate the levels of keys."""
    if not 1 <= len(separator) <= limits.separator_bytes_max:
        raise InvalidArgument(
            f"the separator of the hierarchy has {len(separator)} bytes; 1 to "
            f"{limits.separator_bytes_max} are allowed. Give a separator such as `/`",
            what="hierarchy",
        )
    if not set(separator).isdisjoint(SPECIAL):
        raise InvalidArgument(
            f"the separator of the hierarchy is {_shown(separator)}; the bytes `*`, `>`, `!` and "
            "the backslash have a meaning in patterns. Give a separator such as `/`",
            what="hierarchy",
        )


def _check_levels(separator: bytes, texts: tuple[bytes, ...]) -> None:
    """Raise LimitExceeded when the patterns have too many levels together."""
    levels = sum(each.count(separator) + 1 for each in texts) if separator else len(texts)
    limit = "patterns_levels_long_max" if len(separator) > 1 else "patterns_levels_max"
    allowed = getattr(limits, limit)
    if levels > allowed:
        raise LimitExceeded(
            f"the patterns have {levels} levels together; the limit for the separator "
            f"{_shown(separator)} is {allowed}. End patterns with `>` at an earlier level, or use "
            "several reads",
            limit=limit, value=levels, allowed=allowed,
        )  # fmt: skip


@lru_cache(_CACHED_MAX)
def _made(separator: bytes, given: tuple[bytes, ...]) -> Patterns:
    return Patterns(separator, given)


class _Pattern:
    """One pattern: a regular expression for whole keys, and the bytes before the first wildcard.

    `levels`: the literal bytes of each level, and whether any bytes may follow in the level.
    `is_open`: whether at least one more level follows, of any bytes.
    """

    __slots__ = ("expression", "is_open", "levels", "prefix")

    def __init__(
        self, expression: bytes, prefix: bytes, levels: Sequence[tuple[bytes, bool]], is_open: bool
    ) -> None:
        self.expression = expression
        self.prefix = prefix
        self.levels = levels
        self.is_open = is_open

    @property
    def span(self) -> Span:
        """The span of all keys that begin as the pattern begins."""
        return prefix_span(self.prefix)

    @property
    def is_whole_span(self) -> bool:
        """Whether every key of the span matches."""
        return self.is_open and not any(ends_open for _, ends_open in self.levels)


_EVERYTHING: Final = _Pattern(b".*+", b"", (), True)


def _lies_within(one: _Pattern, other: _Pattern) -> bool:
    """Return whether every key that matches the one pattern matches the other: its levels do."""
    count = len(other.levels)
    if other.is_open:
        if len(one.levels) < count + (not one.is_open):
            return False
    elif one.is_open or len(one.levels) != count:
        return False
    return all(
        mine.startswith(literal) if ends_open else (mine == literal and not is_any)
        for (mine, is_any), (literal, ends_open) in zip(one.levels, other.levels, strict=False)
    )


def _parsed(given: bytes, text: bytes, separator: bytes) -> _Pattern:
    """Return the pattern of a text. `given` is the whole pattern, for errors."""
    if not text:
        raise _wrong(given, "is empty", "give a key, or a pattern such as `eu/*/orders/>`")
    levels = text.split(separator) if separator else [text]
    if len(levels) > limits.pattern_levels_max:
        raise LimitExceeded(
            f"the pattern {_shown(given)} has {len(levels)} levels; the limit is "
            f"{limits.pattern_levels_max}. End the pattern with `>` at an earlier level",
            limit="pattern_levels_max", value=len(levels), allowed=limits.pattern_levels_max,
        )  # fmt: skip
    any_level = _any_level(separator)
    expressions, literals, is_literal = [], [], True
    parts: list[tuple[bytes, bool]] = []
    is_open = False
    for at, level in enumerate(levels):
        if level == b">" and at == len(levels) - 1:
            expressions.append(b".*+")
            literal, ends_open, is_open = b"", True, True
        else:
            literal, ends_open = _level(given, level, separator)
            parts.append((literal, ends_open))
            expression = re.escape(literal)
            if ends_open:
                expression += _no_separator_across(literal, separator) + any_level
            expressions.append(expression)
        if is_literal:
            literals.append(literal)
            is_literal = not ends_open
    prefix = separator.join(literals)
    if len(prefix) > limits.key_bytes_max:
        raise _wrong(
            given, f"has {len(prefix)} bytes before the first wildcard",
            f"keys have at most {limits.key_bytes_max} bytes. Shorten the pattern",
        )  # fmt: skip
    expression = b"(?:%s)" % re.escape(separator).join(expressions)
    return _Pattern(expression, prefix, parts, is_open)


def _level(given: bytes, level: bytes, separator: bytes) -> tuple[bytes, bool]:
    """Return the literal bytes of a level, and whether any bytes may follow in the level."""
    literal = bytearray()
    at, end = 0, len(level)
    while at < end:
        byte = level[at : at + 1]
        if byte == b"\\":
            byte = level[at + 1 : at + 2]
            if not byte or byte not in SPECIAL:
                raise _wrong(
                    given, "has a backslash before another byte",
                    r"a backslash stands before `*`, `>`, `!` or a backslash. Write `\\` for the "
                    "byte itself",
                )  # fmt: skip
            at += 1
        elif byte == b"*":
            if at != end - 1:
                raise _wrong(
                    given, "has a `*` within a level",
                    r"`*` is the last byte of a level. Write `\*` for the byte itself"
                    + _hint(separator),
                )  # fmt: skip
            return bytes(literal), True
        elif byte == b">":
            raise _wrong(
                given, "has a `>` that is not the last level",
                r"`>` is a whole level, the last level. Write `\>` for the byte itself"
                + _hint(separator),
            )  # fmt: skip
        literal += byte
        at += 1
    return bytes(literal), False


def _any_level(separator: bytes) -> bytes:
    """Return the expression of the rest of a level: all bytes up to the next separator.

    The expression is possessive: it never gives bytes back, so that no match takes another path.
    """
    if not separator:
        return b".*+"
    first, rest = re.escape(separator[:1]), re.escape(separator[1:])
    if not rest:
        return b"[^%s]*+" % first
    return b"(?:[^%s]++|%s(?!%s))*+" % (first, first, rest)


def _no_separator_across(literal: bytes, separator: bytes) -> bytes:
    """Return the expression that no separator begins within the literal and ends behind it.

    Such a separator would end the level before the end of the literal.
    """
    return b"".join(
        b"(?!%s)" % re.escape(separator[size:])
        for size in range(1, len(separator))
        if literal.endswith(separator[:size])
    )


def _outermost(prefixes: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the prefixes in order, without those that begin with another prefix."""
    found: list[bytes] = []
    for each in sorted(prefixes):
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return tuple(found)


def _hint(separator: bytes) -> str:
    if separator:
        return f"; the separator of the levels is {_shown(separator)}"
    return "; the log has no hierarchy, so that a key is one level"


def _shown(text: bytes) -> str:
    shown = text[:100].decode("utf-8", "backslashreplace")
    return f"`{shown}`" if is_printable(shown) else repr(text[:100])


def _wrong(given: bytes, what: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"the pattern {_shown(given)} {what}; {allowed}", what="pattern")
