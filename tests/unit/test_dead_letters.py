"""Dead letters: the leader dies at each step, ranges split and merge, and each copy comes once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from dead_letter_post import Dead, Leader, lead, park, until
from group_model import GROUP, GroupModel
from lineages import KEYS

from lognode.client.protocol import limits
from lognode.client.protocol.errors import Unavailable
from lognode.node.dispatch.letters import Letters
from lognode.node.serving import dead_letters
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.groups import forms
from lognode.statemachine.groups.row import Row
from lognode.statemachine.range_state import RangeState

A, B, H = KEYS[0], KEYS[1], KEYS[7]
COPIED, LETTER = commands.GROUP_COPIED, commands.GROUP_LETTER


def run(
    tmp_path: Path, test: Callable[[GroupModel, RangeState, Dead], Awaitable[None]],
    starts: tuple[bytes, ...] = (b"",),
) -> None:  # fmt: skip
    """A range with the entries 1 to 3 of A, B, H and 4 of A; A and H are parked at their first."""

    async def whole() -> None:
        model, dead = GroupModel(tmp_path / "log"), Dead(tmp_path / "dead", starts)
        (state,) = model.log.ranges
        model.log.append(state, [A, B, H, A])
        model.open(state, 1, False)
        park(model, state, A)
        park(model, state, H)
        await test(model, state, dead)

    asyncio.run(whole())


def is_passed(state: RangeState) -> bool:
    """Whether both dead letters are behind their keys."""
    group = state.groups.by_id[GROUP]
    return (group.position(A), group.position(H)) == (2, 4)


def check_copies(dead: Dead) -> None:
    for key, seq in ((A, b"1"), (H, b"3")):
        (copy,) = dead.entries(key)
        assert copy.headers is not None
        assert (copy.value, copy.headers[b"dead-letter-seq"]) == (b"v", seq)


async def check_ends(model: GroupModel, state: RangeState, dead: Dead, leader: Leader) -> None:
    """The keys go on, each copy is there once, and decisions say so."""
    await until(lambda: is_passed(state))
    check_copies(dead)
    group = state.groups.by_id[GROUP]
    assert not any(row.parked for row in group.rows.values())
    told = [each for each in group.decisions if each.what == forms.DEAD_LETTER]
    assert sorted((each.start, each.begin, each.through, each.why) for each in told) == [
        (A, 1, 2, "broken"), (H, 3, 4, "broken"),
    ]  # fmt: skip
    leader.stop()


def test_G2_parked_entries_are_copied_and_their_keys_go_on(tmp_path: Path) -> None:
    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        leader = lead(model, state, dead)
        await check_ends(model, state, dead, leader)
        assert dead.sent == 1, "one batch"
        counted = leader.metrics.group_dead_letters.labels(str(GROUP))
        assert counted._value.get() == 2

    run(tmp_path, test)


@pytest.mark.parametrize("step", ["before", "after"])
@pytest.mark.parametrize("what", ["letter", "copy", "copied"])
def test_S8_a_leader_that_dies_at_any_step_leaves_each_copy_once(
    tmp_path: Path, what: str, step: str
) -> None:
    """The next leader goes on where the letters of the one before are."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        first = lead(model, state, dead)
        steps = dead if what == "copy" else first
        at = {"letter": LETTER, "copy": 100, "copied": COPIED}[what]
        getattr(steps, step)[at] = first.stop
        await until(lambda: not first.leads)
        getattr(steps, step).clear()
        await asyncio.sleep(0.01)
        if (what, step) != ("copied", "after"):
            assert not is_passed(state)
        await check_ends(model, state, dead, lead(model, state, dead))

    run(tmp_path, test)


def test_G2_no_position_passes_an_entry_before_its_copy_is_acknowledged(tmp_path: Path) -> None:
    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        free = asyncio.Event()
        dead.after[100] = free.wait
        leader = lead(model, state, dead)
        await until(lambda: dead.entries(A))
        for _ in range(20):
            await asyncio.sleep(0)
        kinds = [kind for kind, _ in leader.proposed]
        assert kinds == [LETTER], "the copy is not acknowledged yet"
        free.set()
        await check_ends(model, state, dead, leader)

    run(tmp_path, test)


