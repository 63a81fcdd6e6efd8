"""Which names were made, removed and renamed since their directory's last fsync.

What survives a power cut is any choice of these changes that can be: a file in a directory needs
the directory, and a rename the file that it was of. A rename between two directories is one
change; an fsync of either covers it.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_SHARES: Final = (0.0, 0.5, 1.0)
"""How likely a change survives, in one cut: none, some, all."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Of the names `old` and `new`, paths below the root; the one or the other is missing where a
    name was made or removed. Each is another, whatever it says. `directory`: it is of one."""

    old: str | None
    new: str | None
    spare: str | None = None
    """Where the file is kept that was removed, or replaced by the rename."""
    directory: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """One or both."""
        return tuple(path for path in (self.old, self.new) if path is not None)

    def needs(self, earlier: "Change") -> bool:
        """Whether it cannot have happened without the other, which came before it."""
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
        """It has happened."""
        self._changes.append(change)

    def now(self) -> tuple[Change, ...]:
        """All: taken when an fsync of a directory begins, they are what it may cover."""
        return tuple(self._changes)

    def synced(self, directory: str, before: tuple[Change, ...]) -> list[Change]:
        """An fsync has ended of which `before` are the changes when it began. Returns those that
        it covered, with all that they need."""
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
        """What does not survive a power cut, in the order in which it is to be undone."""
        share = rng.choice(_SHARES)
        kept = self._with_needs([change for change in self._changes if rng.random() < share])
        lost = [change for change in reversed(self._changes) if change not in kept]
        self._changes.clear()
        return lost

    def _with_needs(self, chosen: Iterable[Change]) -> list[Change]:
        """In order, and with all before them that they need."""
        wanted = list(chosen)
        found: list[Change] = []
        for change in reversed(self._changes):
            if change in wanted or any(one.needs(change) for one in found):
                found.append(change)
        return found[::-1]
