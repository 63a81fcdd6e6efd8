"""Batches that this leader has proposed, as the leader decoded them for its checks.

So a leader decodes a batch once, not again when the entry is applied. What a replica applies
follows from the bytes of the committed entry alone: kept batches are used only where these bytes
are the same as those of the proposal.
"""

from collections.abc import Sequence
from typing import Final

from ...client.protocol import limits
from ...client.protocol.records import Batch
from ...statemachine.commands import Command
from ...statemachine.range_state import Ahead

_KEPT_BYTES_MAX: Final = 2 * limits.proposed_bytes_max
"""The bytes of the commands whose batches are kept. A seal may propose more at once."""
kept_queue_bytes_max: Final = limits.proposed_bytes_max
"""Batches that wait behind so many bytes to be proposed are not kept decoded."""


class ProposedBatches:
    """The batches by the index of their entry."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[bytes, Ahead]] = {}
        self._size = 0

    def keep(
        self, index: int, command: bytes, decoded: Command, batches: Sequence[Batch | None]
    ) -> None:
        """Keep an APPEND that was proposed at this index, with its batches, if all are known."""
        known = [batch for batch in batches if batch is not None]
        if len(known) == len(batches) and self._size + len(command) <= _KEPT_BYTES_MAX:
            self._kept[index] = command, Ahead(decoded, known)
            self._size += len(command)

    def take(self, index: int, command: bytes) -> Ahead:
        """Return the decoded command of the entry that was committed at this index."""
        kept = self._kept.pop(index, None)
        if kept is None:
            return Ahead.of(command)
        proposed, ahead = kept
        self._size -= len(proposed)
        return ahead if proposed == command else Ahead.of(command)

    def clear(self) -> None:
        """Forget all batches: this member no longer leads, or stops."""
        self._kept.clear()
        self._size = 0
