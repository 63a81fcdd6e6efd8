"""Checks what consumers of a group are given and acknowledge, over all ranges and leaders.

G1: an acknowledgement counts only with the newest token of its key. G2: each entry is acknowledged
under a token that was given for the entry. G3: an acknowledged entry is not given again, and not
acknowledged twice. G4: at the end every entry is acknowledged. Tokens count from when their leader
has confirmed its lead, since consumers get the answers of leaders that have.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...node.dispatch.leases import Lease
from ...raft.types import GroupId
from .violation import Violation

Key = tuple[bytes, int]


@dataclass
class Deliveries:
    """All that was given and acknowledged in one run."""

    acked: set[Key] = field(default_factory=set)
    """Key and seq of each acknowledged entry."""
    batches: int = 0
    claims: int = 0
    refused: int = 0
    _proposed: dict[tuple[int, bytes, int], int] = field(default_factory=dict)
    """By fence, key and position, the token of the acknowledgement."""
    _applied: set[tuple[GroupId, int]] = field(default_factory=set)
    _given: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    """By key and token, the seqs that the token was given for."""
    _newest: dict[bytes, int] = field(default_factory=dict)
    _reached: dict[Key, int] = field(default_factory=dict)
    """By key and token, the position that the token has reached."""

    def chose(self, key: bytes, token: int, seqs: Sequence[int]) -> bool:
        """Note that a leader chose a batch. Return whether an entry is acknowledged already."""
        self._given[key, token] = tuple(seqs)
        return any((key, seq) in self.acked for seq in seqs)

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

    def proposed(self, fence: int, lease: Lease, through: int) -> None:
        """Note the token for which a leader proposes to acknowledge entries."""
        self._proposed[fence, lease.key, through] = lease.token

    def applied(self, gid: GroupId, index: int, payload: Sequence[Any], reply: Mapping[str, Any]
                ) -> None:  # fmt: skip
        """Note a GROUP_ACK that a member applied. Its leader may never have seen that."""
        if (gid, index) in self._applied or reply["status"] != "ok":
            return
        self._applied.add((gid, index))
        _, fence, *columns = payload
        for at, (key, begin, through) in enumerate(zip(*columns, strict=True)):
            if at not in reply.get("refused", ()):
                self._acknowledged(key, self._proposed[fence, key, through], begin, through)

    def _acknowledged(self, key: bytes, token: int, begin: int, through: int) -> None:
        if (key, token) not in self._given:
            raise Violation("G1", "a token that no leader gave acknowledges entries", key=key)
        for seq in self._given[key, token]:
            if begin <= seq < through:
                if (key, seq) in self.acked:
                    raise Violation("G3", "an entry is acknowledged twice", key=key, seq=seq)
                self.acked.add((key, seq))
        self._reached[key, token] = through

    def left(self, contents: Mapping[bytes, Collection[tuple[int, bytes]]]) -> list[Key]:
        """Return the entries that nobody has acknowledged."""
        return [
            (key, seq)
            for key, entries in contents.items()
            for seq, _ in entries
            if (key, seq) not in self.acked
        ]
