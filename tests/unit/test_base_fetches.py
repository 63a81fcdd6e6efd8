"""Which states a duty takes from peers, and how long their files stay, by the pure rules alone."""

from dataclasses import replace
from typing import Any, Final

import pytest

from lognode.node.directory import meta_keys
from lognode.node.rules.base_fetches import (
    BeginLate,
    Copied,
    Fetch,
    KeepEnd,
    Own,
    Reinstall,
    Store,
    Stored,
    fits,
    parents_of,
    peers_to_ask,
    pin_of,
    prepared_over,
    sources_of,
    unpinned,
    use_of,
)
from lognode.node.rules.generation_ends import (
    PreparedEnd,
    end_of,
    is_at,
    prepared,
    prepared_end,
    prepared_puts,
)
from lognode.partitions import duties
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor, Lineage, NodeRecord, Operation, Span
from lognode.statemachine.effects import Effects
from lognode.statemachine.range_state import Base

G1: Final = (1, 1)
EFFECTS: Final = Effects(b"", 1, begins=True).to_wire()
TABLES: Final = {
    "sealed": [5, 9, 2], "next_seq": 40, "last_timestamp_ms": 7, "hash": b"h", "effects": EFFECTS,
}  # fmt: skip
SEALED: Final = Base(9, 2, tables=TABLES)
END: Final = Lineage(1, 1, 9, 2, 40, 7, b"h")
NEXT: Final = Descriptor(1, 2, 1, Span(b"", None), (1, 2), (END,), operation=5)
BEGIN: Final = duties.Begin(NEXT, campaign=False, parents=("peers",))


def test_x6_a_base_is_at_an_end_only_with_its_entry_state_and_effects() -> None:
    assert end_of(G1, SEALED) == END
    assert is_at(G1, SEALED, (END, EFFECTS))
    assert is_at(G1, SEALED, (END, b"")), "a member of an earlier version told no effects"
    for tables in (
        {"hash": b"x"},
        {"next_seq": 41},
        {"sealed": None},
        {"effects": EFFECTS[:-1] + b"x"},
    ):
        assert not is_at(G1, Base(9, 2, tables={**TABLES, **tables}), (END, EFFECTS))
    assert end_of(G1, Base(8, 2, tables=TABLES)) is None


@pytest.mark.parametrize(
    ("duty", "base", "applied", "used"),
    [
        (duties.CatchUp(G1), Base(8, 1), 7, True),
        (duties.CatchUp(G1), Base(8, 1), 8, False),
        (duties.Prepare(G1, 5), SEALED, 0, True),
        (duties.Prepare(G1, 5), Base(8, 1), 0, False),
        (duties.Copy(G1, 5), Base(8, 1), 0, True),
        (BEGIN, SEALED, 0, True),
        (BEGIN, Base(9, 3, tables={**TABLES, "sealed": [5, 9, 3]}), 0, False),
        (duties.Begin(NEXT, campaign=False, late=True), Base(30, 4), 0, True),
    ],
)
def test_x6_a_duty_uses_the_bases_that_fit(duty: Any, base: Base, applied: int, used: bool) -> None:
    assert fits(duty, G1, base, applied) is used


def test_where_the_parents_states_are() -> None:
    key = meta_keys.prepared_key(5, 1)
    source: Any
    for source, parent in (
        ("own", Own(G1)),
        ("recovered", Own(G1)),
        ("prepared", Stored(G1, key)),
        ("peers", Fetch(G1, NEXT.ends()[0])),
    ):
        assert parents_of(duties.Begin(NEXT, campaign=False, parents=(source,))) == [parent]


def test_members_are_asked_first_and_removed_nodes_never() -> None:
    metadata = Metadata()
    for node in range(1, 6):
        register = {"op": "register", "incarnation": node, "boot": 1, "address": "h:1"}
        assert "ok" in metadata.apply(node, 1, register)
    metadata.ranges[1] = Descriptor(1, 1, 1, Span(b"", None), (1, 4, 5))
    metadata.nodes[2] = replace(metadata.nodes[2], state="REMOVED")
    assert peers_to_ask(metadata, 1, G1) == [4, 5, 3]
    assert peers_to_ask(metadata, 1, (9, 1)) == [3, 4, 5]


def test_files_stay_while_their_operation_or_their_duty_is_there() -> None:
    copied, prepares, begins = (
        pin_of(duties.Copy(G1, 5), G1), pin_of(duties.Prepare(G1, 5), G1), pin_of(BEGIN, G1),
    )  # fmt: skip
    assert copied == prepares
    pins = [copied, begins]
    name = duties.name_of(BEGIN)
    assert unpinned(pins, {5}, {name}) == []
    assert unpinned(pins, {5}, ()) == [begins]
    assert unpinned(pins, (), {name}) == [copied]


def test_x2_17_a_prepared_state_stays_while_a_generation_is_to_begin() -> None:
    keys = list(prepared_puts(5, G1, SEALED))
    assert prepared_over(keys, {5}, []) == []
    assert prepared_over(keys, (), []) == keys
    assert prepared_over(keys, (), [duties.Flush(G1)]) == keys
    assert prepared_over(keys, (), [BEGIN]) == []


def test_a_prepared_row_tells_its_end_and_effects() -> None:
    rows = prepared_puts(5, G1, SEALED)
    assert prepared_end(rows[meta_keys.prepared_key(5, 1)]).lineage == END
    move = Operation(5, "move", (G1, (7, 1)), (), "SEALING")

    def read(key: str) -> PreparedEnd | None:
        return prepared_end(rows[key]) if key in rows else None

    found = prepared({5: move}, read)
    assert found.ends == {(5, G1): END}
    assert found.effects == {(5, G1): EFFECTS}


def test_a_replica_that_is_behind_asks_its_leader_alone() -> None:
    metadata = Metadata()
    for node in (1, 2, 3):
        metadata.nodes[node] = NodeRecord(node, "", "", "", node, 1, "ACTIVE")
    behind = duties.CatchUp(G1)
    assert sources_of(behind, G1, metadata, 1, 3) == [3]
    assert sources_of(behind, G1, metadata, 1, None) == []
    assert sources_of(behind, G1, metadata, 1, 1) == [], "this node leads by now"
    assert sources_of(duties.Copy(G1, 5), G1, metadata, 1, None) == [2, 3]
    assert sources_of(duties.Copy(G1, 5), G1, metadata, 1, 3) == [3, 2]
    assert sources_of(duties.Copy(G1, 5), G1, metadata, 1, 1) == [2, 3], "this node leads"


def test_a_fetched_state_is_used_as_the_duty_says() -> None:
    late = replace(BEGIN, late=True)
    assert use_of(duties.CatchUp(G1), G1, SEALED) == Reinstall(SEALED)
    assert use_of(duties.Copy(G1, 5), G1, SEALED) == Copied(5, G1)
    assert use_of(duties.Prepare(G1, 5), G1, SEALED) == Store(prepared_puts(5, G1, SEALED))
    assert use_of(late, (1, 2), SEALED) == BeginLate(NEXT, SEALED)
    assert use_of(BEGIN, G1, SEALED) == KeepEnd(SEALED)
