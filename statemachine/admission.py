"""What the leader checks before a batch is proposed, so that apply never meets a bad one."""

from collections.abc import Callable, Generator, Sequence

from ..client.errors import CorruptData, GenerationMismatch, Unauthorized
from ..client.records import (
    Batch,
    PackedBatch,
    check_limits,
    decode_batch,
    limit_steps,
    open_batch,
)

KeyCheck = Callable[[Sequence[bytes]], bool]


def admit(
    data: bytes | PackedBatch, start: bytes, end: bytes | None, may_have: KeyCheck | None = None
) -> Batch:
    """Decode every column and check every limit and the range's span (executions 1.22).

    `may_have` says whether the sender may append to all of these keys; None: it may to every key.
    Raises LimitExceeded, InvalidArgument, CorruptData, GenerationMismatch or Unauthorized; nothing
    happened, and their outcome is `not_applied`.
    """
    try:
        batch = decode_batch(data)
        _check_sender(batch, may_have)
        check_limits(batch)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None
    _check_span(batch, start, end)
    return batch


def admit_steps(
    data: bytes | PackedBatch, start: bytes, end: bytes | None, may_have: KeyCheck | None = None
) -> Generator[None, None, Batch]:
    """Do the same as `admit` in steps of at most a few milliseconds."""
    try:
        packed = data if isinstance(data, PackedBatch) else open_batch(data)
        yield
        batch = decode_batch(packed)
        _check_sender(batch, may_have)
        yield
        yield from limit_steps(batch)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None
    _check_span(batch, start, end)
    return batch


def _check_sender(batch: Batch, may_have: KeyCheck | None) -> None:
    if may_have is not None and not may_have(batch.keys):
        raise Unauthorized("a key of the batch is not among those that the token allows")


def _check_span(batch: Batch, start: bytes, end: bytes | None) -> None:
    if min(batch.keys) < start or (end is not None and max(batch.keys) >= end):
        raise GenerationMismatch("a key of the batch is outside the range's span", ranges=[])
