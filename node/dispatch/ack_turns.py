"""When acknowledgements become a command: they gather while a command with others is under way.

Three members write and sync a command, which costs more than dozens of its keys. So the
acknowledgements that nobody waits for gather for longer: several times as long as the last command
took. On nodes with little to do that is some milliseconds, and on busy nodes it saves most of the
commands (as Nagle's algorithm saves packets, RFC 896). No key waits longer for that: when one of
the keys has a further entry, the acknowledgements go at once.
"""

from collections.abc import Collection
from typing import Final

from .leases import Lease

KEYS_A_TURN: Final = 512
"""Keys of one answer or command: each key takes 5 to 8 us of a turn of the loop."""
_WORTH_IT: Final = 128
"""Acknowledgements that wait for no others: a command with more is hardly cheaper for each."""
_PATIENCE: Final = 10
"""How many times as long as the last command took acknowledgements gather."""
_PATIENT_MS_MAX: Final = 50
"""How long they gather at most after a command."""


class AckTurns:
    """The leases whose acknowledgements wait to be proposed. Times are in ms."""

    def __init__(self) -> None:
        self.leases: dict[bytes, Lease] = {}
        """By key. Call `added` after a change."""
        self._hurried = False
        """Whether somebody waits for one of the acknowledgements, or for one of the keys."""
        self._under_way = 0
        self._begun_ms = 0
        """When the newest command was proposed."""
        self._due_ms = 0

    def add(self, lease: Lease) -> None:
        """Let the acknowledgement of a key wait, for which somebody waits."""
        self.leases[lease.key] = lease
        self._hurried = True

    def added(self, *, patient: bool) -> None:
        """Note that there are more `leases`. `patient`: nobody waits for them."""
        self._hurried = self._hurried or not patient

    def wanted(self, keys: Collection[bytes]) -> None:
        """Note that these keys have further entries."""
        if self.leases and not self._hurried:
            self._hurried = not self.leases.keys().isdisjoint(keys)

    def take(self, now_ms: int) -> list[list[Lease]]:
        """Return the leases for commands to be proposed now, by command."""
        if not self._is_due(now_ms):
            return []
        leases = list(self.leases.values())
        self.leases.clear()
        self._hurried = False
        return [leases[at : at + KEYS_A_TURN] for at in range(0, len(leases), KEYS_A_TURN)]

    def _is_due(self, now_ms: int) -> bool:
        gathered = len(self.leases)
        if gathered >= KEYS_A_TURN:
            return True
        if self._under_way:
            return False
        return self._hurried or gathered >= _WORTH_IT or now_ms >= self._due_ms

    def begun(self, commands: int, now_ms: int) -> None:
        """Note the number of commands that were made of what `take` returned."""
        if commands:
            self._under_way += commands
            self._begun_ms = now_ms

    def ended(self, now_ms: int) -> None:
        """Note that one of the commands was applied."""
        self._under_way -= 1
        patience = _PATIENCE * (now_ms - self._begun_ms)
        self._due_ms = now_ms + min(patience, _PATIENT_MS_MAX)

    @property
    def next_ms(self) -> int | None:
        """When to call `take`, unless something happens before; None: there is nothing to do."""
        return self._due_ms if self.leases and not self._under_way else None
