"""Splits by load: when a range is sampled, and what the planner makes of what its leader tells."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pure_nodes import do

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.key_column import KeyColumn
from lognode.client.protocol.peers import HEARTBEAT
from lognode.node.load.busy_ranges import HotRanges
from lognode.node.metrics import Metrics
from lognode.node.serving import reads
from lognode.partitions import commands
from lognode.partitions.change import next_steps
from lognode.partitions.facts import Facts
from lognode.partitions.load_sample import Halves, HotKey, Sample
from lognode.partitions.load_split import LOOK_S, WINDOW_S, LoadSplit, rests
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import LastOperation, Span
from lognode.partitions.planner import Large, Planned, plan
from lognode.raft.types import GroupId

TOLD: Any = {"generation": 1, "version": 1, "leaders": [], "seen": [0, 0, 0]}

BOUND = 1_000
LOOKS = int(WINDOW_S / LOOK_S)


class Watched:
    """A range under a load, looked at every second."""

    def __init__(self) -> None:
        self.load = LoadSplit(random.Random(7))
        self._rng = random.Random(8)
        self.now = self.used = 0.0
        self.load.look(0.0, 0, BOUND)

    def go_on(self, rate: float, looks: int = 1, key: Callable[[], bytes] | None = None) -> Any:
        """So many seconds of such a load; what is found at the end."""
        for _ in range(looks):
            sample = self.load.sample
            for _ in range(int(rate) // 10):
                if sample is not None:
                    sample.appended(KeyColumn.of([(key or self._any_key)()] * 10), together=False)
            self.now, self.used = self.now + LOOK_S, self.used + rate
            self.load.look(self.now, int(self.used), BOUND)
        return self.load.found

    def sampled(self) -> bool:
        return self.load.sample is not None

    def _any_key(self) -> bytes:
        return b"%.6f" % self._rng.random()


def test_a_range_that_is_not_busy_is_never_sampled() -> None:
    watched = Watched()
    for rate in (0, 10, BOUND) * 10:
        assert watched.go_on(rate) is None
        assert watched.load.sample is None


def test_a_range_is_halved_after_ten_seconds_over_the_bound_and_no_sooner() -> None:
    watched = Watched()
    assert watched.go_on(2 * BOUND) is None
    assert watched.load.sample is not None
    assert watched.go_on(2 * BOUND, LOOKS - 1) is None
    found = watched.go_on(2 * BOUND)
    assert isinstance(found, Halves)
    assert 0.35 < float(found.at) < 0.65
    assert watched.load.rate == 2 * BOUND


def test_a_finding_holds_until_the_next_window() -> None:
    watched = Watched()
    found = watched.go_on(2 * BOUND, LOOKS + 1)
    assert isinstance(found, Halves)
    assert watched.go_on(3 * BOUND, LOOKS - 1, lambda: b"hot") is found
    assert watched.go_on(3 * BOUND, 1, lambda: b"hot") == HotKey(b"hot", 1.0)
    assert watched.load.rate == 3 * BOUND
    assert watched.go_on(0, LOOKS) is None
    assert watched.load.sample is None


def test_a_burst_is_not_lasting_and_a_pause_ends_nothing() -> None:
    burst = Watched()
    burst.go_on(50 * BOUND, 4)
    assert burst.sampled()
    assert burst.go_on(BOUND / 2, LOOKS) is None
    assert not burst.sampled()
    pauses = Watched()
    found: Any = None
    for rate in (1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1):
        found = pauses.go_on(rate * 2 * BOUND)
    assert isinstance(found, Halves)


def test_a_window_in_which_too_little_was_seen_goes_on() -> None:
    watched = Watched()
    watched.go_on(2 * BOUND)
    for second in range(1, LOOKS + 1):  # nobody shows anything
        watched.now, watched.used = watched.now + LOOK_S, watched.used + 2 * BOUND
        sample = watched.load.sample
        watched.load.look(watched.now, int(watched.used), BOUND)
        assert watched.load.found is None, second
        assert watched.load.sample is sample
    assert isinstance(watched.go_on(2 * BOUND, LOOKS), Halves)


def test_a_lead_that_begins_anew_forgets_what_was_before() -> None:
    watched = Watched()
    assert watched.go_on(2 * BOUND, LOOKS + 1) is not None
    watched.used = 0
    watched.now += LOOK_S
    watched.load.look(watched.now, 0, BOUND)
    assert (watched.load.found, watched.load.sample) == (None, None)
    assert isinstance(watched.go_on(2 * BOUND, LOOKS + 1), Halves)


def test_however_busy_a_range_is_about_as_much_of_it_is_looked_at() -> None:
    seen = []
    for rate in (2 * BOUND, 20 * BOUND, 100 * BOUND):
        watched = Watched()
        watched.go_on(rate, LOOKS)
        assert watched.load.sample is not None
        seen.append(watched.load.sample._seen)
    assert all(500 < count < 1_500 for count in seen), seen


MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("kind", "outcome", "ago_ms", "expected"),
    [
        ("split", "DONE", 0, True),
        ("split", "DONE", 10 * MINUTE_MS - 1, True),
        ("split", "DONE", 10 * MINUTE_MS, False),
        ("split", "ABORTED", MINUTE_MS, True),
        ("merge", "DONE", MINUTE_MS, True),
        ("move", "DONE", MINUTE_MS, False),
        ("expand", "DONE", 0, False),
        ("split", "DONE", -MINUTE_MS, True),
        ("split", "DONE", -60 * MINUTE_MS, False),
    ],
    ids=["just split", "almost", "rested", "given up", "merged", "moved", "grown",
         "clocks differ", "clocks differ much"],
)  # fmt: skip
def test_a_range_rests_after_a_split(kind: str, outcome: str, ago_ms: int, expected: bool) -> None:
    last = LastOperation(4, kind, "why", outcome, 100 * MINUTE_MS)
    assert rests(last, 100 * MINUTE_MS + ago_ms, 10 * MINUTE_MS) is expected
    assert not rests(last, 100 * MINUTE_MS + ago_ms, 0)
    assert not rests(None, 100 * MINUTE_MS, 10 * MINUTE_MS)


# The planner.

BUSY = Large(1, 1, 30_000, b"m", by_load=True)


def cluster(**log: Any) -> Metadata:
    metadata = Metadata()
    do(metadata, op=commands.FOUND, cluster="c", node=1)
    for node in (1, 2, 3):
        do(metadata, op=commands.REGISTER, incarnation=node, boot=1, process=1, address="a:1")
    do(metadata, op=commands.CREATE_LOG, name="orders", **log)
    do(metadata, op=commands.SEAL_CONTROLLER, members=[1, 2, 3], kind="expand", reason="three")
    metadata.begin_generation()
    return metadata


def asked(metadata: Metadata, *large: Large, alive: Any = (1, 2, 3), **more: Any) -> list[Planned]:
    return plan(metadata, set(alive), {}, large=large, **more)


def test_a_busy_range_is_split_where_its_load_halves_and_says_why() -> None:
    metadata, facts = cluster(), Facts()
    (planned,) = asked(metadata, BUSY)
    assert (planned.kind, planned.range_id, planned.at) == ("split", 1, b"m")
    facts.heard, facts.large = dict.fromkeys((1, 2, 3), 100.0), {2: [BUSY]}
    (step,) = next_steps(metadata, facts, 100.0, leads_for_s=100.0)
    do(metadata, **step)
    (operation,) = metadata.operations.values()
    assert operation.reason == "load: 30,000/s, more than 20,000/s: split at key 'm'"
    assert [output.span for output in operation.outputs] == [Span(b"", b"m"), Span(b"m", None)]
    do(metadata, op=commands.ABORT, operation=1)
    assert next_steps(metadata, facts, 101.0, leads_for_s=100.0) == [], "not at once again"


def test_a_key_without_text_is_shown_by_its_digits() -> None:
    (planned,) = asked(cluster(), BUSY._replace(at=b"\xff\x00"))
    assert planned.reason.endswith("split at key 0xff00")


@pytest.mark.parametrize(
    ("busy", "more"),
    [
        (BUSY._replace(size=limits.split_rate_default), {}),
        (BUSY._replace(generation=2), {}),
        (BUSY._replace(range_id=9), {}),
        (BUSY._replace(at=b""), {}),
        (BUSY._replace(range_id=2, at=b"c"), {}),
        (BUSY, {"resting": {1}}),
        (BUSY, {"alive": {1, 2}}),
    ],
    ids=["not busier", "generation", "range", "no key", "another's key", "just split",
         "a member is away"],
)  # fmt: skip
def test_no_split_is_planned(busy: Large, more: dict[str, Any]) -> None:
    assert asked(cluster(split_at=[b"n"]), busy, **more) == []


def test_no_split_is_planned_while_another_operation_has_the_range() -> None:
    metadata = cluster()
    do(metadata, op=commands.SPLIT, log="orders", at=b"c")
    assert asked(metadata, BUSY) == []


def test_the_policy_has_a_bound_of_its_own_for_load_and_for_size() -> None:
    for bound, count in ((None, 0), (30_000, 0), (29_999, 1)):
        assert len(asked(cluster(split_rate=bound, split_bytes=None), BUSY)) == count, bound
    # 30,000 bytes are less than any range is split for.
    assert asked(cluster(), BUSY._replace(by_load=False)) == []
    metadata = cluster()
    do(metadata, op=commands.ALTER_LOG, name="orders", changes={"split_rate": None})
    assert asked(metadata, BUSY) == []
    large = BUSY._replace(size=600 * limits.MIB, by_load=False)
    assert len(asked(metadata, large)) == 1


def test_a_range_that_is_large_and_busy_is_split_once() -> None:
    large = Large(1, 1, 600 * limits.MIB, b"k")
    assert len(asked(cluster(), large, BUSY)) == len(asked(cluster(), BUSY, large)) == 1


@pytest.mark.parametrize("wrong", [5, [5], [[1, 1, 9]], [[1, 1, 9, "m"]], [[1, 1, 9, b"m", True]]])
def test_a_peer_that_tells_of_busy_ranges_in_no_known_way_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument):
        HEARTBEAT.request.check({**TOLD, "busy": wrong})


# On the leader.


class Ranges:
    """One range, that is busy, under a node's look; `go_on` brings it to the end of a window."""

    def __init__(self, *hot: bytes) -> None:
        self.metadata = cluster()
        self.now_ms = 0
        self.metrics = Metrics()
        self.replica: Any = SimpleNamespace(
            gid=GroupId(1, 1), leads=True, is_sealed=False, load=SimpleNamespace(used=0),
            descriptor=self.metadata.ranges[1], sample=None, hot_key=None,
            state=SimpleNamespace(memtable_bytes=0, queue=[]), propose_freeze=self._freeze,
            watch_keys=self._watch_keys,
        )  # fmt: skip
        self.freezes = 0
        parts: Any = SimpleNamespace(
            ranges=lambda: [self.replica], metadata=self.metadata,
            policy=lambda log_id: self.metadata.logs[log_id].policy,
        )  # fmt: skip
        self.ranges = HotRanges(
            host=parts, view=parts, rng=random.Random(6), wall_ms=lambda: self.now_ms,
            rest_s=600, metrics=self.metrics,
        )  # fmt: skip
        load = LoadSplit(random.Random(7))
        began = time.monotonic() - 3 * WINDOW_S
        for second in range(2 * LOOKS):
            load.look(began + second, second * 30_000, limits.split_rate_default)
            for n in range(100 if load.sample else 0):
                assert load.sample is not None
                one = hot[0] if hot else b"%02d" % n
                load.sample.appended(KeyColumn.of([one] * 300), together=False)
        assert load.found is not None
        self.replica.load.used = 1_000_000_000
        self.ranges._looked[self.replica.gid] = load

    def _freeze(self) -> None:
        self.freezes += 1

    def _watch_keys(self, sample: Sample | None, hot: HotKey | None) -> None:
        self.replica.sample, self.replica.hot_key = sample, hot

    def look(self) -> list[Large]:
        asyncio.run(self.ranges.look())
        return self.ranges.told

    @property
    def hot_ranges(self) -> float | None:
        return self.metrics.registry.get_sample_value("lognode_hot_ranges")