def test_S8_a_late_copy_of_a_leader_that_is_over_has_no_effect(tmp_path: Path) -> None:
    """The range of dead letters applies the batch of the first leader after that of the second."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        late = asyncio.Event()
        dead.before[100] = late.wait
        first = lead(model, state, dead)
        await until(lambda: dead.sent)
        first.leads = False
        dead.before.clear()
        second = lead(model, state, dead)
        await until(lambda: is_passed(state))
        late.set()
        await until(lambda: not first.letters._sending)
        await check_ends(model, state, dead, second)

    run(tmp_path, test)


@pytest.mark.parametrize("when", ["numbered", "copied"])
def test_S8_letters_follow_their_keys_through_a_split_and_a_merge(
    tmp_path: Path, when: str
) -> None:
    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        first = lead(model, state, dead)
        if when == "numbered":
            dead.before[100] = first.stop
        else:
            first.before[COPIED] = first.stop
        await until(lambda: not first.leads)
        dead.before.clear()
        model.split(state, b"c")
        left, right = model.log.ranges
        leaders = [lead(model, left, dead, GroupId(1, 2)), lead(model, right, dead, GroupId(2, 2))]
        # Each of these has a letter of the first leader, and new letters of its own.
        model.log.append(left, [B])
        park(model, left, B)
        await until(lambda: left.groups.by_id[GROUP].position(B) == 3)
        for leader in leaders:
            await until(lambda state=leader.state: not any(
                row.parked for row in state.groups.by_id[GROUP].rows.values()))  # fmt: skip
            leader.stop()
        model.unite(0)
        (whole,) = model.log.ranges
        last = lead(model, whole, dead, GroupId(1, 3))
        park(model, whole, A)
        await until(lambda: whole.groups.by_id[GROUP].position(A) == 5)
        seqs = [each.headers[b"dead-letter-seq"] for each in dead.entries(A) if each.headers]
        assert seqs == [b"1", b"4"]
        assert (len(dead.entries(B)), len(dead.entries(H))) == (1, 1)
        last.stop()

    run(tmp_path, test)


def test_S8_a_number_below_those_of_other_ranges_is_still_applied(tmp_path: Path) -> None:
    """After a split, H has number 2 of the first leader. A, with number 1, is copied last."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        first = lead(model, state, dead)
        dead.before[100] = first.stop
        await until(lambda: not first.leads)
        dead.before.clear()
        model.split(state, b"c")
        left, right = model.log.ranges
        last = lead(model, right, dead, GroupId(2, 2))
        await until(lambda: dead.entries(H))
        await until(lambda: right.groups.by_id[GROUP].position(H) == 4)
        last.stop()
        last = lead(model, left, dead, GroupId(1, 2))
        await until(lambda: left.groups.by_id[GROUP].position(A) == 2)
        check_copies(dead)
        last.stop()

    run(tmp_path, test)


@pytest.mark.parametrize("moves", ["reset", "retry", "skip"])
def test_an_operator_that_moves_a_key_meanwhile_is_not_undone(tmp_path: Path, moves: str) -> None:
    """After a reset or a retry the entry is delivered again, and may become a letter again."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        leader = lead(model, state, dead)

        def move() -> None:
            if moves == "reset":
                model.do(state, commands.GROUP_RESET, [GROUP, [[b"", None, 1]], [], "ann"])
            elif moves == "retry":
                model.do(state, commands.GROUP_RETRY, [GROUP, [A], "ann"])
            else:
                skip = [[A, 1, 3]]
                model.do(state, commands.GROUP_SKIP, [GROUP, skip, forms.SKIP, "ann", ""])

        leader.before[COPIED] = move
        await until(lambda: leader.proposed and leader.proposed[-1][0] == COPIED)
        leader.before.clear()
        await asyncio.sleep(0.01)
        group = state.groups.by_id[GROUP]
        assert group.position(A) == (3 if moves == "skip" else 1)
        if moves == "skip":
            leader.stop()
            return
        leader.stop()
        leader = lead(model, state, dead)
        park(model, state, A, "again")
        leader.letters.stir()
        await until(lambda: group.position(A) == 2)
        errors = [each.headers[b"dead-letter-error"] for each in dead.entries(A) if each.headers]
        assert errors == [b"broken", b"again"], "the second failure is another dead letter"
        leader.stop()

    run(tmp_path, test)


def test_an_entry_that_is_gone_after_it_was_numbered_is_not_replaced_by_a_later_one(
    tmp_path: Path,
) -> None:
    """Compaction replaced the entry. The next entry of the key has not failed."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        first = lead(model, state, dead)
        first.after[LETTER] = first.stop
        await until(lambda: not first.leads)
        model.log.compact(state, (b"", None), 5, commands.COMPACT)
        second = lead(model, state, dead)
        await until(lambda: is_passed(state))
        assert (dead.entries(A), len(dead.entries(H))) == ([], 1)
        told = [each for each in state.groups.by_id[GROUP].decisions if each.start == A]
        assert (told[-1].what, told[-1].begin, told[-1].through) == (forms.LOST, 1, 2)
        second.stop()

    run(tmp_path, test)


