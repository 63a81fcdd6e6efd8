"""Patterns of keys: the matches against brute force and a NATS server, bounds, hostile patterns."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument, LimitExceeded
from lognode.client.protocol.patterns import Patterns, check_separator, patterns_of

SEPARATORS: Final = (b"", b"/", b".", b"::", b"aba", "→".encode())


def brute(pattern: bytes, key: bytes, separator: bytes) -> bool:
    """Return whether the key matches one pattern without escapes, level by level."""
    levels = key.split(separator) if separator else [key]
    wanted = pattern.split(separator) if separator else [pattern]
    for at, want in enumerate(wanted):
        if want == b">":
            return len(levels) > at
        if at >= len(levels):
            return False
        if want.endswith(b"*"):
            if not levels[at].startswith(want[:-1]):
                return False
        elif want != levels[at]:
            return False
    return len(levels) == len(wanted)


def brute_list(given_: list[bytes], key: bytes, separator: bytes) -> bool:
    wanted = [each for each in given_ if not each.startswith(b"!")] or [b""]
    excluded = [each[1:] for each in given_ if each.startswith(b"!")]
    if any(brute(each, key, separator) for each in excluded):
        return False
    return wanted == [b""] or any(brute(each, key, separator) for each in wanted)


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[bytes], list[bytes]]:
    """A separator, patterns and keys of few bytes, so that many keys match."""
    separator = draw(st.sampled_from(SEPARATORS))
    alphabet = sorted({b"a", b"b", b"\n", separator[:1] or b"c", separator[-1:] or b"c"})
    text = st.lists(st.sampled_from(alphabet), max_size=3).map(b"".join)
    level = st.one_of(text, text.map(lambda each: each + b"*"))

    def joined(levels: list[bytes], more: bool) -> bytes:
        return (separator or b"c").join([*levels, *([b">"] if more and separator else [])])

    pattern = st.builds(joined, st.lists(level, min_size=1, max_size=4), st.booleans()).filter(
        lambda each: each and _is_valid(each, separator)
    )
    patterns = st.lists(
        st.builds(lambda sign, each: sign + each, st.sampled_from((b"", b"", b"!")), pattern),
        min_size=1, max_size=4,
    )  # fmt: skip
    keys = st.lists(
        st.lists(st.one_of(text, st.just(separator)), max_size=7).map(b"".join), max_size=12
    )
    return separator, draw(patterns), draw(keys)


def _is_valid(pattern: bytes, separator: bytes) -> bool:
    """Whether each wildcard ends its level, after the separator has cut the levels."""
    levels = pattern.split(separator) if separator else [pattern]
    return all(
        b"*" not in level[:-1] and (b">" not in level or (level == b">" and at == len(levels) - 1))
        for at, level in enumerate(levels)
    )


@settings(max_examples=200, deadline=None)
@given(cases())
@example((b"::", [b"a:*::c"], [b"a::c", b"a:::c", b"a:b::c", b"a::::c"]))
@example((b"::", [b"a:*"], [b"a::b", b"a:b", b"a:"]))
@example((b"aba", [b"ab*"], [b"ababa", b"ab", b"abab"]))
@example((b"/", [b"!a/>"], [b"a", b"a/", b"a/b", b""]))
def test_matches_are_those_of_brute_force(case: tuple[bytes, list[bytes], list[bytes]]) -> None:
    separator, given_, keys = case
    patterns = patterns_of(separator, given_)
    wanted = [key for key in keys if brute_list(given_, key, separator)]
    assert patterns.matching(keys) == wanted
    assert [key for key in keys if patterns.matches(key)] == wanted
    assert [keys[at] for at in patterns.positions(keys)] == wanted
    # A reader of the spans of the prefixes finds every key that matches.
    spans = patterns.spans
    for key in wanted:
        assert sum(start <= key and (end is None or key < end) for start, end in spans) == 1


@pytest.mark.parametrize(
    ("given_", "prefixes"),
    [
        (["eu/*/orders/>"], [b"eu/"]),
        (["eu/7/orders"], [b"eu/7/orders"]),
        (["eu/7/ord*"], [b"eu/7/ord"]),
        (["eu/>"], [b"eu/"]),
        ([">"], [b""]),
        (["us/>", "eu/>", "eu/7/*"], [b"eu/", b"us/"]),
        (["!eu/>"], [b""]),
        (["a*/b", "!ab/>"], [b"a"]),
        ([r"\!a/\*/\>/\\"], [rb"!a/*/>/" + b"\\"]),
    ],
)
def test_the_literal_beginnings_are_spans(given_: list[str], prefixes: list[bytes]) -> None:
    assert list(patterns_of(b"/", given_).prefixes) == prefixes


def test_a_backslash_makes_a_literal_byte() -> None:
    patterns = patterns_of(b"/", [r"\!x/\*/a\>", r"k\\*"])
    keys = [b"!x/*/a>", b"!x/y/a>", b"x/*/a>", b"k\\", b"k\\more", b"k"]
    assert patterns.matching(keys) == [b"!x/*/a>", b"k\\", b"k\\more"]


def test_without_a_hierarchy_a_key_is_one_level() -> None:
    keys = [b"a", b"a/b", b"ab", b"\xff\x00", b"b"]
    assert patterns_of(b"", "a*").matching(keys) == [b"a", b"a/b", b"ab"]
    assert patterns_of(b"", ["*", "!a*"]).matching(keys) == [b"\xff\x00", b"b"]
    assert patterns_of(b"", ">").matching(keys) == keys


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ("", "the pattern `` is empty"),
        ("!", "the pattern `!` is empty"),
        ("a*b/c", r"within a level; `*` is the last byte of a level. Write `\*` for the byte"),
        ("**", "within a level"),
        ("a>", r"not the last level; `>` is a whole level, the last level. Write `\>`"),
        (">/a", "not the last level"),
        ("eu/>x", "the separator of the levels is `/`"),
        ("a\\", r"has a backslash before another byte; a backslash stands before `*`"),
        ("a\\b", r"Write `\\` for the byte itself"),
        ("k" * 481, "has 481 bytes before the first wildcard; keys have at most 480 bytes"),
        (7, "a pattern is 7; give text or bytes"),
        ([7], "a pattern is 7; give text or bytes"),
    ],
)
def test_a_pattern_that_is_not_valid_is_refused(given_: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        patterns_of(b"/", given_)
    assert text in caught.value.message


def test_the_error_names_a_missing_hierarchy() -> None:
    with pytest.raises(InvalidArgument, match="the log has no hierarchy, so that a key is one"):
        patterns_of(b"", "eu/*/orders")


@pytest.mark.parametrize(
    ("given_", "limit"),
    [
        (["a"] * (limits.patterns_max + 1), "patterns_max"),
        ([], "patterns_max"),
        (["a" * 400] * 3, "patterns_bytes_max"),
        (["/".join("*" * (limits.pattern_levels_max + 1))], "pattern_levels_max"),
    ],
)
def test_lists_of_patterns_are_bounded(given_: list[str], limit: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        patterns_of(b"/", given_)
    assert caught.value.fields["limit"] == limit


def test_a_longer_separator_allows_fewer_levels() -> None:
    given_ = ["::".join("*" * 16)] * 3
    assert patterns_of(b"::", given_).matches(b"::" * 15)
    with pytest.raises(LimitExceeded, match="have 49 levels together; the limit for the separator"):
        patterns_of(b"::", [*given_, "a"])


@pytest.mark.parametrize("separator", [b"", b"x" * 9, b"*", b"a>", b"!", b"\\"])
def test_a_separator_has_its_bounds(separator: bytes) -> None:
    with pytest.raises(InvalidArgument, match="the separator of the hierarchy"):
        check_separator(separator)


def _hostile() -> Iterator[tuple[bytes, list[bytes]]]:
    """Lists of patterns that would backtrack in an expression that gives bytes back."""
    for separator in SEPARATORS[1:]:
        levels = separator.join([b"*"] * limits.pattern_levels_max)
        yield separator, [levels[:60]] if len(separator) > 3 else [levels]
        yield separator, [separator.join([b"a*", b"*", b">"]), b"!" + separator.join([b"*", b"a*"])]


@pytest.mark.parametrize(("separator", "given_"), list(_hostile()))
def test_no_expression_gives_bytes_back(separator: bytes, given_: list[bytes]) -> None:
    """Then the time of a match is linear in the key: each byte is read once for each pattern."""
    expressions: list[Any] = [re._parser.parse(_expression(separator, given_))]  # type: ignore[attr-defined]
    while expressions:
        node = expressions.pop()
        if isinstance(node, tuple) and node:
            assert str(node[0]) not in ("MAX_REPEAT", "MIN_REPEAT"), node
        if isinstance(node, tuple | list) or type(node).__name__ == "SubPattern":
            expressions += list(node)


def _expression(separator: bytes, given_: list[bytes]) -> bytes:
    expression: bytes = patterns_of(separator, given_)._is_match.__self__.pattern  # type: ignore[attr-defined]
    return expression


def test_patterns_travel_as_an_array() -> None:
    patterns = patterns_of(b"/", ["eu/*/orders/>", "!eu/7/>"])
    again = Patterns.from_wire(patterns.to_wire())  # type: ignore[arg-type]
    assert again is not None
    assert again.given == patterns.given
    assert again.separator == b"/"
    assert Patterns.from_wire(None) is None