def test_a_leader_tells_where_the_load_of_a_range_halves() -> None:
    busy = Ranges()
    (told,) = busy.look()
    assert told[:3] == (1, 1, 30_000)
    assert told.by_load
    assert b"35" <= told.at <= b"65"
    assert busy.replica.sample is not None
    assert busy.hot_ranges == 0
    assert asked(busy.metadata, told)[0].at == told.at


def test_a_hot_key_is_reported_and_is_not_a_reason_to_split() -> None:
    busy = Ranges(b"hot")
    assert busy.look() == []
    assert busy.replica.hot_key == HotKey(b"hot", 1.0)
    assert busy.hot_ranges == 1
    busy.replica.leads = False
    assert busy.look() == []
    assert (busy.replica.hot_key, busy.replica.sample) == (None, None)
    assert busy.hot_ranges == 0


def test_the_children_of_a_split_are_sampled_and_rest() -> None:
    busy = Ranges()
    ended_ms = 1_000_000
    busy.metadata.last_operations[1] = LastOperation(4, "split", "why", "DONE", ended_ms)
    for after_s, count in ((0, 0), (599, 0), (601, 1)):
        busy.now_ms = ended_ms + after_s * 1_000
        assert len(busy.look()) == count
        assert busy.replica.sample is not None


def test_memtables_are_flushed_first_because_appends_wait() -> None:
    busy = Ranges()
    state = busy.replica.state
    state.memtable_bytes = (16 << 20) + 1
    assert busy.look() == []
    assert busy.freezes == 1
    state.queue = ["with the builder"]
    assert busy.look() == []
    assert busy.freezes == 1
    state.memtable_bytes = 16 << 20
    assert len(busy.look()) == 1
    assert busy.freezes == 1


