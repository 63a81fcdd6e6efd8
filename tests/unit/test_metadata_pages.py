"""Pages of the metadata for clients, bounds of the metadata, and bounds of follows."""

import os
import random
from contextlib import ExitStack

import pytest
from metadata_log import Controller

from lognode.client.protocol import limits
from lognode.client.protocol.errors import LimitExceeded, Overloaded
from lognode.client.protocol.key_spans import KeySpans
from lognode.node.access.clipped import Clipped
from lognode.node.serving.follows import Follows
from lognode.node.serving.metadata_service import range_page, ranges_after
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor, Span


def with_log(ranges: int, key_bytes: int = 2) -> Metadata:
    controller = Controller().nodes(1)
    keys = [b"%03d".ljust(key_bytes, b"x") % n for n in range(1, ranges)]
    command = {"op": "create_log", "name": "a", "split_at": keys, "replicas": 1}
    assert "ok" in controller.metadata.apply(5, 1, command)
    return controller.metadata


def starts(found: list[Descriptor]) -> list[bytes]:
    return [range_.span.start for range_ in found]


@pytest.mark.parametrize("key_bytes", [4, 480])
@pytest.mark.parametrize("limit", [1, 7, 500])
def test_pages_of_a_log_cover_it(limit: int, key_bytes: int) -> None:
    ranges = with_log(700, key_bytes).ranges_of(1)
    start: bytes | None = b""
    found: list[Descriptor] = []
    while start is not None:
        page, start = range_page(ranges, start, limit)
        assert 1 <= len(page) <= limit
        assert sum(len(r.span.start) + len(r.span.end or b"") for r in page) < 300_000
        found += page
    assert found == ranges


def test_a_page_begins_with_the_range_of_the_key() -> None:
    ranges = with_log(700).ranges_of(1)
    page, following = range_page(ranges, b"123q", 3)
    assert starts(page) == [b"123", b"124", b"125"]
    assert following == b"126"
    page, following = range_page(ranges, b"zzz", 3)
    assert starts(page) == [b"699"]
    assert following is None


def test_a_log_that_fits_a_page_comes_whole_whatever_the_key() -> None:
    ranges = with_log(5).ranges_of(1)
    assert range_page(ranges, b"003", 500) == (ranges, None)
    assert range_page(ranges, b"003", 5) == (ranges, None)
    assert starts(range_page(ranges, b"003", 4)[0]) == [b"003", b"004"]


def test_pages_of_some_keys_tell_nothing_of_the_bounds_of_other_keys() -> None:
    """Two logs differ in bounds outside the keys alone. Whatever key a client names, and however
    small the pages are, both answer the same."""
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        edges = sorted(rng.sample(range(200, 900), 2 * rng.randrange(1, 4)))
        spans = KeySpans((b"%03d" % low, b"%03d" % high) for low, high in pairs(edges))
        gaps = pairs([100, *edges, 999])
        own = [key for key in _keys(rng, 100, 999, 9) if spans.has(key)]
        asked = [(b"%03d" % rng.randrange(90, 1_000), rng.choice([1, 2, 5, 500]))
                 for _ in range(40)]  # fmt: skip
        answers = []
        for _ in range(2):
            # Whether there is a bound between two spans is told: the ranges have ids.
            others = [key for low, high in gaps for key in _keys(rng, low, high, 3)]
            seen = Clipped(with_log_split_at(sorted({*own, *others})).ranges_of(1), spans)
            pages = [range_page(seen, start, limit) for start, limit in asked]
            answers.append([([tuple(r.span) for r in page], after) for page, after in pages])
        assert answers[0] == answers[1]


def pairs(edges: list[int]) -> list[tuple[int, int]]:
    return list(zip(edges[::2], edges[1::2], strict=True))


def _keys(rng: random.Random, low: int, high: int, count: int) -> list[bytes]:
    """One key at least, of those from `low` on and below `high`."""
    found = range(low, high)
    return [b"%03d" % n for n in rng.sample(found, min(len(found), rng.randint(1, count)))]


