"""Tokens with patterns of a log's hierarchy: what they allow, against brute force over all keys."""

import itertools
import random
from typing import Any, Final

import pytest
from metadata_log import Controller

from lognode.client import tokens
from lognode.client.protocol import Operation
from lognode.client.protocol.appends import APPEND, DELETE_KEYS, LEASE_TAKE, TRIM
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.cursors import CURSOR_COMMIT, CURSOR_OPEN
from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    Unauthorized,
    Unsupported,
)
from lognode.client.protocol.key_spans import prefix_span
from lognode.client.protocol.levels import HIERARCHIES_FROM
from lognode.client.protocol.patterns import Patterns, patterns_of
from lognode.client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    FOLLOW,
    KEYS,
    LATEST,
    LAYOUT,
    READ_SPAN,
    RESOLVE,
    SCAN,
)
from lognode.client.protocol.scopes import Scope, parse_scope, scopes_of
from lognode.node.access.rights import Rights
from lognode.node.access.visible import Visible
from lognode.partitions import levels
from lognode.partitions.metadata import Metadata
from lognode.partitions.tokens import TokenRecord, create

SEPARATORS: Final = (b"/", b"::")
LEVELS: Final = ("", "a", "ab", "b", "c")
SPAN_READS: Final = (KEYS, READ_SPAN, EXPORT, RESOLVE, LAYOUT, FOLLOW)


def universe(separator: bytes, depth: int = 3, levels: tuple[str, ...] = LEVELS) -> list[bytes]:
    """All keys of few levels."""
    return sorted(
        separator.join(part.encode() for part in parts)
        for count in range(1, depth + 1) for parts in itertools.product(levels, repeat=count)
        if any(parts) or count > 1
    )  # fmt: skip


def made(separator: bytes) -> Metadata:
    """Log 1 `shop` with a hierarchy, of ranges 1 and 2, split at `b`, and log 2 `plain`."""
    controller = Controller().nodes(1)
    controller.metadata.feature_level = HIERARCHIES_FROM
    controller.do("create_log", name="shop", hierarchy=separator, split_at=[b"b"])
    controller.do("create_log", name="plain")
    controller.metadata.settle()
    return controller.metadata


@pytest.fixture(scope="module", params=SEPARATORS, ids=["/", "::"])
def metadata(request: pytest.FixtureRequest) -> Metadata:
    return made(request.param)


def rights(metadata: Metadata, *scopes: str | Scope) -> Rights:
    token = tokens.draw()
    record = TokenRecord(tokens.id_of(token), "app", scopes_of(scopes), tokens.digest_of(token))
    return Rights(record, lambda: metadata)


def body(operation: Operation, range_id: int = 1, **given: Any) -> dict[str, Any]:
    """As the acceptor has it."""
    return operation.request.check({"range": range_id, "generation": 1, **given})


def allows(token: Rights, operation: Operation, range_id: int = 1, **given: Any) -> bool:
    try:
        token.authorise(operation, body(operation, range_id, **given))
    except Unauthorized:
        return False
    return True


def drawn(draw: random.Random, separator: bytes) -> bytes:
    """A pattern."""
    parts = [
        draw.choice(LEVELS) + draw.choice(("", "", "*")) for _ in range(draw.randint(1, 3))
    ]  # fmt: skip
    if draw.random() < 0.4:
        parts.append(">")
    found = separator.join(part.encode() for part in parts)
    return found or b"a"


def as_scope(pattern: bytes, verbs: str = "read") -> Scope:
    return Scope(frozenset(verbs.split(",")), "shop", pattern, by_pattern=True)


