"""How many keys wait in a consumer follows the pace of its caller."""

from lognode.client.group_pace import Pace, keys_least


class Caller:
    """A caller that takes keys, by a clock of its own."""

    def __init__(self, most: int = 1_000) -> None:
        self.now = 5.0
        self.pace = Pace(most, lambda: self.now)

    def takes(self, count: int, each_s: float) -> int:
        for _ in range(count):
            self.now += each_s
            self.pace.took()
        return self.pace.keys

    def rests(self, seconds: float) -> None:
        since = self.now
        self.now += seconds
        self.pace.rested(since)


def test_a_caller_gets_the_keys_of_a_second() -> None:
    caller = Caller()
    assert caller.pace.keys == keys_least
    assert 190 <= caller.takes(104, 0.005) <= 210
    assert 390 <= caller.takes(104, 0.0025) <= 410


def test_the_room_of_a_fast_caller_ends_at_the_bound() -> None:
    assert Caller().takes(400, 0.0001) == 1_000
    assert Caller(8).takes(400, 0.0001) == Caller(8).pace.keys == 8


def test_a_caller_that_has_become_slow_gets_few_keys_at_once() -> None:
    caller = Caller()
    assert caller.takes(400, 0.0001) == 1_000
    assert caller.takes(16, 2.0) == keys_least


def test_time_without_keys_is_not_the_callers() -> None:
    """A fast caller whose keys come slowly gets many of them once they are there."""
    caller = Caller()
    for _ in range(200):
        caller.rests(0.5)
        caller.takes(1, 0.0001)
    assert caller.pace.keys == 1_000


def test_a_slow_caller_whose_keys_come_slowly_is_slow() -> None:
    caller = Caller()
    for _ in range(200):
        caller.rests(5.0)
        caller.takes(1, 1.0)
    assert caller.pace.keys == keys_least
