"""Who has appended little lately, with a clock that the test turns."""

from lognode.client.protocol.limits import append_light_bytes, spenders_max
from lognode.node.replicas.brought import BESIDE, HALF_LIFE_S, Brought


def test_a_heavy_principal_is_light_again_some_seconds_later() -> None:
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


def test_a_principal_with_an_eighth_of_the_heaviest_bytes_is_light() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    heavy = 2 * append_light_bytes
    brought.add("a", append_light_bytes)
    assert not brought.has_heavy
    assert not brought.is_beside_a_heavy("new"), "nobody is heavy"
    brought.add("a", heavy - append_light_bytes)
    brought.add("b", heavy // BESIDE)
    brought.add("c", heavy // BESIDE + 1)
    assert brought.has_heavy
    beside = [name for name in ("a", "b", "c", "new") if brought.is_beside_a_heavy(name)]
    assert beside == ["b", "new"]
    now[0] = 0.9 * HALF_LIFE_S
    assert brought.is_beside_a_heavy("b"), "both halve alike"
    now[0] = 1.1 * HALF_LIFE_S
    assert not brought.is_beside_a_heavy("b"), "nobody is heavy any more"
    assert not brought.has_heavy


def test_a_node_is_shared_while_one_principal_brings_much_and_another_little() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    brought.add("small", 10)
    assert not brought.is_shared, "nobody is heavy"
    brought.add("a", 16 * append_light_bytes)
    brought.add("b", 16 * append_light_bytes)
    assert not brought.is_shared, "both bring much"
    brought.add("small", 10)
    assert brought.is_shared
    now[0] = 1.1 * HALF_LIFE_S
    brought.add("a", 16 * append_light_bytes)
    assert not brought.is_shared, "nobody has brought little lately"
    brought.add("small", 10)
    assert brought.is_shared
    now[0] += 0.9 * HALF_LIFE_S
    assert brought.is_shared


def test_another_principal_becomes_the_heaviest_once_it_has_brought_more_than_is_left() -> None:
    now = [0.0]
    brought = Brought(lambda: now[0])
    brought.add("was", 64 * append_light_bytes)
    brought.add("is", 8 * append_light_bytes)
    assert brought.is_beside_a_heavy("is")
    now[0] = 2 * HALF_LIFE_S  # 16 and 2 are left
    brought.add("is", 30 * append_light_bytes)
    assert not brought.is_beside_a_heavy("was")
    now[0] = 3 * HALF_LIFE_S
    brought.add("was", 1)  # what is less than the most changes nothing
    brought.add("small", 2 * append_light_bytes)
    assert brought.is_beside_a_heavy("small")


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
