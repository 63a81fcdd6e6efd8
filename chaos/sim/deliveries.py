"""Checks what consumers of a group are given and acknowledge, over all ranges and leaders.

G1: an acknowledgement counts only with the newest token of its key. G2: each entry is acknowledged
under a token that was given for the entry. G3: an acknowledged entry is not given again, and not
acknowledged twice. G4: at the end every entry is acknowledged. S8: an output is appended with the
acknowledgement of all entries from which it was made, and so an entry has one output at most.
Tokens count from when their leader has confirmed its lead, since consumers get the answers of
leaders that have.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...client.protocol.records import decode_batch
from ...raft.types import GroupId
from ...statemachine import commands
from ...statemachine.commands import Command
from ...statemachine.groups.units import key_of
from .letters import DEAD, LetterHistory
from .violation import Violation

APPLIED: Final = frozenset((commands.GROUP_ACK, commands.GROUP_LETTER, commands.GROUP_COPIED))
"""The commands of groups that are checked when members apply them."""
Key = tuple[bytes, int]
"""A key and a seq, or a unit of the group (`statemachine.groups.units`) and a token."""


@dataclass
class Deliveries:
    """All that was given and acknowledged in one run."""

    letters: LetterHistory
    unordered: bool = False
    """Whether the units of the group are entries."""
    acked: set[Key] = field(default_factory=set)
    """Key and seq of each entry that is acknowledged, or a dead letter."""
    batches: int = 0
    claims: int = 0
    outputs: int = 0
    refused: int = 0
    _proposed: dict[tuple[int, bytes, int], int] = field(default_factory=dict)
    """By fence, key and position, the token of the acknowledgement."""
    _applied: set[tuple[GroupId, int]] = field(default_factory=set)
    _given: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    """By key and token, the seqs that the token was given for."""
    _made: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """By output, the seqs of the entries from which it was made."""
    _newest: dict[bytes, int] = field(default_factory=dict)
    _reached: dict[Key, int] = field(default_factory=dict)
    """By key and token, the position that the token has reached."""

    def key_of(self, unit: bytes) -> bytes:
        """Return the key of a unit of the group."""
        return key_of(unit) if self.unordered else unit

    def chose(self, key: bytes, token: int, seqs: Sequence[int]) -> bool:
        """Note that a leader chose a batch. Return whether an entry is acknowledged already."""
        self._given[key, token] = tuple(seqs)
        return any((self.key_of(key), seq) in self.acked for seq in seqs)

    def gave(self, key: bytes, token: int, *, was_acked: bool) -> None:
        """Note that a leader gave the batch, after the leader has confirmed its lead."""
        if was_acked:
            raise Violation("G3", "an acknowledged entry is given again", key=key, token=token)
        self.batches += 1
        self._newest[key] = token

    def claimed(self, key: bytes, token: int, holder: int | None) -> None:
        """Note that a leader let a consumer keep a key; `holder` is the token of its lease."""
        if holder not in (None, token):
            raise Violation("G1", "a claim takes a key that another consumer has", key=key)
        self.claims += 1
        self._newest[key] = token

    def is_old(self, key: bytes, token: int, through: int) -> bool:
        """Whether an acknowledgement that comes now must be refused."""
        is_repeated = through <= self._reached.get((key, token), 0)
        return self._newest.get(key) != token and not is_repeated

    def accepted(self, key: bytes) -> None:
        """Note that an acknowledgement with an old token was not refused."""
        raise Violation("G1", "an old token acknowledges entries", key=key)

    def proposed(self, fence: int, key: bytes, token: int, through: int) -> None:
        """Note the token for which a leader proposes to acknowledge entries."""
        self._proposed[fence, key, through] = token

    def makes(self, output: bytes, seqs: Sequence[int]) -> None:
        """Note an output that a consumer makes from entries of a key."""
        self._made[output] = tuple(seqs)

    def appended(
        self, gid: GroupId, index: int, command: Command, reply: Mapping[str, Any]
    ) -> None:
        """Note a GROUP_APPEND that a member applied."""
        if (gid, index) in self._applied or reply.get("duplicates"):
            return
        group, fence, acks, data = command.payload
        if reply["status"] == "ok":
            ((key, begin, through),) = acks
            (output,) = decode_batch(data).values()
            made = self._made[output or b""]
            if not all(begin <= seq < through for seq in made):
                raise Violation("S8", "an output is appended whose entries are done without it",
                                key=key, made=made, begin=begin, through=through)  # fmt: skip
            self.outputs += 1
        columns = map(list, zip(*acks, strict=True))
        acked = replace(command, kind=commands.GROUP_ACK, payload=[group, fence, *columns])
        self.applied(gid, index, acked, reply)

    def applied(self, gid: GroupId, index: int, command: Command, reply: Mapping[str, Any]
                ) -> None:  # fmt: skip
        """Note a command that a member applied. Its leader may never have seen that."""
        if (gid, index) in self._applied or reply["status"] != "ok":
            return
        self._applied.add((gid, index))
        payload, refused = command.payload, reply.get("refused", ())
        if command.kind == commands.GROUP_LETTER:
            self.letters.numbered(payload, refused)
            return
        if command.kind == commands.GROUP_COPIED:
            done = self.letters.copied(payload, refused)
            self.acked.update((self.key_of(unit), seq) for unit, seq in done)
            return
        _, fence, *columns = payload
        for at, (key, begin, through) in enumerate(zip(*columns, strict=True)):
            if at not in refused:
                self._acknowledged(key, self._proposed[fence, key, through], begin, through)

    def _acknowledged(self, unit: bytes, token: int, begin: int, through: int) -> None:
        key = self.key_of(unit)
        if (unit, token) not in self._given:
            raise Violation("G1", "a token that no leader gave acknowledges entries", key=key)
        for seq in self._given[unit, token]:
            if begin <= seq < through:
                if (key, seq) in self.acked:
                    raise Violation("G3", "an entry is acknowledged twice", key=key, seq=seq)
                self.acked.add((key, seq))
        self._reached[unit, token] = through

    def left(self, contents: Mapping[bytes, Collection[tuple[int, bytes]]]) -> list[Key]:
        """Return the entries that nobody has acknowledged, but for copies of others."""
        return [
            (key, seq)
            for key, entries in contents.items()
            for seq, _ in entries
            if (key, seq) not in self.acked and not key.startswith(DEAD)
        ]
