"""`lognode range list --wide`: what it shows of a status, and in which words."""

from typing import Any

import pytest

from lognode.client.cli.quantities import age, size
from lognode.client.cli.verbs_ranges import in_words, widened

ROW: dict[str, Any] = {"id": 1, "log": "a", "generation": 2, "state": "ACTIVE"}
KNOWN: dict[str, Any] = {
    **ROW, "operation": 0, "segment_bytes": 1_048_576, "memtable_bytes": 524_288,
    "entries_held": 12, "records_per_s": 2.25, "bytes_per_s": 2_048.0, "reads_per_s": 0.5,
    "last_operation": {"id": 4, "kind": "repair", "reason": "the replica of node 2: lost",
                       "outcome": "DONE", "ended_at_ms": 1_000_000},
}  # fmt: skip


def words(known: dict[str, Any], *operations: dict[str, Any]) -> dict[str, Any]:
    (row,) = widened([ROW], {"ranges": [known], "operations": list(operations)})
    return in_words(row, 1_185_000)


def test_quantities_have_their_units() -> None:
    row = words(KNOWN)
    assert (row["size"], row["entries"]) == ("1.5 MiB", 12)
    assert (row["appends"], row["reads"]) == ("2.2/s 2.0 KiB/s", "0.5/s")
    assert row["last"] == "repair DONE 3m ago: the replica of node 2: lost"


def test_a_hot_key_is_shown_with_the_state() -> None:
    assert words(KNOWN)["state"] == "ACTIVE"
    row = words({**KNOWN, "hot_key": {"key": b"user-7", "share": 0.716}})
    assert row["state"] == 'ACTIVE, hot key "user-7" has 72% of the load'
    row = words({**KNOWN, "hot_key": {"key": b"\xff", "share": 1.0}})
    assert row["state"] == 'ACTIVE, hot key {"b64": "/w=="} has 100% of the load'
    assert row["hot_key"] == {"key": b"\xff", "share": 1.0}


def test_a_running_operation_is_shown_before_an_ended_one() -> None:
    running = {"id": 5, "kind": "expand", "phase": "SEALING", "reason": "needs 3 replicas"}
    row = words({**KNOWN, "operation": 5}, running)
    assert row["last"] == "expand is SEALING: needs 3 replicas"
    assert row["running_operation"] == running


def test_a_range_that_was_never_changed_has_no_reason_and_an_old_one_no_time() -> None:
    assert words({**KNOWN, "last_operation": None})["last"] is None
    undated = {**KNOWN["last_operation"], "ended_at_ms": None}
    assert words({**KNOWN, "last_operation": undated})["last"].startswith(
        "repair DONE at an unknown time: "
    )


@pytest.mark.parametrize("generation", [1, 3])
def test_a_report_of_another_generation_is_ignored(generation: int) -> None:
    row = words({**KNOWN, "generation": generation})
    shown = {row[name] for name in ("size", "entries", "appends", "reads")}
    assert shown == {"unknown"}
    assert row["records_per_s"] is None


def test_ages_and_sizes_take_the_largest_unit_that_fits() -> None:
    told = {-5: "0s", 999: "0s", 59_999: "59s", 60_000: "1m", 7_200_000: "2h", 86_400_000: "1d"}
    assert {ms: age(ms) for ms in told} == told
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", (1 << 20) - 1: "1.0 MiB", 5 << 50:
             "5120.0 TiB"}  # fmt: skip
    assert {count: size(count) for count in sizes} == sizes
