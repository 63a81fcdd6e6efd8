"""`scripts/bench door`: the plan of consumers, values, and what fails a turn."""

from itertools import chain

from benchmarks.door.plan import Plan, Values, due_of
from benchmarks.door.run import is_wrong


def plan(partitions: int, consumers: int) -> Plan:
    return Plan([], {}, partitions, 1_000, 128, 0.0, 1.0, 0.0, consumers, 1)


def test_consumers_share_the_partitions_out() -> None:
    few = plan(10, 4)
    assert sorted(chain(*map(few.assigned, range(4)))) == list(range(10))
    assert few.readers == 1


def test_many_consumers_read_each_partition_equally_often() -> None:
    many = plan(10, 40)
    assert [many.assigned(number) for number in (0, 9, 10, 39)] == [[0], [9], [0], [9]]
    assert many.readers == 4


def test_a_plan_goes_from_process_to_process() -> None:
    known = plan(3, 1)
    assert Plan.from_text(known.to_text()) == known


def test_a_value_holds_its_due_time_and_has_its_size() -> None:
    values = Values(128)
    found = [values.value(number, 0.5 + number) for number in (0, 1, 1 << 40)]
    assert [len(value) for value in found] == [128] * 3
    assert [due_of(value) for value in found] == [0.5, 1.5, 0.5 + (1 << 40)]
    assert len(set(found)) == 3


def test_a_turn_fails_that_loses_or_repeats_a_record() -> None:
    right = {"missing": 0, "repeated": 0, "errors": []}
    assert not is_wrong(right)
    for wrong in ({"missing": 1}, {"repeated": 1}, {"failed": "no answer"}):
        assert is_wrong({**right, **wrong})
