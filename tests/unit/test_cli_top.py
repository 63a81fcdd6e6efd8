"""The screen of `lognode top`."""

from itertools import pairwise
from typing import Any

from lognode.client.cli.printer import width
from lognode.client.cli.top_screen import (
    GROUP_SORTS,
    NODE_SORTS,
    SORTS,
    SORTS_OF,
    VIEWS,
    screen,
)


def _range(range_id: int, **more: Any) -> dict[str, Any]:
    return {
        "id": range_id, "log": f"log{range_id}", "start": b"", "end": None, "leader": 1,
        "members": [1, 2], "state": "ACTIVE", "segment_bytes": None, "entries_held": None,
        "records_per_s": None, "bytes_per_s": None, "reads_per_s": None, "hot_key": None, **more,
    }  # fmt: skip


def _node(node_id: int, **more: Any) -> dict[str, Any]:
    return {
        "id": node_id, "address": f"host{node_id}:4600", "zone": "", "state": "ACTIVE",
        "alive": True, "disk_short": False, "replicas": 3, "version": "1.0", **more,
    }  # fmt: skip


def _status(**more: Any) -> dict[str, Any]:
    return {
        "cluster": {"id": "c1", "feature_level": 3}, "nodes": [_node(1), _node(2)],
        "logs": [{"id": 1}], "operations": [], "damaged": [],
        "ranges": [
            _range(1, records_per_s=10.0, reads_per_s=5.0, segment_bytes=2048, entries_held=1000),
            _range(2, records_per_s=900.4, reads_per_s=1.0, segment_bytes=1024, entries_held=7,
                   leader=2, hot_key={"key": b"user\n7"}),
            _range(3),
        ],
        **more,
    }  # fmt: skip


def _screen(status: dict[str, Any], *, lines: int = 99, columns: int = 200,
            sort: str = "appends", reasons: tuple[str, ...] = ()) -> list[str]:  # fmt: skip
    health = {"ok": not reasons, "reasons": list(reasons)}
    return screen(status, health, sort=sort, clock="12:00:00", lines=lines, columns=columns)


def _ids(lines: list[str]) -> list[str]:
    at = next(i for i, line in enumerate(lines) if line.startswith("RANGES"))
    return [line.split()[0] for line in lines[at + 2 :]]


def test_sums_leave_out_what_no_node_told() -> None:
    lines = _screen(_status())
    assert "healthy" in lines[0]
    assert "feature level 3" in lines[0]
    assert "2 nodes, 1 log, 3 ranges" in lines[1]
    assert lines[2] == (
        "appends 910/s, reads 6/s over a minute; 3.0 KiB in segments, 1,007 entries"
    )
    unknown = _screen(_status(ranges=[_range(3)]))
    assert unknown[2].startswith("appends -/s, reads -/s"), "unknown is not 0"


def test_the_ranges_are_sorted_by_what_was_asked() -> None:
    found = {sort: _ids(_screen(_status(), sort=sort)) for sort in SORTS}
    assert found == {"appends": ["2", "1", "3"], "reads": ["1", "2", "3"],
                     "size": ["1", "2", "3"]}  # fmt: skip


def test_a_node_has_the_appends_of_the_ranges_that_it_leads() -> None:
    lines = _screen(_status(nodes=[_node(1), _node(2, disk_short=True), _node(3, state="REMOVED")]))
    at = lines.index("NODES, by id")
    first, second = lines[at + 2].split(), lines[at + 3].split()
    assert first[1] == "host1:4600"
    assert "10/s" in first
    assert second[1] == "host2:4600"
    assert "900/s" in second
    assert "short" in second
    assert lines[at + 4] == "", "removed nodes are left out"


def test_reasons_stand_below_the_verdict() -> None:
    lines = _screen(_status(), reasons=("a", "b\x1b[2J", "c", "d", "e"))
    assert "NOT HEALTHY" in lines[0]
    assert lines[3:7] == ["! a", "! b\\u001b[2J", "! c", "! and 2 more: see `lognode health`"]


def test_the_next_step_stands_below_the_reasons() -> None:
    lines = screen(
        _status(), {"ok": False, "reasons": ["a"], "next": "start node 2"}, sort="appends",
        clock="", lines=99, columns=99,
    )  # fmt: skip
    assert lines[3:5] == ["! a", "> start node 2"]


def test_the_screen_has_the_size_of_the_terminal() -> None:
    status = _status(ranges=[_range(n) for n in range(500)])
    lines = _screen(status, lines=20, columns=50)
    assert len(lines) == 20
    assert max(map(len, lines)) <= 50
    rest = len(_screen(status, lines=1000)) - 19
    assert lines[-1] == f"... {rest} more lines"
    assert _screen(_status(), lines=0) == []


def test_a_key_with_control_characters_is_one_line() -> None:
    (row,) = [line for line in _screen(_status()) if "user" in line]
    assert row.endswith("user\\n7")


