"""Who gives way when a listener is full: bookkeeping without sockets."""

import random

import pytest

from lognode.client.accepting.seats import Bounds, Seats
from lognode.client.protocol.errors import Overloaded


class Guest:
    """Busy unless `idle_since` says since when it is not."""

    def __init__(self, host: str = "h", idle_since: float | None = None) -> None:
        self.host = host
        self.idle_since = idle_since


def seats(connections: int = 8, handshakes: int = 4, share: float = 1.0) -> Seats[Guest]:
    bounds = Bounds(connections, handshakes, host_share=share, idle_s=600.0)
    return Seats(bounds, random.Random(1))


def seated(among: Seats[Guest], guests: list[Guest]) -> list[Guest]:
    for guest in guests:
        assert among.arrive(guest) is None
        assert among.sit(guest) is None
    return guests


def test_the_one_that_has_been_at_the_door_for_longest_gives_way() -> None:
    among = seats(handshakes=2)
    first, second, third, fourth = (Guest() for _ in range(4))
    assert among.arrive(first) is None
    assert among.arrive(second) is None
    assert among.arrive(third) is first
    among.leave(second)
    assert among.arrive(fourth) is None
    assert set(among.guests) == {third, fourth}


def test_a_crowd_at_the_door_sends_nobody_of_another_host_away() -> None:
    among = seats(handshakes=8)
    honest = Guest("honest")
    among.arrive(honest)
    crowd = [Guest("crowd") for _ in range(100)]
    gone = [among.arrive(guest) for guest in crowd]
    assert gone == [None] * 7 + crowd[:93]
    other = Guest("other")
    assert among.arrive(other) is crowd[93]
    among.sit(honest)
    assert {honest, other} <= set(among.guests)


def test_an_endless_handshake_takes_no_seat_from_other_clients() -> None:
    among = seats(connections=2, handshakes=2)
    kept = seated(among, [Guest(), Guest()])
    for _ in range(100):
        among.arrive(Guest())
    assert among.taken == 2
    assert set(kept) <= set(among.guests)
    assert len(among) == 4


def test_the_idlest_gives_way_and_the_busy_do_not() -> None:
    among = seats(connections=4)
    busy, _, idlest, _ = seated(
        among, [Guest(), Guest(idle_since=9.0), Guest(idle_since=2.0), Guest(idle_since=5.0)]
    )
    new = Guest()
    among.arrive(new)
    assert among.sit(new) is idlest
    assert among.taken == 4
    assert busy in among.guests
    assert idlest not in among.guests


def test_where_all_are_busy_a_new_one_is_refused_and_may_come_back() -> None:
    among = seats(connections=2)
    one, _ = seated(among, [Guest(), Guest()])
    new = Guest()
    among.arrive(new)
    with pytest.raises(Overloaded, match="this node has 2 connections, the limit of the node"):
        among.sit(new)
    one.idle_since = 1.0
    assert among.sit(new) is one


def test_the_host_with_most_connections_makes_room() -> None:
    """However long those of others have been idle."""
    among = seats(connections=5)
    seated(among, [Guest("few", 1.0), Guest("other", 1.0)])
    many = seated(among, [Guest("many", 100.0 + n) for n in range(3)])
    new = Guest("new")
    among.arrive(new)
    assert among.sit(new) is many[0]


def test_one_host_does_not_get_the_last_eighth() -> None:
    among = seats(connections=16, share=7 / 8)
    seated(among, [Guest("greedy") for _ in range(14)])
    more = Guest("greedy")
    among.arrive(more)
    with pytest.raises(Overloaded, match="14 connections from greedy, the limit of a host"):
        among.sit(more)
    seated(among, [Guest("other"), Guest("other")])


def test_leaving_twice_is_leaving_once() -> None:
    among = seats()
    one, other = seated(among, [Guest(), Guest()])
    among.leave(one)
    among.leave(one)
    assert (among.taken, among.guests) == (1, [other])


def test_without_an_idle_timeout_nobody_gives_way() -> None:
    """The link of a peer is idle between two messages."""
    among: Seats[Guest] = Seats(Bounds(1, 1), random.Random(1))
    seated(among, [Guest(idle_since=1.0)])
    new = Guest()
    among.arrive(new)
    with pytest.raises(Overloaded):
        among.sit(new)