@pytest.mark.parametrize("seed", range(12))
def test_X5_patterns_of_a_token_allow_the_keys_that_match_and_no_others(
    metadata: Metadata, seed: int
) -> None:
    draw = random.Random(seed)
    (separator,) = {each.hierarchy for each in metadata.logs.values()} - {b""}
    keys = universe(separator)
    for _ in range(25):
        given = [drawn(draw, separator) for _ in range(draw.randint(1, 3))]
        scopes: list[str | Scope] = [as_scope(each, "read,append,trim") for each in given]
        allowed = {key for key in keys if patterns_of(separator, given).matches(key)}
        if draw.random() < 0.3:
            prefix = draw.choice(keys)[:2]
            scopes.append(Scope(frozenset(("read",)), "shop", prefix + b"*"))
            allowed |= {key for key in keys if key.startswith(prefix)}
        token = rights(metadata, *scopes)
        readable = {key: allows(token, SCAN, key=key) for key in draw.sample(keys, 60)}
        assert readable == {key: key in allowed for key in readable}, scopes
        some = draw.sample(keys, draw.randint(1, 3))
        together = set(some) <= allowed
        assert allows(token, FOLLOW, keys=dict.fromkeys(some, 1)) == together
        rows = [[key, 1] for key in some]
        assert allows(token, CURSOR_COMMIT, cursor="c", holder=1, spans=[], keys=rows) == together
        for asked in (given, given[:1], [*given, b"!a"]):
            for start, end in patterns_of(separator, asked).spans:
                where = {"start_key": start, "end_key": end}
                assert allows(token, EXPORT, **where, patterns=[separator, asked])
        check_spans(draw, token, keys, allowed)
        around = [
            *patterns_of(separator, given).prefixes,
            *(s.keys[:-1] for s in scopes[len(given) :] if isinstance(s, Scope)),
        ]
        check_patterns(draw, token, separator, keys, allowed, around)


def check_spans(draw: random.Random, token: Rights, keys: list[bytes], allowed: set[bytes]) -> None:
    """A read of a span is allowed only where the token has every key of the span."""
    for _ in range(10):
        start, end = sorted(draw.sample(keys, 2))
        if draw.random() < 0.5:
            start, end = prefix_span(start)  # type: ignore[assignment]
        touched = {key for key in keys if start <= key and (end is None or key < end)}
        for operation in SPAN_READS:
            where = {"start_key": start, "end_key": end}
            extra = {"start": "latest"} if operation is RESOLVE else {}
            assert not allows(token, operation, **where, **extra) or touched <= allowed
        rows = [[start, end, 1]]
        assert not allows(token, CURSOR_OPEN, cursor="c", holder=1, spans=rows) or (
            touched <= allowed
        )
        lease = {"lease": "l", "through": 1, "lease_ms": 1}
        assert not allows(token, LEASE_TAKE, start_key=start, end_key=end, **lease) or (
            touched <= allowed
        )


def check_patterns(
    draw: random.Random, token: Rights, separator: bytes, keys: list[bytes], allowed: set[bytes],
    around: list[bytes],
) -> None:  # fmt: skip
    """A read of patterns is allowed only where the token has every key that matches, and goes over
    no key with another beginning, which the position of a page could show."""
    for _ in range(20):
        asked = [drawn(draw, separator) for _ in range(draw.randint(1, 2))]
        if draw.random() < 0.3:
            asked.append(b"!" + drawn(draw, separator))
        own = draw.choice((separator, separator, b"."))
        try:
            matching = set(patterns_of(own, asked).matching(keys))
        except InvalidArgument:
            continue
        start, end = prefix_span(draw.choice([b"", draw.choice(keys), draw.choice(around)]))
        over = {key for key in keys if start <= key < min(end or b"b", b"b")}  # of range 1
        for operation in (KEYS, EXPORT, FOLLOW, RESOLVE):
            given = {"start_key": start, "end_key": end, "patterns": [own, asked]}
            if operation is KEYS:
                given = {"prefix": start, "patterns": [own, asked]}
            if operation is RESOLVE:
                given["start"] = "latest"
            if allows(token, operation, **given):
                assert matching & over <= allowed, (asked, own)
                assert all(key.startswith(tuple(around)) for key in over)
        for operation in (READ_SPAN, LAYOUT):  # these know no patterns
            assert "patterns" not in operation.request.shape


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_pattern_lies_within_another_exactly_when_its_keys_do(separator: bytes) -> None:
    draw = random.Random(4)
    keys = universe(separator, 4, (*LEVELS, "z", "az", "abz", "bz", "cz"))
    for pattern in sorted({drawn(draw, separator) for _ in range(40)}):
        whole = patterns_of(separator, pattern)
        theirs = set(whole.matching(keys))
        for other in sorted({drawn(draw, separator) for _ in range(25)} | {pattern, b">"}):
            asked = patterns_of(separator, other)
            due = set(asked.matching(keys)) <= theirs
            assert asked.lies_within([whole], lambda start, end: False) == due, (other, pattern)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_patterns_without_another_wildcard_are_spans(separator: bytes) -> None:
    draw, keys = random.Random(5), universe(separator, 4)
    count = 0
    for pattern in {drawn(draw, separator) for _ in range(200)} | {b">"}:
        found = patterns_of(separator, pattern)
        if found.whole_spans is None:
            continue
        count += 1
        within = {
            key for key in keys
            if any(start <= key and (end is None or key < end) for start, end in found.whole_spans)
        }  # fmt: skip
        assert within == set(found.matching(keys)), pattern
    assert count > 20
    assert Patterns(separator, (b"a", b"!ab")).whole_spans is None
    assert patterns_of(separator, b"a").whole_spans is None, "`ab` begins with `a` too"


