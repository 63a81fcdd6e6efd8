"""How many keys a consumer asks for follows the pace of its caller."""

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


def test_a_caller_gets_the_keys_of_a_second() -> None:
    caller = Caller()
    assert caller.pace.keys == keys_least
    assert 190 <= caller.takes(100, 0.005) <= 210
    assert 390 <= caller.takes(100, 0.0025) <= 410


def test_the_room_of_a_fast_caller_ends_at_the_bound() -> None:
    assert Caller().takes(5_000, 0.0001) == 1_000
    assert Caller(8).takes(5_000, 0.0001) == Caller(8).pace.keys == 8


def test_a_caller_that_has_become_slow_gets_few_keys_at_once() -> None:
    caller = Caller()
    assert caller.takes(5_000, 0.0001) == 1_000
    assert caller.takes(40, 2.0) == keys_least


def test_a_long_silence_is_no_pace() -> None:
    """After an hour without keys the first burst is not taken for slowness for long."""
    caller = Caller()
    caller.takes(1, 3_600.0)
    assert caller.takes(400, 0.0005) >= 1_000
