"""A batch together with acknowledgements of a consumer group: all of it is applied, or nothing.

The consumer has made the records of the batch from entries that it acknowledges. The checks of the
batch come first. A repetition of the batch is answered like the first attempt, which has applied
the acknowledgements too: by now the positions are others. Only a new batch is held against the
fence and the positions of the group.
"""

from collections.abc import Sequence
from typing import Any

from ..client.protocol.errors import CorruptData, Fenced, InvalidArgument, LognodeError
from ..client.protocol.records import Batch
from .commands import Command
from .groups import apply
from .groups.table import Groups
from .refusals import refusal


def batch_refusal(batch: Batch) -> dict[str, Any] | None:
    """Return the reply to a batch that may be applied in part, and so with no acknowledgement."""
    if batch.atomic and not batch.each:
        return None
    return refusal(CorruptData("a batch with acknowledgements is not marked as atomic"))


def acknowledge(
    groups: Groups, command: Command, selected: Sequence[int] | None, next_seq: int
) -> dict[str, Any] | None:
    """Apply the acknowledgements of a batch that passed its own checks, or return the reply that
    refuses both, with the places of the keys that do not fit and their positions.

    `selected`: the new records of the batch, None for all.
    """
    if selected is not None:
        return _refused_part() if selected else None
    refused = apply.ack_all(groups, command, next_seq=next_seq)
    if isinstance(refused, LognodeError):
        return refusal(refused)
    if not refused:
        return None
    places, actual = map(list, zip(*refused, strict=True))
    key = command.payload[2][places[0]][0]
    error = Fenced("the key is at another position of the group", key=key)
    return {**refusal(error), "refused": places, "actual": actual}


def _refused_part() -> dict[str, Any]:
    return refusal(
        InvalidArgument(
            "some records of the batch were appended before, with another batch; give the records "
            "of a batch with acknowledgements numbers of their own",
            what="batch",
        )
    )
