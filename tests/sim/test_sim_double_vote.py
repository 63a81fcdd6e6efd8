"""A node votes, dies, and is asked again in the same term: it has to remember whom it voted for.

Random faults seldom bring this about. Two members must stand for election in one term, and the
request of one must reach the third after the third has voted for the other and started again.
"""

from typing import Any

import pytest

from lognode.chaos.sim.clock import START_S
from lognode.chaos.sim.member import _VOTE_REQUEST, Member
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.safety import SafetyChecker
from lognode.chaos.sim.world import Outcome, World, judge
from lognode.raft import wal_format
from lognode.raft.group_log import GroupLog

QUIET_S = 3.0
"""Clients are silent from 2 to 4 s, so that all logs are equal."""
OPTIONS = Options(
    nodes=3, faults=(), clients=2, keys=2, think_seconds=0.2, lull_seconds=2.0, phases=False
)


class Scenario:
    """`first` stands, and `voter` votes for it and dies at once. `second` stood in the same term;
    what it asks comes late, when `voter` runs again and hears nothing of `first`, which leads."""

    def __init__(self, power: bool) -> None:
        self.world = World(7, OPTIONS)
        self.power = power
        self.votes: list[int] = []
        """Whom `voter` voted for, in the term of the scenario."""
        self.asked_again = False
        self.term = self.voter = self.first = self.second = 0

    def run(self) -> Outcome:
        self.world.scheduler.at(START_S + QUIET_S, self._stand)
        return judge(self.world)

    def _member(self, node: int) -> Member:
        (member,) = self.world.hosts[node].members()
        return member

    def _stand(self) -> None:
        world = self.world
        leaders = [node for node, host in world.hosts.items() if host.leads]
        (self.voter,) = leaders
        self.first, self.second = sorted(world.hosts.keys() - leaders)
        self.term = self._member(self.voter).group.term + 1
        self._watch(self._member(self.voter).safety)
        for one, other in ((self.first, self.second), (self.second, self.first)):
            world.network.cut(one, other, notice=False)
        self._take_over(self.first)
        # All that `second` sends now is late by up to this.
        world.network.conditions.late_max = 0.3
        self._take_over(self.second)

    def _take_over(self, node: int) -> None:
        host, member = self.world.hosts[node], self._member(node)

        def stand() -> None:
            member.group.take_over()
            host.touch(member)
            host.pump()

        host.now(stand)

    def _watch(self, safety: SafetyChecker) -> None:
        whole = safety.voted

        def voted(node: int, term: int, candidate: int) -> None:
            if (node, term) == (self.second, self.term) and candidate == self.second:
                self.world.network.conditions.late = 1.0
                self.world.scheduler.after(0.0, self._punctual)
            if (node, term) == (self.voter, self.term):
                self.votes.append(candidate)
                if len(self.votes) == 1:
                    self.world.scheduler.after(0.0, self._die)
            whole(node, term, candidate)

        safety.voted = voted  # type: ignore[method-assign]

    def _punctual(self) -> None:
        self.world.network.conditions.late = 0.0

    def _die(self) -> None:
        world, host = self.world, self.world.hosts[self.voter]
        host.power_loss() if self.power else host.kill()
        world.scheduler.after(0.01, host.start)
        world.scheduler.after(0.01, self._alone_with_second)
        world.scheduler.after(0.5, world.network.heal)

    def _alone_with_second(self) -> None:
        """`first`, which leads by now, is not heard."""
        for node in (self.voter, self.second):
            self.world.network.cut(self.first, node, notice=False)
        group = self._member(self.voter).group
        whole = group.receive

        def receive(sender: int, message: Any) -> None:
            self.asked_again |= sender == self.second and message[:2] == [_VOTE_REQUEST, self.term]
            whole(sender, message)

        group.receive = receive  # type: ignore[method-assign]


def _forget_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(self: GroupLog) -> wal_format.StateItem:
        return whole(self)._replace(vote=0)

    whole = GroupLog.state
    monkeypatch.setattr(GroupLog, "state", state)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_S2_hole_6_a_vote_survives_the_voter(power: bool) -> None:
    scenario = Scenario(power)
    outcome = scenario.run()
    assert outcome.violation is None, outcome.violation
    assert scenario.votes == [scenario.first]
    assert scenario.asked_again


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_vote_that_is_never_written_is_found_at_the_restart(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_votes(monkeypatch)
    outcome = Scenario(power).run()
    assert (outcome.violation or "").startswith("one-vote: a restart forgot a vote")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_vote_that_is_never_written_makes_two_votes_in_one_term(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forget_votes(monkeypatch)
    monkeypatch.setattr(SafetyChecker, "_check_vote", lambda *_: None)
    scenario = Scenario(power)
    outcome = scenario.run()
    assert (outcome.violation or "").startswith("one-vote: a node voted twice in a term")
    assert scenario.votes == [scenario.first, scenario.second]
