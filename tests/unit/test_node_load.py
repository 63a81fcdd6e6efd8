"""How much replicas are used: rates of one, and what is told of a range by whom."""

from typing import Any

import msgpack
import pytest

from lognode.client.protocol.errors import RemoteProtocolError
from lognode.node.load.load_reports import Load, from_wire, of_range
from lognode.node.replicas.load import SAMPLE_S, WINDOW_S, LoadMeter
from lognode.partitions.load_sample import HotKey
from lognode.partitions.model import Descriptor, Span

RANGE = Descriptor(7, 3, 1, Span(b"", None), (1, 2, 3))
GID = (7, 3)
UNKNOWN = dict.fromkeys(
    ["segment_bytes", "memtable_bytes", "entries_held", "records_per_s", "bytes_per_s",
     "reads_per_s", "hot_key"]
)  # fmt: skip


def load(*, leads: bool, reads: float | None = 1.0, records: float | None = 10.0) -> Load:
    size = None if records is None else 100.0
    return Load(leads, 1000, 200, 30, records, size, reads, None)


def test_rates_are_over_what_there_is_and_then_over_the_last_minute() -> None:
    meter = LoadMeter(100.0)
    assert meter.rates(100.5) is None, "too little to tell"
    meter.appended(20, 4_000)
    meter.read()
    assert meter.rates(102.0) == (10.0, 2_000.0, 0.5)
    now = 100.0
    while now < 100.0 + 2 * WINDOW_S:
        now += SAMPLE_S
        meter.sample(now)
    assert meter.rates(now + 1.0) == (0.0, 0.0, 0.0), "that was before the window"
    meter.appended(610, 0)
    rates = meter.rates(now + 1.0)
    assert rates is not None
    assert rates.records == 610 / (WINDOW_S + 1.0)


def test_requested_pages_do_not_count_as_pushed_pages() -> None:
    meter = LoadMeter(0.0)
    meter.appended(20, 4_000)
    meter.read()
    meter.pushed()
    assert meter.used == 21
    rates = meter.rates(2.0)
    assert rates is not None
    assert rates.reads == 1.0
    meter.begin(2.0)
    assert meter.used == 0


def test_a_member_that_takes_the_lead_counts_from_then_on() -> None:
    meter = LoadMeter(0.0)
    meter.appended(1_000, 1_000)
    meter.begin(10.0)
    assert meter.rates(10.5) is None
    meter.appended(4, 8)
    assert meter.rates(12.0) == (2.0, 4.0, 0.0)


def test_size_and_appends_are_the_leaders_reads_those_of_all_that_answered() -> None:
    by_node = {
        1: {GID: load(leads=False, reads=0.25)},
        2: {GID: load(leads=True), (8, 1): load(leads=True)},
        3: {(7, 2): load(leads=True, reads=50.0)},
        4: {GID: load(leads=False, reads=50.0)},
    }
    assert of_range(RANGE, 2, by_node) == {
        "segment_bytes": 1000, "memtable_bytes": 200, "entries_held": 30,
        "records_per_s": 10.0, "bytes_per_s": 100.0, "reads_per_s": 1.25, "hot_key": None,
    }  # fmt: skip
    del by_node[1]
    assert of_range(RANGE, 2, by_node)["reads_per_s"] == 1.0
    by_node[3][GID] = load(leads=False)._replace(hot_key=HotKey(b"old", 0.9))
    by_node[2][GID] = load(leads=True)._replace(hot_key=HotKey(b"k", 0.75))
    assert of_range(RANGE, 2, by_node)["hot_key"] == {"key": b"k", "share": 0.75}


@pytest.mark.parametrize("leader", [None, 1, 3, 9])
def test_a_load_that_no_leader_reports_is_unknown_and_not_0(leader: int | None) -> None:
    """Nobody leads, it does not lead any more, it has another generation, it does not answer."""
    by_node = {
        1: {GID: load(leads=False)}, 2: {GID: load(leads=True)}, 3: {(7, 2): load(leads=True)}
    }  # fmt: skip
    assert of_range(RANGE, leader, by_node) == UNKNOWN


def test_a_leader_that_has_only_begun_knows_its_size_and_no_rates() -> None:
    told = of_range(RANGE, 1, {1: {GID: load(leads=True, records=None, reads=None)}})
    assert told["segment_bytes"] == 1000
    assert told["records_per_s"] is told["bytes_per_s"] is told["reads_per_s"] is None


def test_loads_travel() -> None:
    shared = load(leads=True)._replace(segment_bytes=None, entries_held=None)
    hot = load(leads=True)._replace(hot_key=HotKey(b"\xff", 0.25))
    loads = {
        GID: load(leads=True), (8, 1): load(leads=False, reads=None), (9, 2): shared, (5, 1): hot,
    }  # fmt: skip
    sent = msgpack.unpackb(msgpack.packb([[*gid, *each] for gid, each in loads.items()]))
    assert from_wire(sent) == loads


@pytest.mark.parametrize(
    "told",
    [
        None, {}, [1], [[]], *(
            [[*row, None]] for row in (
                [7, 3, True, 1, 1, 1, None, None], [7, 3, 1, 1, 1, 1, None, None, None],
                [7, -3, True, 1, 1, 1, None, None, None], [7, 3, True, 1, "1", 1, None, None, None],
                [7, 3, True, 1, 1, 1, -0.5, None, None],
                [7, 3, True, 1, 1, 1, float("nan"), None, None],
                [7, 3, True, True, 1, 1, None, None, None],
                [7, 3, True, None, 1, 1, None, None, None],
                [7, 3, True, None, None, None, None, None, None],
            )
        ),
        *(
            [[7, 3, True, 1, 1, 1, None, None, None, hot]]
            for hot in (5, b"k", [], [b"k"], ["k", 0.5], [b"k", 1], [b"k", 0.5, 0.5])
        ),
    ],
)  # fmt: skip
def test_malformed_loads_are_refused(told: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        from_wire(told)