def _lag(entries: int, **more: Any) -> dict[str, Any]:
    return {
        "entries": entries, "bytes": 10 * entries, "oldest_ms": None, "waiting": 1, "in_flight": 2,
        "parked": 0, "begun": True, "consumers": 1, **more,
    }  # fmt: skip


GROUPS = [
    {"log": "orders", "group": "billing", "lag": _lag(7, oldest_ms=1_000, parked=3)},
    {"log": "orders", "group": "audit", "lag": _lag(1_234, oldest_ms=9_000)},
    {"log": "jobs", "group": "resize", "lag": None},
]


def _view(view: str, sort: str, *, lines: int = 99, columns: int = 200, skip: int = 0,
          groups: Any = GROUPS, **more: Any) -> list[str]:  # fmt: skip
    return screen(
        _status(**more), {"ok": True}, sort=sort, clock="12:00:00", lines=lines, columns=columns,
        view=view, groups=groups, skip=skip, now_ms=10_000,
    )  # fmt: skip


def _rows(lines: list[str], column: int) -> list[str]:
    return [line.split()[column] for line in lines[6:]]


def test_groups_are_sorted_and_unknown_lags_come_last() -> None:
    found = {sort: _rows(_view("groups", sort), 1) for sort in GROUP_SORTS}
    assert found == {
        "lag": ["audit", "billing", "resize"], "age": ["billing", "audit", "resize"],
        "parked": ["billing", "audit", "resize"], "group": ["audit", "billing", "resize"],
    }  # fmt: skip
    lines = _view("groups", "lag")
    assert lines[4] == "GROUPS, most lag first"
    assert lines[6].split() == ["orders", "audit", "1,234", "1s", "1", "2", "0", "1", "12.1", "KiB"]
    assert lines[8].split() == ["jobs", "resize", *"-------"]
    assert _view("groups", "lag", groups=None)[5] == "looking"
    assert _view("groups", "lag", groups=[])[5] == "no groups"


def test_nodes_are_sorted_by_what_was_asked() -> None:
    nodes = [_node(1, replicas=1), _node(2, replicas=9), _node(3, replicas=4)]
    found = {sort: _rows(_view("nodes", sort, nodes=nodes), 0) for sort in NODE_SORTS}
    assert found == {"id": ["1", "2", "3"], "appends": ["2", "1", "3"], "leads": ["1", "2", "3"],
                     "replicas": ["2", "3", "1"]}  # fmt: skip


def test_every_view_fits_80_columns_with_what_the_view_is_sorted_by() -> None:
    wide: dict[str, Any] = {
        "segment_bytes": 10**12, "entries_held": 10**10, "records_per_s": 123_456.0,
        "bytes_per_s": 1e9, "reads_per_s": 12_345.0, "hot_key": {"key": b"h" * 40},
        "start": b"s" * 40, "log": "a-log-with-a-long-name-of-many-letters",
    }  # fmt: skip
    nodes = [_node(n, address=f"host{n}.region.example:4600", zone="rack-1") for n in (1, 2, 3)]
    for view in VIEWS:
        for sort in SORTS_OF[view]:
            lines = _view(view, sort, lines=23, columns=79, nodes=nodes, ranges=[_range(1, **wide)])
            (head,) = [
                line for title, line in pairwise(lines)
                if title.startswith((view.upper(), "RANGES" if view == "overview" else "?"))
            ]  # fmt: skip
            assert sort.upper() in head, (view, sort)
            assert max(map(len, lines)) <= 79
            assert not [line for line in lines if line.endswith(("...", "…"))]


def test_a_long_table_scrolls_to_its_end_and_no_further() -> None:
    ranges = [_range(n) for n in range(50)]
    plain = _view("ranges", "appends", lines=20, ranges=ranges)
    assert _rows(plain, 0)[:-1] == [str(n) for n in range(13)]
    assert plain[-1] == "... 37 more lines"
    some = _view("ranges", "appends", lines=20, skip=5, ranges=ranges)
    assert some[:6] == plain[:6], "the heads stay"
    assert _rows(some, 0)[:-1] == [str(n) for n in range(5, 18)]
    end = _view("ranges", "appends", lines=20, skip=10**9, ranges=ranges)
    assert _rows(end, 0) == [str(n) for n in range(36, 50)]


def test_wide_characters_keep_the_columns_of_the_screen() -> None:
    ranges = [
        _range(1, log="日本" * 20, hot_key={"key": "キー".encode() * 9}, records_per_s=2.0),
        _range(2, log="plain", hot_key={"key": "a\u202eb".encode()}, records_per_s=1.0),
    ]
    lines = _view("ranges", "appends", lines=23, columns=79, ranges=ranges)
    assert max(map(width, lines)) <= 79
    head, first, second = lines[-3:]
    assert width(first.partition("2/s")[0]) == width(second.partition("1/s")[0])
    assert width(second.partition("1/s")[0]) + 3 == width(head.partition("APPENDS")[0]) + 7
    (wide,) = [line for line in _view("ranges", "appends", ranges=ranges) if "plain" in line]
    assert "a\\u202eb" in wide
