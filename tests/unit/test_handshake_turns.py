"""Turns of handshakes, with clocks that the test turns."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lognode.client.accepting.handshake_turns import (
    HandshakeTurns,
    Pace,
    burst_s,
    busy_share,
    handshakes_share,
    step_s,
    turn_s,
    wanted_s,
)
from lognode.client.fair_turns import Step


class Machine:
    """A thread whose other work takes `others` of the time."""

    def __init__(self, others: float) -> None:
        self.others = others
        self.time = 0.0
        self.wanted = 0.0
        self.pace = Pace(handshakes_share, lambda: self.time, lambda: self.wanted)

    def pass_by(self, seconds: float) -> None:
        """Time passes without handshakes."""
        self.time += seconds
        self.wanted += seconds * self.others

    def work(self, seconds: float) -> None:
        """A handshake takes so long."""
        self.time += seconds
        self.wanted += seconds
        self.pace.spent(seconds)


@pytest.mark.parametrize(
    ("others", "gets"),
    [(0.0, busy_share), (0.1, busy_share - 0.1), (0.5, handshakes_share), (1.0, handshakes_share)],
)
def test_work_gets_its_share_and_what_nobody_else_wants(others: float, gets: float) -> None:
    machine = Machine(others)
    began, worked = machine.time, 0.0
    while machine.time - began < 10.0:
        if machine.pace.has_time:
            machine.work(0.0007)
            worked += 0.0007
            # While this work holds the thread the others want it no less.
            machine.wanted += 0.0007 * others
        else:
            assert 0.0 < machine.pace.wait_s <= 0.005
            machine.pass_by(0.0005)
    assert worked == pytest.approx(gets * 10.0, abs=2 * burst_s + 0.01)


def test_a_pace_that_was_not_used_has_a_burst_and_no_more() -> None:
    machine = Machine(others=0.0)
    machine.pass_by(1_000.0)
    worked = 0.0
    while machine.pace.has_time:
        machine.time += 0.0001
        machine.pace.spent(0.0001)
        worked += 0.0001
    assert burst_s <= worked < 3 * burst_s


def test_a_step_during_which_the_thread_lost_the_processor_stops_nobody_for_long() -> None:
    machine = Machine(others=1.0)
    machine.work(30.0)
    began = machine.time
    while not machine.pace.has_time:
        machine.pass_by(0.001)
    assert machine.time - began <= 2 * burst_s / handshakes_share + 0.002


def test_a_thread_wants_time_while_it_runs_and_hardly_any_while_it_sleeps() -> None:
    began = wanted_s()
    count = 0
    while wanted_s() - began < 0.01:
        count += 1
        assert count < 1_000_000


class Guest:
    """A connection in its handshake, with some steps that each take `cost_s`."""

    def __init__(self, door: "Door", host: str, steps: int, cost_s: float) -> None:
        self.host = host
        self.left = steps
        self.cost_s = cost_s
        self.door = door
        self.turns = door.turns.of(host)

    def say(self) -> None:
        """Bytes come."""
        until = self.turns.begin(self.step)
        if until is not None:
            self.step(until)

    def step(self, until: float) -> None:
        assert until <= self.door.time + step_s
        self.door.time += self.cost_s
        self.left -= 1
        self.door.served.append((self.door.turn, self))
        self.turns.spent(self.cost_s)


class Door:
    """The handshakes of one listener; `served` has the turn of the loop and the guest of each
    step."""

    def __init__(self) -> None:
        self.time = 0.0
        self.turn = 0
        self.served: list[tuple[int, Guest]] = []
        # The other work of the thread takes all that it can get.
        self.turns = HandshakeTurns(
            Pace(handshakes_share, lambda: self.time, lambda: 10.0 * self.time)
        )

    async def pass_turns(self, count: int) -> None:
        for _ in range(count):
            self.turn += 1
            self.time += 0.0001
            await asyncio.sleep(0)

    async def until_served(self, count: int) -> None:
        """The timers of the loop go by the time of the machine: turns pass until so many steps
        are done."""
        while len(self.served) < count:
            self.time += 0.01
            self.turn += 1
            await asyncio.sleep(0.0005)

    @property
    def hosts(self) -> str:
        """The hosts of the steps that were done, in order."""
        return "".join(guest.host for _, guest in self.served)


def run(test: Callable[[Door], Awaitable[None]]) -> Door:
    async def main() -> Door:
        door = Door()
        async with asyncio.timeout(60):
            await test(door)
        return door

    return asyncio.run(main())


def test_somebody_alone_waits_for_nothing() -> None:
    async def test(door: Door) -> None:
        for _ in range(5):
            Guest(door, "a", 1, 0.0001).say()
            assert len(door.served) == 1
            door.served.clear()
            await door.pass_turns(1)

    run(test)


def test_a_turn_of_the_loop_has_time_for_a_few_steps() -> None:
    async def test(door: Door) -> None:
        for _ in range(16):
            Guest(door, "a", 1, turn_s / 2).say()
        assert len(door.served) == 2
        assert door.turns.waiting == 14
        await door.pass_turns(8)

    door = run(test)
    turns = [turn for turn, _ in door.served]
    assert [turns.count(turn) for turn in range(8)] == [2] * 8


def test_hosts_take_turns_however_many_connections_each_has() -> None:
    async def test(door: Door) -> None:
        for _ in range(300):
            Guest(door, "a", 1, turn_s).say()
        first = len(door.served)
        for _ in range(3):
            Guest(door, "b", 1, turn_s).say()
        Guest(door, "c", 1, turn_s).say()
        await door.until_served(first + 8)

    door = run(test)
    later = door.hosts[door.hosts.index("b") - 1 :]
    assert later.startswith("abcabab"), door.hosts


def test_handshakes_that_have_begun_go_before_new_ones_of_their_host() -> None:
    """Else a host with too many of them would end none in time."""

    async def test(door: Door) -> None:
        guests = [Guest(door, "a", 2, turn_s) for _ in range(10)]
        for guest in guests:
            guest.say()
        await door.pass_turns(3)
        assert 1 < len(door.served) < 6
        begun = door.served[0][1]
        begun.say()
        assert begun.left == 1
        had = len(door.served)
        await door.pass_turns(2)
        assert door.served[had][1] is begun

    run(test)


def test_a_begun_handshake_waits_for_no_crowd_of_new_ones_of_any_host() -> None:
    async def test(door: Door) -> None:
        honest = Guest(door, "h", 2, turn_s)
        honest.say()
        crowd = [Guest(door, f"{at:04}", 1, turn_s) for at in range(200)]
        for guest in crowd:
            guest.say()
        await door.pass_turns(1)
        honest.say()
        had = len(door.served)
        await door.pass_turns(2)
        assert door.served[had][1] is honest

    run(test)


def test_new_handshakes_are_served_beside_slow_ones() -> None:
    async def test(door: Door) -> None:
        dribbling = [Guest(door, f"{at:02}", 1_000, turn_s / 10) for at in range(50)]
        for guest in dribbling:
            guest.turns.spent(0.0)  # has begun
            guest.say()
            guest.say()
        Guest(door, "new", 1, turn_s / 10).say()
        await door.until_served(20)
        order = [guest.host for _, guest in door.served]
        first = door.served[0][0]
        waited = order.index("new")
        # What was served at once does not count: nobody waited yet.
        assert waited <= sum(turn == first for turn, _ in door.served) + 4

    run(test)


def test_a_step_that_fails_stops_nobody_else() -> None:
    async def test(door: Door) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(5):
            Guest(door, "a", 1, turn_s).say()

        def fails(until: float) -> None:
            raise AssertionError("a bug behind a frame")

        door.turns.of("b").later(fails)
        for _ in range(5):
            Guest(door, "c", 1, turn_s).say()
        await door.until_served(10)
        assert door.turns.waiting == 0

    run(test)


def test_handshakes_take_no_more_than_their_share() -> None:
    async def test(door: Door) -> None:
        for _ in range(100):
            Guest(door, "a", 1, 0.001).say()
        began, served = door.time, len(door.served)
        await door.until_served(100)
        took = door.time - began
        # The line is served by the loop's own timers, so that there may be less, and never more.
        assert (100 - served) * 0.001 <= handshakes_share * took + burst_s + 0.001

    run(test)


def test_a_step_is_called_once_and_waits_for_its_turn() -> None:
    async def test(door: Door) -> None:
        called: list[Step] = []
        turns = door.turns.of("a")
        for _ in range(20):
            Guest(door, "b", 1, turn_s).say()

        def step(until: float) -> None:
            called.append(step)

        assert turns.begin(step) is None
        assert not called
        await door.until_served(20)
        await door.pass_turns(5)
        assert called == [step]
        assert door.turns.waiting == 0

    run(test)
