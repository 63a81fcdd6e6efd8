"""The checker of changes of generations: a good one passes, each broken rule is found."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lognode.chaos.sim.generations import Generations
from lognode.chaos.sim.violation import Violation
from lognode.partitions.model import Descriptor, Lineage, Span
from lognode.raft.types import SENTINEL_INDEX, GroupId

FIRST = Descriptor(1, 4, 1, Span(b"", None), (1, 2, 3))
END = Lineage(1, 4, 9, 2, 30, 1_000, b"state at 9")
NEXT = Descriptor(1, 5, 1, Span(b"", None), (1, 2, 3), (END,), "ACTIVE", 7)
PREPARED = {1: [END], 2: [END], 3: []}


def _ended() -> Generations:
    """Generation 4 has ended at entry 9 of term 2."""
    generations = Generations()
    generations.checker(FIRST)
    for node in (1, 2, 3):
        generations.begun(node, FIRST, SENTINEL_INDEX, b"", 1)
    generations.sealed(GroupId(1, 4), 9, 2, b"state at 9")
    return generations


def test_a_good_change_passes() -> None:
    generations = _ended()
    generations.acknowledged(GroupId(1, 4), 8)
    generations.sealed(GroupId(1, 4), 9, 2, b"state at 9")
    generations.decided(NEXT, PREPARED)
    generations.decided(NEXT, {})  # by another controller replica, later
    for node in (1, 2, 3):
        generations.begun(node, NEXT, SENTINEL_INDEX, b"state at 9", 30)
    assert generations.seals == 1


def test_a_split_continues_one_generation_by_two_of_other_keys() -> None:
    generations = _ended()
    left, right = Span(NEXT.span.start, b"m"), Span(b"m", NEXT.span.end)
    generations.decided(replace(NEXT, span=left), PREPARED)
    generations.decided(replace(NEXT, range_id=2, span=right), PREPARED)
    assert (generations.seals, generations.splits) == (1, 1)


def test_a_late_member_begins_from_a_later_base_of_the_generation() -> None:
    """Seed 6026: the member left out at DECIDE came when the generation had moved on."""
    generations = _ended()
    generations.decided(NEXT, PREPARED)
    generations.begun(1, NEXT, SENTINEL_INDEX, b"state at 9", 30)
    generations.checker(NEXT).same_state(1, 12, b"state at 12")
    generations.begun(3, NEXT, 12, b"state at 12", 33)


def _acknowledged_behind_the_seal(generations: Generations) -> None:
    generations.acknowledged(GroupId(1, 4), 10)


def _ends_elsewhere(generations: Generations) -> None:
    generations.sealed(GroupId(1, 4), 9, 3, b"state at 9")


def _ends_in_another_state(generations: Generations) -> None:
    generations.sealed(GroupId(1, 4), 9, 2, b"another")


def _begins_in_another_state(generations: Generations) -> None:
    generations.begun(2, NEXT, SENTINEL_INDEX, b"another", 30)


def _begins_at_another_seq(generations: Generations) -> None:
    generations.begun(2, NEXT, SENTINEL_INDEX, b"state at 9", 29)


def _begins_late_in_another_state(generations: Generations) -> None:
    generations.checker(NEXT).same_state(1, 12, b"state at 12")
    generations.begun(3, NEXT, 12, b"another", 33)


def _begins_again(generations: Generations) -> None:
    generations.begun(3, FIRST, SENTINEL_INDEX, b"", 1)


def _begins_what_is_over(generations: Generations) -> None:
    generations.begun(3, NEXT, SENTINEL_INDEX, b"state at 9", 30)
    generations.begun(3, FIRST, SENTINEL_INDEX, b"", 1)


def _number_too_high(generations: Generations) -> None:
    generations.begun(1, replace(NEXT, generation=6), SENTINEL_INDEX, b"state at 9", 30)


def _too_few_prepared(generations: Generations) -> None:
    generations.decided(NEXT, {1: [END], 4: [END]})


def _another_end(generations: Generations) -> None:
    end = END._replace(final_index=8)
    generations.decided(replace(NEXT, lineage=(end,)), {1: [end], 2: [end]})


def _another_hash(generations: Generations) -> None:
    end = END._replace(state_hash=b"another")
    generations.decided(replace(NEXT, lineage=(end,)), {1: [end], 2: [end]})


def _continued_twice(generations: Generations) -> None:
    generations.decided(NEXT, PREPARED)
    end = END._replace(next_seq=31)
    generations.decided(replace(NEXT, range_id=2, lineage=(end,)), {1: [end], 2: [end]})


def _continued_twice_by_one_end(generations: Generations) -> None:
    generations.decided(NEXT, PREPARED)
    generations.decided(replace(NEXT, range_id=2), PREPARED)


def _two_of_one_number(generations: Generations) -> None:
    generations.checker(replace(FIRST, members=(1, 2, 4)))


def _forgets_what_it_began(generations: Generations) -> None:
    generations.recovered(3, {1: 4})
    generations.recovered(4, {})  # which never began a generation
    generations.recovered(2, {1: 3})


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("S5", _acknowledged_behind_the_seal),
        ("x6", _ends_elsewhere),
        ("state-machine-safety", _ends_in_another_state),
        ("x6", _begins_in_another_state),
        ("x6", _begins_at_another_seq),
        ("state-machine-safety", _begins_late_in_another_state),
        ("x3", _begins_again),
        ("x3", _begins_what_is_over),
        ("x3", _forgets_what_it_began),
        ("x26", _number_too_high),
        ("x7", _too_few_prepared),
        ("x6", _another_end),
        ("state-machine-safety", _another_hash),
        ("x6", _continued_twice),
        ("x6", _continued_twice_by_one_end),
        ("x6", _two_of_one_number),
    ],
)
def test_each_broken_rule_is_found(rule: str, broken: Callable[[Generations], None]) -> None:
    with pytest.raises(Violation) as found:
        broken(_ended())
    assert found.value.promise == rule
