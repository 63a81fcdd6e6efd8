"""The checks of a leader before it proposes a batch, so that apply never meets a bad batch."""

from collections.abc import Callable, Generator

from ..client.protocol.errors import CorruptData, GenerationMismatch
from ..client.protocol.records import (
    Batch,
    PackedBatch,
    check_limits,
    decode_batch,
    limit_steps,
    open_batch,
)

SenderCheck = Callable[[Batch], None]


def admit(
    data: bytes | PackedBatch, start: bytes, end: bytes | None, check: SenderCheck | None = None
) -> Batch:
    """Decode every column and check every limit and the range's span (x22).

    `check` raises Unauthorized if the batch is beyond the sender's rights; None: the sender may do
    anything. Raises LimitExceeded, InvalidArgument, CorruptData, GenerationMismatch or
    Unauthorized. Nothing was applied then, and the outcome is `not_applied`.
    """
    try:
        batch = decode_batch(data)
        if check is not None:
            check(batch)
        check_limits(batch)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None
    _check_span(batch, start, end)
    return batch


def admit_steps(
    data: bytes | PackedBatch, start: bytes, end: bytes | None, check: SenderCheck | None = None
) -> Generator[None, None, Batch]:
    """Do the same as `admit` in steps of at most a few milliseconds."""
    try:
        packed = data if isinstance(data, PackedBatch) else open_batch(data)
        yield
        batch = decode_batch(packed)
        if check is not None:
            check(batch)
        yield
        yield from limit_steps(batch)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None
    _check_span(batch, start, end)
    return batch


def _check_span(batch: Batch, start: bytes, end: bytes | None) -> None:
    keys = batch.key_column
    if keys.least < start or (end is not None and keys.greatest >= end):
        raise GenerationMismatch("a key of the batch is outside of the range", ranges=[])
