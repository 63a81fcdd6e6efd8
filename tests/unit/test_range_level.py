"""A range changes its rules at one entry of its own log, for all members."""

from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.errors import CorruptData, Unsupported
from lognode.client.protocol.levels import LEVEL_MAX, LEVEL_MIN
from lognode.statemachine import commands, rules
from lognode.statemachine.clip import clipped
from lognode.statemachine.range_state import Base, RangeState
from lognode.statemachine.received_base import received
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.state_hash import BEGIN, following
from lognode.statemachine.unite import Parent, united
from lognode.statemachine.unknown import UnknownCommandError

LEASE = ["lease", b"", None, 0, 1_000]


class Member:
    """One member's state, to which entries are applied one after another."""

    def __init__(self, path: Path, base: Base | None = None) -> None:
        self.state = RangeState(start=b"", end=None, store=SegmentStore(path), base=base)

    def do(self, kind: int, payload: Any, ms: int = 1) -> str:
        """Apply an entry; return the code of its error, or `ok`."""
        entry = commands.proposal(kind, ms, payload)
        (reply,) = self.state.apply(self.state.applied_index + 1, 1, entry).replies or ()
        return reply["error"]["code"] if reply["status"] == "error" else "ok"

    def take(self, count: int) -> list[str]:
        """Take so many more leases; return the outcome of each."""
        first = len(self.state.removal.leases)
        return [
            self.do(commands.TAKE_LEASE, [f"lease {n}", b"", None, 0, 1_000])
            for n in range(first, first + count)
        ]

    def base(self) -> Base:
        """Freeze, and return the base that then becomes durable."""
        self.do(commands.FREEZE, None)
        return self.state.base_with(self.state.queue[0], None)


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


def test_the_rules_of_each_level_are_as_in_every_version() -> None:
    assert [*rules.BY_LEVEL] == [*range(LEVEL_MIN, LEVEL_MAX + 1)]
    first = (64, 604_800_000, 100_000, 4_096, 100_000, 1_000_000, None, 0, 0, 0, 0, 16, False)
    second = (256, *first[1:])
    fourth = (*second[:7], 256, 4_096, 16_384, 16, 16, False)
    fifth = (*fourth[:6], 8, *fourth[7:])
    sixth = (*fifth[:11], 8, True)
    assert {
        1: first,
        2: second,
        3: second,
        4: fourth,
        5: fifth,
        6: sixth,
        7: sixth,
    } == rules.BY_LEVEL


def test_x2_22_a_level_holds_from_the_entry_after_its_own(member: Member) -> None:
    assert member.take(65) == ["ok"] * 64 + ["OVERLOADED"]
    assert member.do(commands.LEVEL, 2) == "ok"
    assert member.take(193) == ["ok"] * 192 + ["OVERLOADED"]
    assert len(member.state.removal.leases) == limits.leases_level_2_max


def test_a_level_never_falls(member: Member) -> None:
    for level in (2, 1, 2):
        assert member.do(commands.LEVEL, level) == "ok"
        assert member.state.level == 2
        assert member.state.producers.rules == member.state.removal.rules == rules.BY_LEVEL[2]


def test_a_member_stops_before_a_level_that_its_program_does_not_know(member: Member) -> None:
    member.do(commands.LEVEL, 2)
    before = (member.state.applied_index, member.state.state_hash, member.state.effects.to_wire())
    with pytest.raises(UnknownCommandError, match="the change to feature level "
                       f"{LEVEL_MAX + 1}; this program knows 1, 2, 3, 4, 5, 6, 7"):  # fmt: skip
        member.do(commands.LEVEL, LEVEL_MAX + 1)
    after = (member.state.applied_index, member.state.state_hash, member.state.effects.to_wire())
    assert after == before


def test_a_member_that_begins_from_a_base_goes_on_at_its_level(
    member: Member, tmp_path: Path
) -> None:
    member.do(commands.LEVEL, 2)
    member.take(64)
    other = Member(tmp_path, member.base())
    assert other.state.level == 2
    assert member.take(1) == other.take(1) == ["ok"]
    assert member.state.effects.to_wire() == other.state.effects.to_wire()


def test_the_effects_of_a_level_are_hashed(member: Member, tmp_path: Path) -> None:
    deaf = Member(tmp_path)
    deaf.state._raise_level = lambda level: None  # type: ignore[method-assign]
    for each in (member, deaf):
        each.do(commands.LEVEL, 2)
    assert member.state.state_hash == deaf.state.state_hash
    assert member.state.effects.to_wire() != deaf.state.effects.to_wire()


def test_from_level_6_on_the_entries_after_its_own_are_hashed_by_sha_256(member: Member) -> None:
    """The level's own entry is hashed as before: members of earlier versions stop there."""
    state, entry = member.state, commands.proposal(commands.TAKE_LEASE, 1, LEASE)
    for command, sha_256 in (
        (entry, False), (commands.proposal(commands.LEVEL, 1, 5), False), (entry, False),
        (commands.proposal(commands.LEVEL, 1, 6), False), (entry, True),
    ):  # fmt: skip
        at, before = state.applied_index + 1, state.state_hash
        state.apply(at, 1, command)
        assert state.state_hash == following(before, at, 1, command, sha_256=sha_256)


@pytest.mark.parametrize(
    ("sha_256", "found"),
    [(False, "9a14f39d07a097fc7783141567a2a294"), (True, "63c004640a622bf5906332b715c3d311")],
)
def test_the_hash_of_entries_is_the_same_in_every_version(sha_256: bool, found: str) -> None:
    first = following(BEGIN, 1, 1, b"command", sha_256=sha_256)
    assert following(first, 2, 3, b"", sha_256=sha_256).hex() == found


def test_a_level_after_the_seal_is_void(member: Member) -> None:
    member.do(commands.SEAL, 7)
    assert member.do(commands.LEVEL, 2) == "SEALED"
    assert member.state.level == 1


def test_children_begin_at_the_level_of_their_parents(member: Member, tmp_path: Path) -> None:
    low = Member(tmp_path).base()
    assert "level" not in low.tables, "as earlier versions wrote it"
    member.do(commands.LEVEL, 2)
    high = member.base()
    assert clipped(high, b"m", None).tables["level"] == 2
    assert "level" not in clipped(low, b"m", None).tables
    for left, right in ((low, high), (high, low)):
        both = united([Parent(b"", b"m", left), Parent(b"m", None, right)], 1, 0)
        assert both.tables["level"] == 2
    low.tables["level"], high.tables["level"] = 2, 3
    for left, right in ((low, high), (high, low)):
        both = united([Parent(b"", b"m", left), Parent(b"m", None, right)], 1, 0)
        assert both.tables["level"] == 3
    del low.tables["level"]
    same = united([Parent(b"", b"m", low), Parent(b"m", None, low)], 1, 0)
    assert "level" not in same.tables


def test_a_base_of_a_level_that_this_program_does_not_know_is_not_taken(
    member: Member, tmp_path: Path
) -> None:
    member.do(commands.LEVEL, 2)
    base = member.base()
    assert received(base.to_wire()).tables["level"] == 2
    base.tables["level"] = LEVEL_MAX + 1
    with pytest.raises(
        Unsupported, match=rf"feature level {LEVEL_MAX + 1}, .* knows levels 1 to {LEVEL_MAX}"
    ):
        received(base.to_wire())
    with pytest.raises(Unsupported, match=f"feature level {LEVEL_MAX + 1}"):
        Member(tmp_path, base)
    for bad in ("2", None, -1, 1.5):
        base.tables["level"] = bad
        with pytest.raises(CorruptData, match="level"):
            received(base.to_wire())