def with_log_split_at(keys: list[bytes]) -> Metadata:
    controller = Controller().nodes(1)
    command = {"op": "create_log", "name": "a", "split_at": keys, "replicas": 1}
    assert "ok" in controller.metadata.apply(5, 1, command)
    return controller.metadata


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_pages_of_some_keys_cover_them(limit: int) -> None:
    spans = KeySpans([(b"0005", b"0007"), (b"123", b"4"), (b"5559", None)])
    ranges = with_log(700).ranges_of(1)
    seen = Clipped(ranges, spans)
    found: list[Descriptor] = []
    start: bytes | None = b""
    while start is not None:
        page, start = range_page(seen, start, limit)
        assert 1 <= len(page) <= limit
        assert start is None or spans.has(start)
        found += page
    assert found == list(seen)
    for low, high in spans.rows:
        at: bytes | None = low
        for range_ in found:
            if at is not None and range_.span.start <= at and at in range_.span:
                at = range_.span.end
        assert at == high or (high is not None and at is not None and at > high)
    assert [r.range_id for r in seen] == [
        r.range_id for r in ranges if any(r.span.overlaps(Span(*row)) for row in spans.rows)
    ]
    assert not Clipped(ranges, KeySpans(()))
    assert range_page([], b"x", 7) == ([], None)


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_pages_of_all_ranges_leave_none_out(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of ranges that are gone are passed in pages too, which may be empty."""
    monkeypatch.setattr("lognode.node.serving.metadata_service._IDS_A_PAGE", 50)
    controller = Controller().nodes(1)
    metadata = controller.metadata
    for name, count in (("a", 100), ("b", 300), ("c", 40)):
        command = {"op": "create_log", "name": name, "ranges": count, "replicas": 1}
        assert "ok" in metadata.apply(5, 1, command)
    assert "ok" in metadata.apply(6, 1, {"op": "delete_log", "name": "b"})
    found: list[Descriptor] = []
    after: int | None = 0
    pages = 0
    while after is not None:
        page, after = ranges_after(metadata, after, limit)
        found += page
        pages += 1
        assert len(page) <= limit
    assert found == [metadata.ranges[range_id] for range_id in sorted(metadata.ranges)]
    assert pages >= 440 // 50


def test_logs_and_ranges_of_a_cluster_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "logs_max", 2)
    monkeypatch.setattr(limits, "ranges_max", 10)
    controller = Controller().nodes(1)
    assert "ok" in controller.do("create_log", name="a", ranges=6)
    error = controller.do("create_log", name="b", ranges=5)["error"]
    assert (error["code"], error["fields"]["limit"]) == ("LIMIT_EXCEEDED", "ranges_max")
    assert error["fields"]["value"] == 11
    assert "ok" in controller.do("create_log", name="b", ranges=3)
    error = controller.do("create_log", name="c")["error"]
    assert (error["code"], error["fields"]["limit"]) == ("LIMIT_EXCEEDED", "logs_max")
    assert controller.do("create_log", name="b", exist_ok=True)["ok"]["created"] is False
    assert "ok" in controller.do("split_range", log="a", at=b"\x01")
    error = controller.do("split_range", log="b", at=b"\x01")["error"]
    assert error["fields"]["limit"] == "ranges_max", "what is to come of a split counts"
    controller.do("delete_log", name="b")
    assert "ok" in controller.do("create_log", name="c", ranges=3)


@pytest.mark.slow
def test_replicas_of_a_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three logs of 4,096 ranges on three nodes were 12,288 replicas on each, and no leader."""
    controller = Controller().nodes(3)
    metadata = controller.metadata

    def create(name: str, ranges: int, replicas: int) -> str:
        command = {"op": "create_log", "name": name, "ranges": ranges, "replicas": replicas}
        answer = metadata.apply(5, 1, command)
        return "ok" if "ok" in answer else str(answer["error"]["fields"]["limit"])

    assert create("a", 4_096, 3) == "ok"
    assert create("b", 4_096, 3) == "replicas_per_node_max"
    assert create("b", 2_700, 1) == "ok"
    assert create("c", 13, 1) == "replicas_per_node_max"
    assert create("c", 3, 3) == "ok"
    monkeypatch.setattr(limits, "replicas_per_node_max", 4_999)
    error = controller.do("split_range", log="b", at=b"\x01\x02\x03")["error"]
    assert error["fields"]["limit"] == "replicas_per_node_max"
    assert error["fields"]["value"] == 5_000


def test_follows_are_bounded_for_a_connection_and_for_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "follows_max", 5)
    monkeypatch.setattr(limits, "follows_per_connection_max", 3)
    monkeypatch.setattr(limits, "follow_keys_max", 10)
    monkeypatch.setattr(limits, "followed_keys_max", 25)
    follows = Follows()
    with ExitStack() as held:
        for connection, keys in (("a", 10), ("a", 0), ("a", 5), ("b", 0)):
            held.enter_context(follows.one_more(connection, keys))
        with pytest.raises(LimitExceeded, match="the connection has 4 follows") as caught:
            held.enter_context(follows.one_more("a", 0))
        assert caught.value.fields["limit"] == "follows_per_connection_max"
        with pytest.raises(LimitExceeded, match="a follow has 11 keys"):
            held.enter_context(follows.one_more("c", 11))
        monkeypatch.setattr(limits, "followed_keys_max", 20)
        with pytest.raises(Overloaded, match="21 followed keys"):
            held.enter_context(follows.one_more("c", 6))
        held.enter_context(follows.one_more("c", 0))
        with pytest.raises(Overloaded, match="6 follows"):
            held.enter_context(follows.one_more("d", 0))
    assert (follows.count, follows.keys) == (0, 0)
    with follows.one_more("a", 0):
        assert follows.count == 1
