"""How the controller's generations follow each other, by the pure rule alone."""

from typing import Final

from lognode.node.rules.controller_generations import (
    BeginNext,
    ControllerMember,
    Push,
    PushNext,
    RetireBefore,
    moves,
    successor,
    use_of,
)
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, Descriptor, Lineage, Span

END: Final = Lineage(CONTROLLER_RANGE, 1, 9, 1, 1, 0, b"")


def controller(generation: int, *members: int) -> Descriptor:
    lineage = (END,) if generation > 1 else ()
    return Descriptor(CONTROLLER_RANGE, generation, 0, Span(b"", None), members, lineage)


FIRST: Final = controller(1, 1, 2, 3)
SECOND: Final = controller(2, 1, 2, 4)


def member(
    own: Descriptor,
    next_: Descriptor | None = None,
    *,
    leads: bool = False,
    base: tuple[int, ...] = (),
) -> ControllerMember:
    return ControllerMember(own, next_ or own, next_ is not None, leads, base)


def test_the_first_generation_has_nothing_to_push_or_free() -> None:
    assert moves(1, FIRST, False, member(FIRST, leads=True), {}) == ()


def test_x29_a_member_of_both_generations_begins_the_next_and_its_leader_campaigns() -> None:
    for leads in (False, True):
        found = moves(1, SECOND, True, member(FIRST, SECOND, leads=leads), {})
        assert found == (BeginNext(leads),)


def test_x29_a_member_of_the_old_generation_alone_pushes_until_all_have_begun() -> None:
    left = member(FIRST, SECOND)
    assert moves(3, SECOND, True, left, {}) == (PushNext(frozenset({1, 2, 4})),)
    assert moves(3, SECOND, True, left, {2: {1, 2}}) == (PushNext(frozenset({4})),)


def test_x29_a_replica_whose_successor_nobody_may_hold_stays() -> None:
    """The image says that the last record is applied: that may be known from this replica alone."""
    left = member(FIRST, SECOND)
    assert not isinstance(moves(3, SECOND, True, left, {})[0], RetireBefore)
    assert moves(3, SECOND, False, left, {}) == (RetireBefore(2),)
    assert moves(1, SECOND, False, member(FIRST, SECOND), {}) == (BeginNext(False),)


def test_x29_the_old_generation_goes_once_all_others_have_begun() -> None:
    begun: dict[int, set[int]] = {}
    assert moves(1, SECOND, False, member(SECOND), begun) == (Push(frozenset({2, 4})),)
    begun[2] = {2}
    assert moves(1, SECOND, False, member(SECOND), begun) == (Push(frozenset({4})),)
    begun[2] = {2, 4}
    assert moves(1, SECOND, False, member(SECOND), begun) == (RetireBefore(2),)


def test_a_leader_pushes_to_members_whose_log_ends_before_its_own_begins() -> None:
    lacking = member(FIRST, leads=True, base=(3,))
    assert moves(1, FIRST, False, lacking, {}) == (Push(frozenset({3})),)
    follower = lacking._replace(leads=False)
    assert moves(1, FIRST, False, follower, {}) == ()


def test_x3_a_push_is_used_once_and_a_base_only_where_it_is_later() -> None:
    assert use_of(SECOND, 1, 1, None) == "begin"
    assert use_of(SECOND, 1, 2, None) is None
    assert use_of(SECOND, 9, 2, 8) == "reinstall"
    assert use_of(SECOND, 8, 2, 8) is None


def test_the_next_generation_begins_from_a_copy() -> None:
    sealed = Metadata()
    sealed.controller = SECOND
    version = sealed.version
    begun = successor(sealed)
    assert begun.controller == SECOND
    assert begun is not sealed
    assert sealed.version == version
