"""x11: a leader whose wall clock is far from the others' does not stamp with it."""

import pytest

from lognode.node.replicas.clocks import Clocks, correction_ms

DAY = 86_400_000


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ((), 0),
        ((0, 0), 0),
        ((-59_000, -61_000), 0),  # of own 0, -59 s, -61 s the median is within a minute
        ((60_000, 60_000), 0),
        ((60_001, 60_001), 60_001),
        ((-2 * DAY, -2 * DAY), -2 * DAY),  # ours jumped
        ((2 * DAY, 0), 0),  # one of theirs did
        ((2 * DAY,), 0),  # two alone cannot tell
        ((2 * DAY, 2 * DAY, 0), 0),  # half of four cannot either
        ((2 * DAY, 2 * DAY, 2 * DAY - 5, 0), 2 * DAY - 5),
    ],
)
def test_x11_the_correction_is_the_median_when_it_is_far(
    peers: tuple[int, ...], expected: int
) -> None:
    assert correction_ms(peers) == expected


class Time:
    """A wall clock and a monotonic one, in the test's hand."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000_000
        self.now = 50.0

    def pass_s(self, seconds: float) -> None:
        self.wall += int(seconds * 1000)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def clocks(time: Time) -> Clocks:
    return Clocks(wall_ms=lambda: time.wall, monotonic=lambda: time.now)


def test_x11_a_jump_after_the_peers_were_heard_is_noticed(time: Time, clocks: Clocks) -> None:
    clocks.heard(2, time.wall)
    clocks.heard(3, time.wall + 40)
    time.pass_s(1)
    true = time.wall
    time.wall += 2 * DAY
    assert abs(clocks.stamp_ms() - true) <= 40


def test_x11_peers_that_fell_silent_do_not_count(time: Time, clocks: Clocks) -> None:
    for peer in (2, 3):
        clocks.heard(peer, time.wall + DAY)
    assert clocks.stamp_ms() == time.wall + DAY
    time.pass_s(11)
    assert clocks.stamp_ms() == time.wall
