"""What the leader checks before a batch is proposed, so that apply never meets a bad one."""

from ..client.errors import CorruptData, GenerationMismatch
from ..client.records import Batch, check_limits, decode_batch


def admit(data: bytes, start: bytes, end: bytes | None) -> Batch:
    """Decode every column and check every limit and the range's span (executions 1.22).

    Raises LimitExceeded, InvalidArgument, CorruptData or GenerationMismatch; nothing happened,
    and their outcome is `not_applied`.
    """
    try:
        batch = decode_batch(data)
        check_limits(batch)
    except CorruptData as error:
        raise CorruptData(error.message, outcome="not_applied") from None
    if min(batch.keys) < start or (end is not None and max(batch.keys) >= end):
        raise GenerationMismatch("a key of the batch is outside the range's span", ranges=[])
    return batch
