"""x11: producer rows go by a replicated command after 24 h unused, and for no other reason."""

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Fenced, Overloaded
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.node.replicas.producer_use import ProducerUse, retire_at_once_max
from lognode.statemachine import commands
from lognode.statemachine.producers import Producers
from lognode.statemachine.range_state import RangeState

HOUR = 3600.0


class Monotonic:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Monotonic:
    return Monotonic()


def test_x11_a_row_unused_for_24_h_goes(clock: Monotonic) -> None:
    use = ProducerUse(clock)
    use.used(7)
    assert use.unused([7, 8]) == []
    clock.now += 20 * HOUR
    use.used(8)
    clock.now += 4 * HOUR
    assert use.unused([7, 8]) == [7]
    clock.now += 20 * HOUR
    assert use.unused([7, 8]) == [7, 8]


def test_x11_a_new_leader_counts_from_its_beginning(clock: Monotonic) -> None:
    use = ProducerUse(clock)
    use.used(7)
    clock.now += 23 * HOUR
    use.began_to_lead()
    assert use.unused([7]) == []
    clock.now += 23 * HOUR
    assert use.unused([7]) == []
    clock.now += HOUR
    assert use.unused([7]) == [7]


def test_commands_stay_small_and_what_is_gone_is_forgotten(clock: Monotonic) -> None:
    use = ProducerUse(clock)
    rows = range(1, 3 * retire_at_once_max)
    use.unused(rows)
    clock.now += 24 * HOUR
    assert len(use.unused(rows)) == retire_at_once_max
    use.unused([])
    assert not use._used_at


def batch(producer: int, number: int = 1) -> bytes:
    return encode_batch(
        [b"k"], [b"v"], producer=producer, epoch=1, low=1, numbers=number, compress=False
    )


@pytest.mark.slow
def test_at_the_limit_new_producers_are_refused_and_live_ones_stay() -> None:
    table = Producers()
    for producer in range(1, limits.producers_per_range_max + 1):
        table.fence(producer, 1, 1, 0)
    assert isinstance(table.check(decode_batch(batch(10**9))), Overloaded)
    assert isinstance(table.fence(10**9, 1, 1, 0), Overloaded)
    assert len(table.rows) == limits.producers_per_range_max
    assert table.check(decode_batch(batch(5))) is None
    assert table.fence(5, 2, 2, 0) is None
    assert isinstance(table.check(decode_batch(batch(5))), Fenced)
    table.retire([6])
    assert table.check(decode_batch(batch(10**9))) is None


def test_x11_retiring_is_a_command_that_every_member_applies(tmp_path: object) -> None:
    from lognode.statemachine.segments import SegmentStore

    states = [
        RangeState(start=b"", end=None, store=SegmentStore(tmp_path))  # type: ignore[arg-type]
        for _ in range(2)
    ]
    log = [
        commands.encode(commands.APPEND, 5, [batch(7), batch(8)]),
        commands.encode(commands.RETIRE_PRODUCERS, 6, [7, 99]),
    ]
    for state in states:
        for index, command in enumerate(log, 2):
            state.apply(index, 1, command)
        assert list(state.producers.rows) == [8]
    assert states[0].state_hash == states[1].state_hash


def test_X6_a_principal_that_brings_too_many_producers_leaves_room_for_others(
    clock: Monotonic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client filled the table of a range, and nobody else's new producer could append."""
    monkeypatch.setattr(limits, "producers_of_principal_max", 3)
    use, rows = ProducerUse(clock), {90}
    use.bring(90, "ann", rows)  # of before: nobody's
    for producer in (1, 2, 3):
        use.bring(producer, "ann", rows)
        rows.add(producer)
    with pytest.raises(Overloaded, match="'ann' has 3 producers"):
        use.bring(4, "ann", rows)
    for producer in (1, 2, 3, 90):
        use.bring(producer, "ann", rows)  # those that are there go on
    use.bring(5, "bob", rows)
    rows -= {1, 2}  # closed
    with pytest.raises(Overloaded):
        use.bring(4, "ann", rows)  # counted again once a second
    clock.now += 1.0
    use.bring(4, "ann", rows)
    use.began_to_lead()
    for producer in (6, 7, 8):
        use.bring(producer, "ann", rows)
    with pytest.raises(Overloaded):
        use.bring(9, "ann", rows)
