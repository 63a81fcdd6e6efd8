"""When a memtable is cold: looks at sizes, at times that the test gives."""

from lognode.client.protocol import limits
from lognode.node.replicas.idle_memtables import Cooling

ENOUGH = limits.memtable_cold_bytes
REST_S = limits.memtable_cold_s


def looked(*looks: tuple[int, float]) -> list[bool]:
    cooling = Cooling()
    return [cooling.is_cold(size, 1_000 + seconds) for size, seconds in looks]


def test_a_memtable_is_cold_after_the_time_without_growth() -> None:
    assert looked((ENOUGH, 0), (ENOUGH, REST_S - 0.1), (ENOUGH, REST_S)) == [False, False, True]


def test_a_memtable_too_small_for_a_file_waits_for_its_age() -> None:
    assert looked((ENOUGH - 1, 0), (ENOUGH - 1, 10 * REST_S)) == [False, False]


def test_a_little_growth_counts_for_nothing_and_more_begins_anew() -> None:
    little, much = ENOUGH + ENOUGH // 40, ENOUGH + ENOUGH // 10
    assert looked((ENOUGH, 0), (little, 20), (little, REST_S)) == [False, False, True]
    assert looked((ENOUGH, 0), (much, 20), (much, REST_S), (much, 20 + REST_S)) == (
        [False, False, False, True]
    )


def test_a_new_memtable_begins_anew() -> None:
    assert looked((2 * ENOUGH, 0), (0, 29), (ENOUGH, 30), (ENOUGH, 31)) == [False] * 4
    assert looked((2 * ENOUGH, 0), (ENOUGH, 29), (ENOUGH, 31))[-1] is False


def test_under_a_steady_load_none_is_cold_before_it_is_old_or_full() -> None:
    cooling, rate = Cooling(), 40 << 10
    aged = int(limits.memtable_age_s)
    assert rate * aged > 5 * limits.memtable_cold_bytes
    assert not any(cooling.is_cold(rate * second, float(second)) for second in range(aged))
