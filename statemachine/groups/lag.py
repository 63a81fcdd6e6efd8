"""The exact lag of a group at a read's index (G6)."""

from collections.abc import Collection
from typing import NamedTuple

from ..range_state import RangeState
from ..spans import EVERYTHING
from .group import Group
from .undone import Search


class Lag(NamedTuple):
    """What a group has not done of the entries of a range."""

    at_index: int
    """The applied index at which this is exact."""
    entries: int
    bytes: int
    """Keys and values of these entries."""
    oldest_ms: int | None
    """The timestamp of the oldest of these entries; None without an entry."""
    waiting: int
    """Keys with undone entries, neither in flight nor parked."""
    in_flight: int
    """Keys with undone entries that a consumer has."""
    parked: int
    """Keys that wait for a retry or a skip."""
    begun: bool
    """Whether the group has begun on all keys; entries of other keys are not counted."""


def lag(state: RangeState, group: Group, in_flight: Collection[bytes] = ()) -> Lag:
    """Return the lag of a group, given the keys that the leader has leased.

    This reads all undone entries in one go. A node takes the steps of `Search` in turns instead,
    and `of_search`.
    """
    search = Search(state, group, EVERYTHING, state.next_seq)
    index = state.applied_index
    while not search.done:
        search.step()
    return of_search(search, index, in_flight)


def of_search(search: Search, index: int, in_flight: Collection[bytes]) -> Lag:
    """Return the lag that a complete, undisturbed search of all keys has found."""
    found = search.keys
    parked = search.parked
    flying = sum(key in found and key not in parked for key in set(in_flight))
    return Lag(
        index,
        sum(key.entries for key in found.values()),
        sum(key.bytes for key in found.values()),
        min((key.oldest_ms for key in found.values()), default=None),
        sum(key not in parked for key in found) - flying,
        flying,
        len(parked),
        search.begun,
    )
