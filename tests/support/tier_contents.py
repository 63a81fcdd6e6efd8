"""What the tier of a real cluster has, as tests see it."""

from dataclasses import dataclass
from typing import Any

import lognode
from lognode.client.objects import places
from lognode.client.protocol.errors import LognodeError
from lognode.node.lifecycle import base_pieces
from lognode.node.tier import coverage, names
from lognode.node.tier.names import StoredFile
from lognode.node.tier.tier_store import TierStore

Spans = list[tuple[tuple[bytes, bytes | None], int]]
"""Which keys a restore reads together, and the next seq of each."""


def gives(through: Spans, entries: list[lognode.Entry]) -> bool:
    return bool(through) and all(
        any(
            start <= entry.key and (end is None or entry.key < end) and entry.seq < next_seq
            for (start, end), next_seq in through
        )
        for entry in entries
    )


@dataclass(frozen=True)
class Tier:
    """The objects of a tier, as tests see them."""

    store: TierStore

    @classmethod
    def at(cls, place: str, **settings: Any) -> "Tier":
        return cls(TierStore(places.opened(place, **settings)))

    def through(self, log: str) -> Spans:
        """What a restore would read; [] while there are gaps, or a chain changes meanwhile."""
        found = []
        try:
            heads = self.store.snapshot().heads.values()
            for each in coverage.logs(heads):
                if each.newest.log.name != log or each.gaps:
                    continue
                for span, head in each.pieces:
                    whole = self.store.manifest(head.chain, head.number)
                    assert whole is not None
                    assert whole.base is not None
                    found.append((span, base_pieces.unpack(whole.base).tables.get("next_seq", 1)))
        except (LognodeError, AssertionError):
            return []
        return found

    def has(self, log: str, entries: list[lognode.Entry]) -> bool:
        """Whether a restore gives all of these entries."""
        return gives(self.through(log), entries)

    def keeps(self, log: str) -> bool:
        """Whether the tier has a policy of the log without retention."""
        heads = self.store.snapshot().heads.values()
        newest = {each.newest.log.name: each.newest.log for each in coverage.logs(heads)}
        return newest[log].policy["retention_bytes"] is None

    def files(self) -> set[StoredFile]:
        found = self.store.objects.objects(names.FILES)
        return {part[0] for each in found if (part := names.part_of(each.name)) is not None}