def test_a_batch_is_checked_as_a_whole(metadata: Metadata) -> None:
    separator = metadata.logs[1].hierarchy
    token = rights(
        metadata, as_scope(separator.join((b"eu", b"*")), "append"),
        Scope(frozenset(("append",)), "shop", b"x*"), as_scope(b"u*", "append"),
    )  # fmt: skip
    allowed = token.authorise(APPEND, body(APPEND, batches=[b""]))
    assert allowed is not None
    assert allowed.keys is not None
    eu = separator.join((b"eu", b"7"))
    for keys, due in (
        ([eu], True), ([eu, b"x", b"us"], True), ([eu, b"y"], False), ([], True), ([b"y"], False),
        ([separator.join((b"eu", b"7", b"8"))], False), ([b"x", b"xy"], True),
    ):  # fmt: skip
        assert allowed.keys.has_all(keys) == due, keys
    token = rights(metadata, as_scope(separator.join((b"eu", b"*")), "trim"))
    for operation in (TRIM, DELETE_KEYS):
        assert allows(token, operation, keys=[[eu, 1]])
        assert not allows(token, operation, keys=[[eu, 1], [b"y", 1]])
    assert not allows(token, LATEST, key=eu)


def test_an_error_says_what_the_token_allows(metadata: Metadata) -> None:
    separator = metadata.logs[1].hierarchy
    pattern = separator.join((b"eu", b"*", b"orders"))
    token = rights(metadata, as_scope(pattern))
    for operation, given in (
        (KEYS, {}), (EXPORT, {"patterns": [separator, [b">"]]}), (COUNT_ENTRIES, {"key": b"us"}),
    ):  # fmt: skip
        with pytest.raises(Unauthorized, match="single keys that match, and reads whose") as raised:
            token.authorise(operation, body(operation, **given))
        assert f"`read shop pattern:{pattern.decode()}`" in str(raised.value)


def test_a_pattern_allows_nothing_in_a_log_without_a_hierarchy_or_with_other_levels() -> None:
    metadata = made(b"/")
    everywhere = Scope(frozenset(("read",)), "*", b">", by_pattern=True)
    token = rights(metadata, everywhere)
    assert allows(token, SCAN, key=b"a/b")
    assert allows(token, EXPORT), "`>` is every key of a log with a hierarchy"
    (plain,) = metadata.ranges_of(2)
    assert not allows(token, SCAN, plain.range_id, key=b"a/b")
    assert not token.may_everywhere(KEYS.permission)
    assert not token.may(KEYS.permission, "plain")
    # `*` is one level here, never all keys. The log does not allow the pattern `a*b`.
    token = rights(metadata, Scope(frozenset(("read",)), "*", b"*", by_pattern=True))
    assert allows(token, SCAN, key=b"a")
    assert not allows(token, SCAN, key=b"a/b")
    assert not allows(token, EXPORT)
    assert not allows(rights(metadata, as_scope(b"a*b")), SCAN, key=b"a*b")
    # A log that is created again under the name has another hierarchy.
    token = rights(metadata, as_scope(b"a/*"))
    assert allows(token, SCAN, key=b"a/b.c")
    metadata = token._metadata()
    metadata.logs[1] = type(metadata.logs[1])(1, "shop", metadata.logs[1].policy, b"", b".")
    assert not allows(token, SCAN, key=b"a/b.c")


