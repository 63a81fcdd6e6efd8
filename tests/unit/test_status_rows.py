"""Rows for people, made of a status: sums, loads of nodes, ranges, hot keys."""

from typing import Any

from lognode.client.status_rows import NodeLoads, Totals, hot_keys_of, ranges_of


def a_range(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number, "log": "orders", "leader": 1, "state": "ACTIVE", "operation": None,
        "segment_bytes": 100, "memtable_bytes": 5, "entries_held": 10, "records_per_s": 2.0,
        "bytes_per_s": 20.0, "reads_per_s": 1.0, "hot_key": None,
    } | more  # fmt: skip


UNKNOWN = dict.fromkeys(
    ("segment_bytes", "memtable_bytes", "entries_held", "records_per_s", "bytes_per_s",
     "reads_per_s")
)  # fmt: skip
STATUS: dict[str, Any] = {
    "cluster": {"controller": [1, 2], "controller_leader": 2},
    "nodes": [
        {"id": 2, "state": "ACTIVE"}, {"id": 1, "state": "ACTIVE"}, {"id": 3, "state": "REMOVED"},
    ],
    "operations": [{"id": 7, "kind": "split"}],
    "ranges": [
        a_range(1, log=""),
        a_range(2, operation=7, hot_key={"key": b"k", "share": 0.5}),
        a_range(3, leader=2, hot_key={"key": b"\xff", "share": 1.0}),
        a_range(4, leader=None, state="SEALING", **UNKNOWN),
    ],
}  # fmt: skip


def test_totals_sum_known_values_and_are_unknown_without_any() -> None:
    totals = Totals()
    assert totals.row()["records_per_s"] is None
    for row in STATUS["ranges"]:
        totals.add(row)
    found = totals.row()
    assert (found["records_per_s"], found["segment_bytes"], found["entries_held"]) == (6.0, 300, 30)
    assert found["states"] == {"ACTIVE": 3, "SEALING": 1}
    assert (found["leaderless"], found["hot"]) == (1, 2)


def test_nodes_have_the_loads_of_the_ranges_that_they_lead() -> None:
    loads = NodeLoads()
    for row in STATUS["ranges"]:
        loads.add(row)
    first, second = loads.rows(STATUS)
    assert (first["id"], first["leads"], first["records_per_s"]) == (1, 2, 4.0)
    assert (second["id"], second["leads"], second["reads_per_s"]) == (2, 1, 1.0)
    assert (first["controller"], second["controller"]) == ("member", "leader")


def test_ranges_have_their_operation_and_their_bytes() -> None:
    found = list(ranges_of(STATUS, "orders"))
    assert [row["id"] for row in found] == [2, 3, 4]
    assert [row["bytes"] for row in found] == [105, 105, None]
    assert [row["running_operation"] for row in found] == [STATUS["operations"][0], None, None]


def test_hot_keys_come_with_the_busiest_first() -> None:
    found = hot_keys_of(STATUS)
    assert [(row["key"], row["per_s"], row["range"]) for row in found] == [
        (b"\xff", 3.0, 3), (b"k", 1.5, 2),
    ]  # fmt: skip
