"""A committed command that this program does not know: a newer program has proposed the command.

Skipping the command would give this replica another state than the members that know the command,
and nobody would notice. So the replica stops before the entry, and nothing of the replica is
changed. After an upgrade of the node the replica goes on with that very entry.

Only what is *new* is found like this. A command that keeps its kind and gets another meaning would
be applied in two ways: a new meaning takes a new kind.
"""

from collections.abc import Iterable
from typing import Final

_SHOWN_MAX: Final = 50


class UnknownCommandError(Exception):
    """A replica cannot apply the next entry; the text says what was met and what to do."""

    def __init__(self, index: int, met: str, known: Iterable[object]) -> None:
        """`index`: of the entry; `met`: the command, in words; `known`: what this program knows."""
        names = ", ".join(map(str, [*known][:_SHOWN_MAX]))
        super().__init__(
            f"entry {index} is {met}; this program knows {names}. Upgrade this node to the "
            f"version of the others: the replica then goes on with entry {index}"
        )
