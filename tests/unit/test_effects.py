"""The hash of what entries did: what it tells apart, and where it is not compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from applied_entries import ENTRIES, FIRST, applied, begun

from lognode.client.protocol.errors import Conflict
from lognode.statemachine.effects import VERSION, Effects, differ, of_reply
from lognode.statemachine.range_state import Base, RangeState


def forgets_a_retirement(state: RangeState) -> None:
    state.producers.retire = lambda producers: None  # type: ignore[method-assign]


def gives_the_next_seq_but_one(state: RangeState) -> None:
    add = state.memtable.add

    def wrong(*args: Any) -> Any:
        state.memtable.add = add  # type: ignore[method-assign]
        state.next_seq += 1
        state.memtable.first_seq += 1
        return add(*args)

    state.memtable.add = wrong  # type: ignore[method-assign]


def trims_one_more(state: RangeState) -> None:
    raise_floors = state.removal.raise_floors
    state.removal.raise_floors = lambda floors: raise_floors(  # type: ignore[method-assign]
        {key: before + 1 for key, before in floors.items()}
    )


def trims_other_keys(state: RangeState) -> None:
    trim = state.removal.trim_spans
    state.removal.trim_spans = lambda trims: trim(  # type: ignore[method-assign]
        [(start, b"bb", before) for start, _, before in trims]
    )


def holds_a_lease_for_longer(state: RangeState) -> None:
    take = state.removal.take_lease

    def wrong(lease: Any, log_ms: int) -> Any:
        lease.expires_ms += 1
        return take(lease, log_ms)

    state.removal.take_lease = wrong  # type: ignore[method-assign]


def forgets_a_fence(state: RangeState) -> None:
    fence = state.producers.fence
    state.producers.fence = (  # type: ignore[method-assign]
        lambda producer, epoch, token, ms: fence(producer, 0, token, ms)
    )


def ignores_a_condition(state: RangeState) -> None:
    state._refused = lambda *_: {}  # type: ignore[method-assign]


def settles_a_number(state: RangeState) -> None:
    record = state.producers.record

    def wrong(batch: Any, *args: Any) -> None:
        record(batch, *args)
        state.producers.rows[batch.producer].low += 1

    state.producers.record = wrong  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "planted",
    [forgets_a_retirement, gives_the_next_seq_but_one, trims_one_more, trims_other_keys,
     holds_a_lease_for_longer, forgets_a_fence, ignores_a_condition, settles_a_number],
)  # fmt: skip
def test_S12_x6_a_different_apply_shows_only_in_the_hash_of_effects(
    tmp_path: Path, planted: Callable[[RangeState], None]
) -> None:
    right, wrong = begun(tmp_path), begun(tmp_path)
    planted(wrong)
    assert differ(applied(right), applied(wrong))
    assert right.state_hash == wrong.state_hash, "the hash of commands sees nothing"


def test_the_hash_of_effects_goes_on_from_a_base_of_exactly_its_index(tmp_path: Path) -> None:
    whole = begun(tmp_path)
    expected = applied(whole)
    frozen = whole.queue[0]  # by the FREEZE, before the last three entries
    assert frozen.applied_index == FIRST + 6
    frozen.producers.finish()
    base = Base(frozen.applied_index, frozen.applied_term, [], frozen.tables)
    assert applied(begun(tmp_path, base), ENTRIES[6:]) == expected
    whole.apply(whole.applied_index + 1, 2, ENTRIES[0])
    assert whole.effects.to_wire() == expected, "what follows the seal is void"


def test_members_that_cannot_be_compared_do_not_differ(tmp_path: Path) -> None:
    state = begun(tmp_path)
    expected = applied(state)
    frozen = state.queue[0]
    frozen.producers.finish()
    tables = dict(frozen.tables)
    for stored in (b"", bytes([VERSION + 1]) + tables["effects"][1:]):
        # An upgrade in the middle of a generation: no hash of this program's version is there.
        old = begun(tmp_path, Base(FIRST + 6, 1, [], {**tables, "effects": stored}))
        assert not differ(applied(old, ENTRIES[6:]), expected)
    assert not differ(expected, b"")
    assert not differ(b"", expected)
    assert differ(expected, expected[:-1] + b"?")


def test_a_generation_begins_its_own_hash(tmp_path: Path) -> None:
    """Whatever programs its parents' members were."""
    state = begun(tmp_path, Base(tables={"effects": applied(begun(tmp_path))}))
    assert state.effects.to_wire() == Effects(b"", FIRST, begins=True).to_wire()


def test_the_text_of_a_refusal_is_not_hashed() -> None:
    def refused(text: str) -> Any:
        error = {"code": Conflict.code, "message": text, "fields": {"limit": text}}
        return of_reply({"status": "error", "error": error})

    assert refused("as it was") == refused("as it is worded now")
