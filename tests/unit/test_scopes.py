"""Scopes of tokens as text, and the spans of keys that they allow."""

import os
import random
from itertools import pairwise

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.key_spans import KeySpans, prefix_span
from lognode.client.protocol.limits import key_bytes_max, log_name_bytes_max, token_scopes_max
from lognode.client.protocol.scopes import VERBS, Scope, common_tenant, parse_scope, scopes_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all", "all"),
        ("all *", "all"),
        ("read", "read"),
        ("append,read acme/*", "read,append acme/*"),
        ("read acme/* user-*", "read acme/* user-*"),
        ("trim flights N1422", "trim flights N1422"),
        ("read flights two words*", "read flights two words*"),
        ("describe,read,append,trim,group,admin x", "all x"),
    ],
)
def test_a_scope_is_written_as_it_is_read(text: str, shown: str) -> None:
    scope = parse_scope(text)
    assert scope.text == shown
    assert parse_scope(scope.text) == scope
    assert Scope.from_wire(scope.to_wire()) == scope


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "write", "read,", "READ", "read a*b", "read **", "read *a",
        "read " + "x" * (log_name_bytes_max + 2), "read a\x00b",
        "read a " + "k" * (key_bytes_max + 2), "admin a user-*", "read,describe a user-*",
        "group a user-*", "all a user-*",
    ],
)  # fmt: skip
def test_a_malformed_scope_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_scope(text)


@pytest.mark.parametrize(
    "row",
    [None, [], [["read"], "a"], [["read"], 7, b"*"], [["read"], "a", "*"], [[], "a", b"*"],
     [["read"], "a", b""], [["read", ["x"]], "a", b"*"], ["read", "a", b"*"]],
)  # fmt: skip
def test_a_row_that_no_scope_has_is_refused(row: object) -> None:
    with pytest.raises((InvalidArgument, TypeError, ValueError)):
        Scope.from_wire(row)  # type: ignore[arg-type]


def test_a_token_has_a_bounded_number_of_scopes() -> None:
    assert len(scopes_of(["read"] * token_scopes_max)) == token_scopes_max
    for count in (0, token_scopes_max + 1):
        with pytest.raises(InvalidArgument, match=f"has {count} scopes"):
            scopes_of(["read"] * count)


def test_a_scope_is_about_the_logs_of_its_pattern() -> None:
    tenant, one, every = parse_scope("read acme/*"), parse_scope("read acme/a"), parse_scope("read")
    names = ("acme/a", "acme/ab", "acme", "acmex", "other/a")
    assert [tenant.has_log(name) for name in names] == [True, True, False, False, False]
    assert [one.has_log(name) for name in names] == [True, False, False, False, False]
    assert all(every.has_log(name) for name in names)
    assert every.has_every_log
    assert not tenant.has_every_log


def test_the_tenant_of_a_token_is_what_all_its_logs_have_in_common() -> None:
    def tenant(*texts: str) -> str | None:
        return common_tenant(scopes_of(texts))

    assert tenant("read acme/*", "append acme/orders") == "acme"
    assert tenant("read acme/*", "read other/*") is None
    assert tenant("read acme/*", "read") is None
    assert tenant("read acme*") is None
    assert tenant("read /acme/*") is None


def test_spans_have_the_keys_that_their_patterns_match() -> None:
    """Against the definition, for random patterns over a small alphabet."""
    rng = random.Random(20)
    alphabet = [b"\x00", b"a", b"b", b"\xff"]

    def word(high: int) -> bytes:
        return b"".join(rng.choices(alphabet, k=rng.randint(0, high)))

    for _ in range(3_000):
        patterns = [word(3) + rng.choice((b"*", b"")) or b"*" for _ in range(rng.randint(1, 4))]
        scopes = [Scope(frozenset({"read"}), "x", pattern) for pattern in patterns]
        spans = KeySpans(scope.span() for scope in scopes)

        def matches(key: bytes, patterns: list[bytes] = patterns) -> bool:
            return any(key.startswith(p[:-1]) if p.endswith(b"*") else key == p for p in patterns)

        keys = [word(4) or b"a" for _ in range(rng.randint(1, 8))]
        assert [spans.has(key) for key in keys] == [matches(key) for key in keys], patterns
        assert spans.has_all(keys) == all(map(matches, keys)), (patterns, keys)
        start, end = sorted((word(3), word(3)))
        inside = [k for k in map(bytes, _words(3)) if start <= k < end]
        if spans.covers(start, end):
            assert all(map(matches, filter(None, inside))), (patterns, start, end)


def _words(length: int) -> list[bytes]:
    found = [b""]
    for _ in range(length):
        found += [word + bytes([c]) for word in found for c in (0, 97, 98, 255)]
    return found


def test_a_clipped_span_has_the_same_keys_and_no_other_bounds() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    words = sorted(set(_words(2)))
    bounds = [*words, None]
    for _ in range(2_000):
        spans = KeySpans(_some_span(rng, bounds) for _ in range(rng.randrange(4)))
        start, end = _some_span(rng, bounds)
        clipped = spans.clipped(start, end)
        own = [w for w in words if start <= w and (end is None or w < end) and spans.has(w)]
        if clipped is None:
            assert not own, (spans.rows, start, end)
            continue
        low, high = clipped
        assert start <= low
        assert high is None or low < high
        assert end is None or (high is not None and high <= end)
        assert all(low <= w and (high is None or w < high) for w in own)
        edges = {edge for row in spans.rows for edge in row}
        for bound in (low, high):
            # A range that ends where a span ends tells no key between the spans either.
            assert bound in edges or spans.has(bound or b"") or not bound, (spans.rows, clipped)
        assert spans.clipped(low, high) == clipped


def _some_span(rng: random.Random, bounds: list[bytes | None]) -> tuple[bytes, bytes | None]:
    at = sorted(rng.sample(range(len(bounds)), 2))
    return bounds[at[0]] or b"", bounds[at[1]]


def test_spans_that_meet_are_one() -> None:
    spans = KeySpans([(b"b", b"c"), (b"a", b"b"), (b"x", None), (b"y", b"z")])
    assert spans.covers(b"a", b"c")
    assert not spans.covers(b"a", b"d")
    assert not spans.covers(b"a", None)
    assert spans.covers(b"x", None)
    assert spans.covers(b"k", b"k")
    assert not KeySpans(()).covers(b"", None)
    assert KeySpans([(b"", None)]).has_every_key


def test_the_span_of_a_prefix_ends_behind_it() -> None:
    for prefix in (b"", b"a", b"a\xff", b"\xff\xff", b"\x00"):
        start, end = prefix_span(prefix)
        assert start == prefix
        assert end is None or end > prefix + b"\xff" * 9
    for low, high in pairwise(sorted(prefix_span(b"a"), key=lambda bound: bound or b"")):
        assert (low, high) == (b"a", b"b")


def test_every_verb_is_a_permission() -> None:
    from lognode.client.protocol import Permission

    assert set(VERBS) == {each.value for each in Permission} - {"none", "peer"}
