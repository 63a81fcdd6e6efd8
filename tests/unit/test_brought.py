"""Who has appended little lately, with a clock that the test turns."""

from lognode.client.limits import append_light_bytes, spenders_max
from lognode.node.brought import HALF_LIFE_S, Brought


def test_who_brought_much_is_light_again_some_seconds_later() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    assert brought.is_light("a")
    brought.add("a", 8 * append_light_bytes)
    assert not brought.is_light("a")
    assert brought.is_light("b")
    now[0] = 2.9 * HALF_LIFE_S
    assert not brought.is_light("a")
    now[0] = 3.1 * HALF_LIFE_S
    assert brought.is_light("a")


def test_many_small_appends_add_up() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    for _ in range(100):
        now[0] += 0.01
        brought.add("a", append_light_bytes // 20)
    assert not brought.is_light("a")
    for _ in range(1_000):
        now[0] += 0.1
        brought.add("b", append_light_bytes // 40)
    assert brought.is_light("b")


def test_a_million_names_take_bounded_memory() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    for name in range(3 * spenders_max):
        brought.add(str(name), 1)
    assert len(brought) <= spenders_max + 1
    now[0] = 100.0
    for name in range(spenders_max):
        brought.add(f"later {name % 5}", 1)
        brought.add(f"and {name}", 1)
    assert len(brought) <= spenders_max + 6