def test_G5_a_range_that_takes_no_letters_holds_up_no_other_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(dead_letters, "_REST_S", 0.01)

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        def fails() -> None:
            raise Unavailable("no quorum", outcome="unknown")

        dead.after[101] = fails
        leader = lead(model, state, dead)
        group = state.groups.by_id[GROUP]
        await until(lambda: group.position(A) == 2)
        await until(lambda: dead.sent > 3)
        assert group.rows[H].parked
        assert leader.letters.problem(H) == "log dead for dead letters: no quorum"
        assert leader.letters.problem(A) is None
        dead.after.clear()
        await check_ends(model, state, dead, leader)

    run(tmp_path, test, (b"", b"c"))


def test_a_missing_log_parks_the_keys_until_the_log_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_REST_S", 0.01)

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        dead.exists = False
        leader = lead(model, state, dead)
        await until(lambda: leader.letters.problem(A))
        assert leader.letters.problem(A) == "no log dead for dead letters; create the log"
        assert not leader.proposed
        dead.exists = True
        await check_ends(model, state, dead, leader)

    run(tmp_path, test)


def test_x30_letters_and_copies_of_an_earlier_leader_are_refused(tmp_path: Path) -> None:
    """After a reset the entry may have a letter again that is not copied yet."""

    async def test(model: GroupModel, state: RangeState, dead: Dead) -> None:
        group = state.groups.by_id[GROUP]
        old = group.fence
        model.open(state, 1, False)
        letter = [GROUP, old, 9, [[A, 1, 1, 1]]]
        assert model.do(state, LETTER, letter)["error"]["code"] == "FENCED"
        letter[1] = group.fence
        assert model.do(state, LETTER, letter) == {"status": "ok"}
        assert group.rows[A] == Row(1, 3, True, "broken", 9, 1)
        copied = [GROUP, old, [[A, 1]], forms.DEAD_LETTER]
        assert model.do(state, COPIED, copied)["error"]["code"] == "FENCED"
        assert group.position(A) == 1
        copied[1:3] = [group.fence, [[B, 2], [H, 3], [A, 2], [A, 1]]]
        reply = model.do(state, COPIED, copied)
        assert reply == {"status": "ok", "refused": [0, 1, 2], "actual": [1, 1, 1]}
        assert group.position(A) == 2
        for rows in ([[A, 2, 2, 2]], [[B, 1, 2, 2]], [[H, 1, 5, 2]]):
            reply = model.do(state, LETTER, [GROUP, group.fence, 9, rows])
            assert reply["refused"] == [0], "not parked, or no entry is there yet"

    run(tmp_path, test)


def test_numbers_begin_anew_with_another_producer() -> None:
    most = limits.producer_window_max // 4
    letters = Letters(GROUP, GroupId(1, 1), 1)
    producer, numbers = letters.draw([A] * most)
    assert (numbers[0], numbers[-1], letters.low(producer)) == (1, most, 1)
    letters.ended(producer, [1, 2, 4])
    assert letters.low(producer) == 3
    second, numbers = letters.draw([A, B])
    assert (second != producer, numbers, letters.low(second)) == (True, [1, 2], 1)
    assert letters.low(producer) == 1, "of other producers nothing is known"
    letters.look({A: Row(1, 3, True, "", second, 2), B: Row(1, 3, True, "", second, 2)})
    assert letters.low(second) == 2, "an operator moved A"
    assert letters.low(producer) == 1
    others = [(GROUP + 1, GroupId(1, 1), 1), (GROUP, GroupId(2, 1), 1), (GROUP, GroupId(1, 2), 1),
              (GROUP, GroupId(1, 1), 2)]  # fmt: skip
    ids = {Letters(*other).producer for other in others} | {producer, second}
    assert len(ids) == 6
    assert min(ids) >= 1 << 62
    assert max(ids) <= limits.number_max
