"""An error for a committed command of a newer program, which this program does not know.

Skipping the command would give this replica another state than the members that know the command,
and nobody would notice. So the replica stops before the entry, and nothing of the replica is
changed. After an upgrade of the node the replica goes on with that entry.

Only *new* kinds of commands are found like this. A command that kept its kind and got another
meaning would be applied in two ways: a new meaning takes a new kind.
"""

from collections.abc import Iterable
from typing import Final

_SHOWN_MAX: Final = 50


class UnknownCommandError(Exception):
    """A replica cannot apply the next entry; the text says what it met and what to do."""

    def __init__(self, index: int, met: str, known: Iterable[object]) -> None:
        """Make the error. `index`: of the entry; `met`: the command, in words.

        `known`: the kinds that this program knows.
        """
        names = ", ".join(map(str, [*known][:_SHOWN_MAX]))
        super().__init__(
            f"entry {index} is {met}; this program knows {names}. Upgrade this node to the "
            f"version of the other nodes: the replica then continues with entry {index}"
        )
