"""What the leader checks before a batch is proposed, so that apply never meets a bad one."""

from ..client.errors import GenerationMismatch
from ..client.records import Batch, check_limits, decode_batch


def admit(data: bytes, start: bytes, end: bytes | None) -> Batch:
    """Decode every column and check every limit and the range's span (executions 1.22).

    Raises LimitExceeded, InvalidArgument, CorruptData or GenerationMismatch; nothing happened.
    """
    batch = decode_batch(data)
    check_limits(batch)
    if min(batch.keys) < start or (end is not None and max(batch.keys) >= end):
        raise GenerationMismatch("a key of the batch is outside the range's span", ranges=[])
    return batch
