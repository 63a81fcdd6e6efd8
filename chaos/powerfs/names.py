"""The names that were made, removed and renamed since their directory's last fsync.

Any possible choice of these changes may survive a power cut: a file in a directory needs the
directory, and a rename needs the file. A rename between two directories is one change; an fsync of
either directory covers it.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_SHARES: Final = (0.0, 0.5, 1.0)
"""The probability that a change survives, in one cut: none, some, all."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change from `old` to `new`, paths below the root.

    One of them is missing where a name was made or removed. Each change is distinct, even with
    equal values. `directory`: the name is that of a directory.
    """

    old: str | None
    new: str | None
    spare: str | None = None
    """The path of the kept file that was removed, or replaced by the rename."""
    directory: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the one or two paths."""
        return tuple(path for path in (self.old, self.new) if path is not None)

    def needs(self, earlier: "Change") -> bool:
        """Whether this change cannot have happened without the earlier one."""
        return any(
            one == other or one.startswith(other + "/") or other.startswith(one + "/")
            for one in self.paths
            for other in earlier.paths
        )


class Names:
    """The changes that no fsync has covered, in order."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._changes)

    def changed(self, change: Change) -> None:
        """Note a change that has happened."""
        self._changes.append(change)

    def now(self) -> tuple[Change, ...]:
        """Return all changes: when an fsync of a directory begins, these are what it may cover."""
        return tuple(self._changes)

    def synced(self, directory: str, before: tuple[Change, ...]) -> list[Change]:
        """Note the end of an fsync; return the changes that it covered, with all that they need.

        `before` are the changes when the fsync began.
        """
        inside = [
            change
            for change in self._changes
            if change in before
            and any(str(PurePosixPath(path).parent) == directory for path in change.paths)
        ]
        covered = self._with_needs(inside)
        self._changes = [change for change in self._changes if change not in covered]
        return covered

    def lose(self, rng: random.Random) -> list[Change]:
        """Return the changes that do not survive a power cut, in the order of undoing."""
        share = rng.choice(_SHARES)
        kept = self._with_needs([change for change in self._changes if rng.random() < share])
        lost = [change for change in reversed(self._changes) if change not in kept]
        self._changes.clear()
        return lost

    def _with_needs(self, chosen: Iterable[Change]) -> list[Change]:
        """Return the changes in order, with all earlier changes that they need."""
        wanted = list(chosen)
        found: list[Change] = []
        for change in reversed(self._changes):
            if change in wanted or any(one.needs(change) for one in found):
                found.append(change)
        return found[::-1]