def test_a_range_that_rests_has_nothing_made_ready_for_a_split() -> None:
    busy = Ranges()
    busy.replica.state.memtable_bytes = 32 << 20
    busy.metadata.last_operations[1] = LastOperation(4, "split", "why", "DONE", 1_000)
    assert busy.look() == []
    assert busy.freezes == 0


@pytest.mark.parametrize(
    "changed", [{"operation": 3}, {"generation": 2}], ids=["in operation", "ended"]
)
def test_a_range_that_is_being_changed_is_not_told_of(changed: dict[str, Any]) -> None:
    busy = Ranges()
    busy.metadata.ranges[1] = replace(busy.metadata.ranges[1], **changed)
    assert busy.look() == []


@pytest.mark.parametrize("why", ["policy", "sealed"])
def test_a_range_that_is_not_to_be_split_is_not_sampled(why: str) -> None:
    busy = Ranges()
    assert busy.look()
    if why == "policy":
        do(busy.metadata, op=commands.ALTER_LOG, name="orders", changes={"split_rate": None})
    else:
        busy.replica.is_sealed = True
    assert busy.look() == []
    assert busy.replica.sample is None


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ({"key": b"k"}, [(b"k", b"k\0")]),
        ({"key": b"a"}, []),
        ({"start_key": b"x", "end_key": b"y"}, [(b"x", b"y")]),
        ({"start_key": b"", "end_key": None}, [(b"d", None)]),
        ({"prefix": b"f", "start_after": b"ff"}, [(b"ff", None)]),
        ({}, [(b"d", None)]),
        ({"key": 7, "start_key": [], "end_key": "z"}, [(b"d", None)]),
    ],
    ids=["a key", "another range's", "a span", "all", "keys of a prefix", "nothing", "rubbish"],
)  # fmt: skip
def test_the_sample_sees_the_keys_of_reads(body: Any, seen: list[Any]) -> None:
    shown: list[Any] = []
    replica: Any = SimpleNamespace(
        sample=SimpleNamespace(read=lambda *span: shown.append(span)),
        descriptor=cluster(split_at=[b"d"]).ranges[2],
    )
    reads.show(replica, body)
    assert shown == seen
