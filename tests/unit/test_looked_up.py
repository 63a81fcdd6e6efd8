"""What a leader has read for conditions saves the members a read, and changes no result."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flushed_range import FlushedRange

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.records import encode_batch
from lognode.statemachine import commands, looked_up
from lognode.statemachine.looked_up import NOTHING, LookedUp, Told, union
from lognode.statemachine.merge_process import Task
from lognode.statemachine.merge_process import run as merged
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.visibility import Rules

KEYS = [b"%d" % number for number in range(6)]
STEPS = 150


def read(state: RangeState, keys: list[bytes]) -> LookedUp:
    """What a leader in this state reads."""
    held = {key: state.last_held(key) for key in keys}
    return LookedUp(state.applied_index, state.next_seq, held)


class Busy(FlushedRange):
    """A range in which much happens."""

    @property
    def old_seq(self) -> int:
        return self.rng.randrange(1, self.state.next_seq + 1)

    def put(self) -> None:
        keys = self.rng.choices(KEYS, k=self.rng.randint(1, 3))
        values = [self.rng.choice((None, b"v")) for _ in keys]
        data = encode_batch(keys, values, producer=0, epoch=1, low=1, numbers=1)
        self.apply(commands.APPEND, [data])

    def trim(self) -> None:
        self.apply(commands.TRIM_KEYS, [[self.rng.choice(KEYS), self.old_seq]])

    def delete(self) -> None:
        self.apply(commands.DELETE_KEYS, [[self.rng.choice(KEYS), self.state.next_seq]])

    def retain(self) -> None:
        self.apply(commands.TRIM_SPANS, [[b"", None, self.old_seq]])

    def compact(self) -> None:
        self.apply(commands.COMPACT_TO, [b"", None, self.old_seq, commands.COMPACT, 1])

    def seal(self) -> None:
        if self.state.unflushed and len(self.state.memtable):
            self.flush()

    def unite(self) -> None:
        """Merge all segments by the rules of the base, which drops what nobody sees."""
        base = self.state.durable_base
        if len(base.manifest) < 2:
            return
        files = [(self.store.path(info.content_id), info) for info in base.manifest]
        made = merged(Task(self.root / "one", files, b"", None, Rules.of(base.tables), True))
        if made is not None:
            self.store.add(self.root / "one", made.content_id)
        self.state.merged(self.state.base_merged(list(base.manifest), made))


@pytest.mark.parametrize("compacts", [False, True], ids=["removes", "compacts too"])
@pytest.mark.parametrize("seed", range(4))
def test_S9_a_condition_has_the_same_result_whatever_the_leader_read_and_when(
    tmp_path: Path, seed: int, compacts: bool
) -> None:
    busy, said, used = Busy(tmp_path), [NOTHING], 0
    busy.rng = random.Random(f"{seed}/{compacts}")
    steps: list[Callable[[], None]] = [busy.put] * 6 + [busy.trim, busy.delete, busy.retain]
    steps += [busy.seal, busy.seal, busy.unite] + [busy.compact] * compacts
    for _ in range(STEPS):
        busy.rng.choice(steps)()
        if busy.rng.random() < 0.3:
            said.append(read(busy.state, busy.rng.sample(KEYS, 4)))
        if busy.rng.random() < 0.3:
            busy.apply(commands.LOOKED_UP, busy.rng.choice(said[-3:]).to_wire())
        told = busy.state._told.now
        used += len(told.last_seqs)
        for key in KEYS:
            assert busy.state.last_seq(key, told) == busy.state.last_seq(key)
    assert used > STEPS // 10, "hardly anything was used"


def test_S9_no_entry_is_left_of_an_expired_tombstone_that_a_merge_has_dropped(
    tmp_path: Path,
) -> None:
    busy = Busy(tmp_path)
    data = encode_batch([b"gone"], [None], producer=0, epoch=1, low=1, numbers=1)
    busy.apply(commands.APPEND, [data])
    busy.flush()
    busy.put()
    busy.apply(commands.COMPACT_TO, [b"", None, 2, commands.COMPACT, 1])
    told = read(busy.state, [b"gone"])
    assert told.last_seqs == {b"gone": 1}
    busy.flush()
    busy.unite()
    busy.apply(commands.LOOKED_UP, told.to_wire())
    assert busy.state._told.now == told
    assert busy.state.last_held(b"gone") == 0
    assert busy.state.last_seq(b"gone", told) == busy.state.last_seq(b"gone") == 0


def away(content_id: str) -> Any:
    raise Unavailable("the store answers 503")


def conditional(key: bytes, expect: int) -> bytes:
    return encode_batch([key], [b"v"], producer=0, epoch=1, low=1, numbers=1, expects=[expect])


def test_a_member_needs_no_file_for_what_the_leader_has_read(tmp_path: Path) -> None:
    range_ = FlushedRange(tmp_path)
    range_.append([b"old", b"other"])
    range_.flush()
    told = read(range_.state, [b"old"])
    range_.store.read_elsewhere(away, away)  # type: ignore[arg-type]
    for removed in range_.store.give_up([info.content_id for info in range_.state.manifest]):
        range_.store.remove(removed)
    with pytest.raises(Unavailable):
        range_.apply(commands.APPEND, [conditional(b"old", 1)])
    range_.apply(commands.LOOKED_UP, told.to_wire())
    for expect in (1, 3):
        (reply,) = range_.apply(commands.APPEND, [conditional(b"old", expect)])
        assert reply["status"] == "ok"
    (reply,) = range_.apply(commands.APPEND, [conditional(b"old", 1)])
    assert reply["status"] == "error"
    with pytest.raises(Unavailable):
        range_.apply(commands.APPEND, [conditional(b"other", 2)])


def test_nothing_holds_after_a_removal_of_which_the_leader_did_not_know() -> None:
    told = Told(5)
    for applied, holds in ((4, False), (5, True), (9, True)):
        said = LookedUp(applied, 7, {b"a": 3})
        told.takes(said.to_wire())
        assert told.now == (said if holds else NOTHING)
    told.removed(10)
    assert told.now is NOTHING


def test_several_looks_make_one_command_of_bounded_size() -> None:
    assert union([NOTHING, LookedUp(9, 9, {})]) is NOTHING
    first, second = LookedUp(4, 9, {b"a": 3}), LookedUp(3, 8, {b"b": 2})
    assert union([first, NOTHING, second]) == LookedUp(3, 8, {b"a": 3, b"b": 2})
    many = LookedUp(4, 9, {b"%0400d" % at: limits.number_max for at in range(9_000)})
    some = union([many])
    assert 1_000 < len(some.last_seqs) < 9_000
    assert len(commands.proposal(commands.LOOKED_UP, 1, some.to_wire())) <= limits.MIB + 100


@pytest.mark.parametrize(
    "payload",
    [
        None, [], [1, 2], [1, 2, []], [1, 2, [[b"a", 3]]], [1, 2, [[b"a"]]], [1, 2, [[b"", 3]]],
        [1, 2, [[b"a", -1]]], [1, -2, []], [-1, 2, []], [1, 2, [(b"a", 3)]], [1, 2, {}],
        [1, 2, [["a", 3]]], [True, 2, []], [1, 2, [[b"a", 3]], 4],
    ],
)  # fmt: skip
def test_x22_a_payload_of_another_form_is_refused(payload: Any) -> None:
    is_sound = payload in ([1, 2, []], [1, 2, [[b"a", 3]]]) and type(payload[0]) is int
    assert looked_up.fits(payload) == is_sound
    command = commands.encode(commands.LOOKED_UP, 1, payload)
    if is_sound:
        assert commands.decode(command) is not None
    elif payload != [1, 2, [(b"a", 3)]]:  # packed, a tuple is an array
        with pytest.raises(CorruptData):
            commands.decode(command)
