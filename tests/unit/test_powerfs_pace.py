"""How long a slow disk takes, by numbers and a random source; and who waits for it."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lognode.chaos.powerfs.backing import Backing
from lognode.chaos.powerfs.pace import HANG_S, Pace, Slowness, Times

LONG = Slowness(30.0, 60.0)


@pytest.mark.parametrize(
    ("slowness", "syncs", "writes"),
    [(Slowness(0.02, 0.05), (0.02, 0.05), (0.0, 0.0)),
     (Slowness(0.1, 0.5, writes=True), (0.1, 0.5), (0.1, 0.5)),
     (Slowness(0.0, 0.0), (0.0, 0.0), (0.0, 0.0))],
)  # fmt: skip
def test_a_call_takes_a_drawn_time(
    slowness: Slowness, syncs: tuple[float, float], writes: tuple[float, float]
) -> None:
    times = Times(slowness)
    for write, (least, most) in ((False, syncs), (True, writes)):
        took = [times.end(float(now), write=write) - now for now in range(500)]
        assert least - 1e-9 <= min(took) <= max(took) <= most + 1e-9
        assert max(took) - min(took) >= 0.9 * (most - least)


def test_a_disk_that_hangs_holds_all_that_comes_until_it_goes_on() -> None:
    """A hundred calls a second; the first of a hang takes it all, and those after it the rest."""
    times = Times(Slowness(0.02, 0.05, hangs=0.01, seed=3))
    calls = [(now, times.end(now)) for now in (n / 100 for n in range(20_000))]
    ends = sorted({end for now, end in calls if end - now > 1.0})
    assert len(ends) > 10, "it hangs, and goes on, again and again"
    for end in ends:
        first = next(now for now, each in calls if each == end)
        assert HANG_S[0] <= end - first <= HANG_S[1]
        meanwhile = [each for now, each in calls if first <= now < end - 0.05]
        assert set(meanwhile) == {end}
    quick = [end - now for now, end in calls if end not in ends]
    assert max(quick) <= 0.06
    assert not [1 for now, end in calls[:2000] if end - now > 0.06 and end not in ends]


def test_two_disks_by_one_seed_are_slow_alike() -> None:
    def run(seed: int) -> list[float]:
        times = Times(Slowness(0.02, 0.5, hangs=0.1, seed=seed))
        return [times.end(float(now)) for now in range(50)]

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize("slowness", [LONG, Slowness(0.1, 0.5, writes=True, hangs=0.02, seed=7)])
def test_a_valid_pace_is_parsed(slowness: Slowness) -> None:
    line = slowness.to_line()
    assert "\n" not in line
    assert Slowness.from_line(line) == slowness


@pytest.mark.parametrize("line", ["", "{}", '{"least_s": 1}', "[1, 2]", '{"speed": 1}'])
def test_a_malformed_pace_is_refused(line: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        Slowness.from_line(line)


def waiting(call: Callable[[], object]) -> threading.Thread:
    """A thread that is in the call still."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    return thread


def soon(call: Callable[[], object]) -> None:
    """It does not wait."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("then", [None, Slowness(0.0, 0.0)])
def test_a_waiting_operation_goes_on_when_the_pace_changes(then: Slowness | None) -> None:
    pace = Pace()
    pace.sync()
    pace.set(LONG)
    threads = [waiting(pace.sync) for _ in range(3)]
    pace.write()
    pace.set(then)
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    pace.sync()


def test_a_slow_disk_does_what_it_is_told_and_covers_it(tmp_path: Path) -> None:
    """Others go on meanwhile; what waits has been done, a write alone is still to be done."""
    backing = Backing(tmp_path)
    fd = backing.make("/a", 0o644)
    backing.write(fd, 0, b"before")
    backing.pace.set(LONG)
    threads = [waiting(lambda: backing.sync(fd)), waiting(lambda: backing.sync_directory("/"))]
    soon(lambda: backing.write(fd, 0, b"during"))
    assert backing.read(fd, 0, 6) == b"during"
    backing.pace.set(None)
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    soon(lambda: backing.sync(fd))
    backing.pace.set(Slowness(30.0, 60.0, writes=True))
    thread = waiting(lambda: backing.write(fd, 6, b"!"))
    assert os.fstat(fd).st_size == 6
    backing.pace.set(None)
    thread.join(5)
    assert backing.read(fd, 0, 9) == b"during!"
    backing.close(fd)


def test_a_short_time_is_waited_out() -> None:
    pace = Pace()
    pace.set(Slowness(0.05, 0.06))
    began = time.monotonic()
    pace.sync()
    assert 0.05 <= time.monotonic() - began < 5.0
