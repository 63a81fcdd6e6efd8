"""The views that an append waits for: all of them, or any number of them; `wait_for` of appends."""

from collections.abc import Sequence
from typing import Final

from .protocol import limits
from .protocol.errors import InvalidArgument


class AllOf:
    """All of these views: `wait_for=AllOf("search", "cache")` is `wait_for=["search", "cache"]`.

    With `live=True` the append does not wait for the view of a group while no consumer of the
    group lives. Such a view counts as not seen.
    """

    __slots__ = ("live", "names")
    __match_args__: Final = ("names", "live")

    def __init__(self, *names: str, live: bool = False) -> None:
        self.names = names
        self.live = live

    def __repr__(self) -> str:
        return f"AllOf({_told(self.names, self.live)})"


class AnyOf:
    """Any `count` of these views: with `wait_for=AnyOf(1, "search", "cache")` an append returns
    as soon as one of the views has acknowledged the entry.

    With `live=True` the append does not wait for the view of a group while no consumer of the
    group lives. If fewer than `count` views live, the append waits for these.
    """

    __slots__ = ("count", "live", "names")
    __match_args__: Final = ("count", "names", "live")

    def __init__(self, count: int, *names: str, live: bool = False) -> None:
        self.count = count
        self.names = names
        self.live = live

    def __repr__(self) -> str:
        return f"AnyOf({self.count!r}, {_told(self.names, self.live)})"


WaitFor = Sequence[str] | AllOf | AnyOf
"""Names of views: an append waits for all of them; or a choice."""


def checked_choice(wait_for: WaitFor) -> tuple[tuple[str, ...], int, bool]:
    """Return the names of the choice without repetitions, how many of the views an append waits
    for, and whether it waits for live ones only. Raises InvalidArgument."""
    choice: object = wait_for
    if isinstance(wait_for, Sequence) and not isinstance(wait_for, str | bytes):
        choice = AllOf(*wait_for)
    if not isinstance(choice, AllOf | AnyOf) or not _are_names(choice.names):
        raise InvalidArgument(
            f"wait_for is {wait_for!r}; give a list of at most {limits.view_waits_for_max} names "
            "of views, AllOf(name, ...) or AnyOf(count, name, ...)",
            what="wait_for",
        )
    names = tuple(dict.fromkeys(choice.names))
    count = choice.count if isinstance(choice, AnyOf) else len(names)
    if type(count) is not int or not 1 <= count <= len(names):
        raise InvalidArgument(
            f"wait_for is {wait_for!r}; the count is {count!r}. Give 1 to {len(names)}, the number "
            "of the views",
            what="wait_for",
        )
    return names, count, bool(choice.live)


def _are_names(names: Sequence[object]) -> bool:
    return 1 <= len(names) <= limits.view_waits_for_max and all(
        isinstance(name, str) for name in names
    )


def _told(names: Sequence[str], live: bool) -> str:
    return ", ".join([*map(repr, names), *(["live=True"] if live else [])])