def test_a_client_learns_the_bounds_around_its_patterns_only(metadata: Metadata) -> None:
    separator = metadata.logs[1].hierarchy
    token = rights(metadata, as_scope(separator.join((b"a", b"*", b"x"))), as_scope(b"c*"))
    asked = body_of_metadata(metadata, token)
    begin = b"a" + separator
    assert asked.rows == [prefix_span(begin), (b"c", b"d")]


def body_of_metadata(metadata: Metadata, token: Rights) -> Any:
    asked = METADATA.request.check({"log": "shop"})
    return Visible(lambda: metadata).asked(token, asked)["spans"]


def test_the_text_and_the_rows_of_a_scope_keep_its_pattern() -> None:
    scope = parse_scope("read,append acme/shop pattern:eu/*/orders/>")
    assert scope == Scope(frozenset(("read", "append")), "acme/shop", b"eu/*/orders/>", True)
    assert scope.text == "read,append acme/shop pattern:eu/*/orders/>"
    assert parse_scope("read shop eu/*").by_pattern is False
    for text, said in (
        ("read shop pattern:!eu/>", "scopes only allow"),
        ("read shop pattern:", "keys of 0 bytes"),
        ("admin * pattern:*", "apply to whole logs"),
        ("all shop pattern:>", "apply to whole logs"),
        ("group shop pattern:>", "apply to whole logs"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            parse_scope(text)
    record = TokenRecord("0" * 16, "app", scopes_of([scope, "read b*", "describe"]), bytes(32))
    image = record.to_image()
    assert [row[1] for row in image["scopes"]] == ["b*", "*"]
    assert [row[2] for row in image["patterns"]] == [b"eu/*/orders/>"]
    again = TokenRecord.from_image(image)
    assert set(again.scopes) == set(record.scopes)
    assert again.to_image() == image
    plain = TokenRecord("0" * 16, "app", scopes_of(["read b*"]), bytes(32)).to_image()
    assert "patterns" not in plain, "an image without patterns is that of earlier versions"


def test_a_token_with_a_pattern_needs_its_feature_level() -> None:
    controller = Controller().nodes(1)
    first = {"id": "a" * 16, "digest": bytes(32), "principal": "admin",
             "scopes": [Scope(frozenset(("admin",))).to_wire()]}  # fmt: skip
    controller.do("create_token", **first)
    command = {"id": "b" * 16, "digest": bytes(32), "principal": "app", "scopes": [],
               "patterns": [as_scope(b"eu/*").to_wire()]}  # fmt: skip
    state: Any = controller.metadata
    state.feature_level = HIERARCHIES_FROM - 1
    with pytest.raises(Unsupported, match="patterns need level 4"):
        create(state, {"at_ms": 1, "expires_ms": None, **command})
    assert "b" * 16 not in state.tokens
    state.feature_level = HIERARCHIES_FROM
    answer = create(state, {"at_ms": 1, "expires_ms": None, **command})
    assert answer["patterns"] == 1
    assert create(state, {"at_ms": 2, "expires_ms": None, **command})["patterns"] == 1
    assert state.tokens["b" * 16].to_row()["patterns"] == command["patterns"]
    with pytest.raises(LognodeError, match="0 scopes"):
        create(state, {"at_ms": 1, **command, "id": "c" * 16, "patterns": None})
    levels.check_pattern_scopes(1, scopes_of(["read a*"]))
