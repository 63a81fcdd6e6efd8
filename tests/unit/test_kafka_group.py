"""The rules of a consumer group, by sequences of events on a given clock."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from lognode.node.kafka import codes, group
from lognode.node.kafka.group import FIRST_JOINS_S, Group, Joined, State, Synced, Wish

RANGE = (("range", b"r"), ("roundrobin", b"rr"))


class Play:
    """A group with its clock, and the answers to requests by ticket."""

    def __init__(self, generation: int = 0) -> None:
        self.group = Group(generation)
        self.now = 100.0
        self.answers: dict[int, Joined | Synced] = {}
        self.ticket = 0

    def _taken(self) -> None:
        for ticket, answer in self.group.replies():
            assert ticket not in self.answers, "a request was answered twice"
            self.answers[ticket] = answer
        assert self.group.size == sum(each.size for each in self.group.members.values())

    def join(self, member: str = "", *, protocols: Any = RANGE, kind: str = "consumer",
             session_ms: int = 10_000, rebalance_ms: int = 30_000) -> int:  # fmt: skip
        self.ticket += 1
        wish = Wish("g", member, session_ms, rebalance_ms, kind, protocols)
        self.group.join(wish, self.ticket, self.now, name=f"m{self.ticket}")
        self._taken()
        return self.ticket

    def sync(self, member: str, generation: int, given: Mapping[str, bytes] | None = None) -> int:
        self.ticket += 1
        self.group.sync(member, generation, given or {}, self.ticket, self.now)
        self._taken()
        return self.ticket

    def beat(self, member: str, generation: int) -> int:
        return self.group.heartbeat(member, generation, self.now)

    def leave(self, member: str) -> int:
        error = self.group.leave(member, self.now)
        self._taken()
        return error

    def gone(self, ticket: int) -> None:
        self.group.gone(ticket, self.now)
        self._taken()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.1)
            self.group.tick(self.now)
            self._taken()

    def joined(self, ticket: int) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined)
        return answer

    def synced(self, ticket: int) -> Synced:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced)
        return answer


def stable(count: int) -> tuple[Play, list[str]]:
    """A stable group with so many members; the first is the leader."""
    play = Play()
    tickets = [play.join() for _ in range(count)]
    play.wait(FIRST_JOINS_S)
    names = [play.joined(ticket).member for ticket in tickets]
    tickets = [play.sync(name, 1) for name in names[1:]]
    play.sync(names[0], 1, {name: name.encode() for name in names})
    assert [play.synced(ticket).assignment for ticket in tickets] == [
        name.encode() for name in names[1:]
    ]
    assert play.group.state is State.STABLE
    return play, names


def test_the_first_members_form_one_generation_and_the_leader_gets_all() -> None:
    play = Play(generation=6)
    first, second = play.join(), play.join()
    assert not play.answers, "the first members wait for others"
    play.wait(FIRST_JOINS_S)
    leader, other = play.joined(first), play.joined(second)
    assert (leader.error, leader.generation, leader.protocol) == (0, 7, "range")
    assert leader.leader == other.leader == leader.member != other.member
    assert dict(leader.members) == {leader.member: b"r", other.member: b"r"}
    assert other.members == ()
    assert play.group.state is State.COMPLETING
    early = play.sync(other.member, 7)
    assert early not in play.answers
    play.sync(leader.member, 7, {leader.member: b"a", other.member: b"b"})
    assert play.synced(early) == Synced(codes.NONE, b"b")
    assert play.synced(play.sync(leader.member, 7)).assignment == b"a"


def test_a_new_member_makes_the_others_join_again() -> None:
    play, (leader, other) = stable(2)
    new = play.join()
    assert play.beat(leader, 1) == play.beat(other, 1) == codes.REBALANCE_IN_PROGRESS
    assert play.synced(play.sync(other, 1)).error == codes.REBALANCE_IN_PROGRESS
    again = play.join(leader), play.join(other)
    assert {play.joined(ticket).generation for ticket in (*again, new)} == {2}
    assert play.joined(new).leader == leader, "the leader stays"
    assert play.beat(leader, 1) == codes.ILLEGAL_GENERATION
    assert play.beat(leader, 2) == codes.NONE


def test_a_member_that_leaves_makes_the_others_join_again() -> None:
    play, (leader, other) = stable(2)
    assert play.leave(leader) == codes.NONE
    assert play.leave(leader) == codes.UNKNOWN_MEMBER_ID
    assert play.beat(leader, 1) == codes.UNKNOWN_MEMBER_ID
    assert play.beat(other, 1) == codes.REBALANCE_IN_PROGRESS
    joined = play.joined(play.join(other))
    assert (joined.generation, joined.leader) == (2, other)
    assert play.leave(other) == codes.NONE
    assert (play.group.state, play.group.generation) == (State.EMPTY, 3)


def test_a_silent_member_is_removed_after_its_session() -> None:
    play, (leader, other) = stable(2)
    play.wait(9.8)
    assert play.beat(leader, 1) == codes.NONE
    play.wait(0.3)
    assert play.beat(other, 1) == codes.UNKNOWN_MEMBER_ID
    assert play.beat(leader, 1) == codes.REBALANCE_IN_PROGRESS
    assert play.joined(play.join(leader)).generation == 2


def test_joins_end_after_the_rebalance_timeout_without_the_late_member() -> None:
    play, (leader, other) = stable(2)
    again = play.join(leader, protocols=(("range", b"new"),))
    for _ in range(4):  # heartbeats keep a session, and do not hold the others up
        play.wait(7)
        assert play.beat(other, 1) == codes.REBALANCE_IN_PROGRESS
    assert again not in play.answers
    play.wait(2.1)
    assert list(play.joined(again).members) == [(leader, b"new")]
    assert play.beat(other, 1) == codes.UNKNOWN_MEMBER_ID


def test_a_leader_that_sends_no_assignment_is_removed() -> None:
    play = Play()
    first, second = play.join(), play.join()
    play.wait(FIRST_JOINS_S)
    leader, other = play.joined(first).member, play.joined(second).member
    waits = play.sync(other, 1)
    for _ in range(4):
        play.wait(7.4)
        assert play.beat(leader, 1) == codes.NONE
    play.wait(0.5)
    assert play.synced(waits).error == codes.REBALANCE_IN_PROGRESS
    assert play.beat(leader, 1) == codes.UNKNOWN_MEMBER_ID
    assert play.joined(play.join(other)).leader == other


def test_a_member_whose_answer_was_lost_gets_the_same_generation() -> None:
    play = Play()
    first, second = play.join(), play.join()
    play.wait(FIRST_JOINS_S)
    leader, other = play.joined(first).member, play.joined(second).member
    assert play.joined(play.join(leader)) == play.joined(first)
    assert play.joined(play.join(other)) == play.joined(second)
    play.sync(leader, 1, {other: b"x"})
    assert play.joined(play.join(other)).generation == 1
    assert play.synced(play.sync(other, 1)).assignment == b"x"
    assert play.beat(leader, 1) == codes.NONE
    play.join(leader)
    assert play.group.state is State.PREPARING, "a leader that joins wants a new assignment"


def test_a_client_that_leaves_while_it_joins_does_not_hold_the_others_up() -> None:
    play, (leader,) = stable(1)
    new = play.join()
    play.gone(new)
    again = play.join(leader)
    assert play.joined(again).generation == 2
    assert [name for name, _ in play.joined(again).members] == [leader]
    lone = Play()
    lone.gone(lone.join())
    assert lone.group.state is State.EMPTY
    assert not lone.group.members


def test_a_known_member_that_joins_over_a_second_connection_replaces_the_first() -> None:
    play, (leader, _) = stable(2)
    first = play.join(leader)
    play.join(leader)
    assert play.joined(first).error == codes.REBALANCE_IN_PROGRESS
    play.gone(first)
    assert leader in play.group.members


def test_the_protocol_is_one_that_all_members_know() -> None:
    play = Play()
    tickets = [
        play.join(protocols=(("a", b"1"), ("b", b"2"), ("c", b"3"))),
        play.join(protocols=(("c", b"4"), ("b", b"5"))),
        play.join(protocols=(("b", b"6"), ("c", b"7"))),
    ]
    play.wait(FIRST_JOINS_S)
    assert {play.joined(ticket).protocol for ticket in tickets} == {"b"}
    assert [metadata for _, metadata in play.joined(tickets[0]).members] == [b"2", b"5", b"6"]
    for protocols, kind in (((("z", b""),), "consumer"), ((), "consumer"), (RANGE, ""),
                            ((("b", b""),), "connect")):  # fmt: skip
        refused = play.joined(play.join(protocols=protocols, kind=kind))
        assert refused.error == codes.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 1 << 30])
def test_sessions_outside_of_the_limits_are_refused(session_ms: int) -> None:
    play = Play()
    assert play.joined(play.join(session_ms=session_ms)).error == codes.INVALID_SESSION_TIMEOUT
    assert play.group.state is State.EMPTY


def test_members_and_their_bytes_are_bounded() -> None:
    play = Play()
    for _ in range(group.MEMBERS_MAX):
        play.join()
    assert play.joined(play.join()).error == codes.GROUP_MAX_SIZE_REACHED
    play.wait(FIRST_JOINS_S)
    assert len(play.joined(1).members) == group.MEMBERS_MAX
    large = Play()
    tickets = [large.join(protocols=(("range", bytes(1 << 20)),)) for _ in range(6)]
    refused = [t for t in tickets if t in large.answers]
    assert refused == tickets[-len(refused) :]
    assert refused
    assert {large.joined(t).error for t in refused} == {codes.GROUP_MAX_SIZE_REACHED}


def test_unknown_members_are_refused_and_commits_follow_the_generation() -> None:
    play, (leader, other) = stable(2)

    def commit(member: str, generation: int) -> int:
        return play.group.commit(member, generation, play.now)

    assert play.joined(play.join("nobody")).error == codes.UNKNOWN_MEMBER_ID
    assert play.synced(play.sync("nobody", 1)).error == codes.UNKNOWN_MEMBER_ID
    assert play.synced(play.sync(leader, 2)).error == codes.ILLEGAL_GENERATION
    assert commit("", -1) == commit("nobody", 1) == codes.UNKNOWN_MEMBER_ID
    assert commit(leader, 0) == codes.ILLEGAL_GENERATION
    assert commit(leader, 1) == codes.NONE
    joins = play.join(), play.join(leader)
    assert commit(other, 1) == codes.NONE, "the old generation commits before it joins"
    play.join(other)
    assert play.joined(joins[0]).generation == 2
    assert commit(other, 1) == codes.ILLEGAL_GENERATION
    assert commit(other, 2) == codes.REBALANCE_IN_PROGRESS
    assert Play().group.commit("", -1, 0) == codes.NONE


def test_a_group_that_ends_tells_all_who_wait() -> None:
    play, (leader, other) = stable(2)
    waits = play.join(leader)
    play.group.end()
    play._taken()
    assert play.joined(waits).error == codes.NOT_COORDINATOR
    assert play.joined(play.join()).error == codes.NOT_COORDINATOR
    assert play.beat(other, 1) == play.leave(other) == codes.NOT_COORDINATOR
    assert play.group.commit("", -1, play.now) == codes.NOT_COORDINATOR
    play.wait(1)
    assert play.group.state is State.DEAD


@pytest.mark.parametrize("seed", range(40))
def test_members_that_come_and_go_at_random_settle_in_one_generation(seed: int) -> None:
    """Each request is answered once, by the longest timeout at the latest; then all members that
    go on have one generation and one leader."""
    chance = random.Random(seed)
    play = Play()
    waiting: dict[int, str] = {}
    known: dict[str, int] = {}
    for _ in range(300):
        act = chance.randrange(6)
        name = chance.choice([*known, ""])
        if act == 0 or (act == 1 and name):
            waiting[play.join(name)] = name
        elif act == 2 and name:
            given = dict.fromkeys(play.group.members, b"x")
            play.sync(name, chance.choice((known[name], play.group.generation)), given)
        elif act == 3 and name:
            play.leave(name)
        elif act == 4 and waiting:
            play.gone(chance.choice(list(waiting)))
        else:
            play.wait(chance.choice((0.1, 1.0, 8.0)))
        for ticket in [each for each in waiting if each in play.answers]:
            waiting.pop(ticket)
            answer = play.joined(ticket)
            if not answer.error:
                known[answer.member] = answer.generation
        known = {each: at for each, at in known.items() if each in play.group.members}
    settled = _settled(play)
    assert {each.generation for each in settled.values()} == {play.group.generation}
    assert settled.keys() == play.group.members.keys()
    (leader,) = {each.leader for each in settled.values()}
    syncs = [play.sync(name, each.generation) for name, each in settled.items() if name != leader]
    play.sync(leader, play.group.generation)
    assert play.group.state is State.STABLE
    assert {play.synced(ticket).error for ticket in syncs} <= {codes.NONE}


def _settled(play: Play) -> dict[str, Joined]:
    """The membership of each member, once all have joined as Kafka's clients do."""
    pending = [play.join(name) for name in list(play.group.members)] + [play.join()]
    settled: dict[str, Joined] = {}
    for _ in range(320):
        play.wait(0.1)
        for ticket in [each for each in pending if each in play.answers]:
            pending.remove(ticket)
            answer = play.joined(ticket)
            if not answer.error:
                settled[answer.member] = answer
        for name, answer in list(settled.items()):
            if play.beat(name, answer.generation):
                del settled[name]
                pending.append(play.join(name))
        if not pending:
            return settled
    raise AssertionError(f"the requests {pending} to join have no answer")


def test_a_member_that_joins_again_grows_by_its_new_metadata() -> None:
    play, (leader, _) = stable(2)

    def growth(member: str, metadata: bytes) -> int:
        wish = Wish("g", member, 10_000, 30_000, "consumer", (("range", metadata),))
        return play.group.growth(wish)

    own = sum(len(name) + len(metadata) for name, metadata in RANGE)
    assert growth("", b"x" * 10) == 15 + group._MEMBER_BYTES
    assert growth(leader, b"x" * 1_000) == 1_005 - own


def test_every_new_member_grows_the_group() -> None:
    """Also a member without metadata, whose protocol has no name: a node counts its members'
    bytes."""
    own = Group()
    wish = Wish("g", "", 10_000, 10_000, "consumer", [("", b"")])
    before = own.size
    growth = own.growth(wish)
    own.join(wish, 1, 0.0, name="m")
    assert growth == own.size - before > 0
    assert own.growth(wish._replace(member="m")) == 0


def test_a_long_type_of_a_protocol_is_refused() -> None:
    """It would stay in memory, and in every list of groups."""
    play = Play()
    refused = play.answers[play.join(kind="k" * 256)]
    assert refused.error == codes.INCONSISTENT_GROUP_PROTOCOL
