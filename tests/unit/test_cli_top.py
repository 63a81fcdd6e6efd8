"""The screen of `lognode top`."""

from typing import Any

from lognode.client.cli.top_screen import SORTS, screen


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
    assert "2 nodes, 1 logs, 3 ranges" in lines[1]
    assert lines[2] == (
        "appends 910/s, reads 6/s over the last minute; 3.0 KiB in segments, 1,007 entries"
    )
    unknown = _screen(_status(ranges=[_range(3)]))
    assert unknown[2].startswith("appends -/s, reads -/s"), "unknown is not 0"


def test_the_ranges_are_sorted_by_what_was_asked() -> None:
    found = {sort: _ids(_screen(_status(), sort=sort)) for sort in SORTS}
    assert found == {"appends": ["2", "1", "3"], "reads": ["1", "2", "3"],
                     "size": ["1", "2", "3"]}  # fmt: skip


def test_a_node_has_the_appends_of_the_ranges_that_it_leads() -> None:
    lines = _screen(_status(nodes=[_node(1), _node(2, disk_short=True), _node(3, state="REMOVED")]))
    at = lines.index("NODES")
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
