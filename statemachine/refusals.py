"""The replies of apply to commands that it refuses. A refused command has changed nothing."""

from collections.abc import Mapping
from typing import Any

from ..client.protocol.errors import LognodeError, SequenceMismatch, to_wire
from ..client.protocol.records import Batch


def refusal(error: LognodeError) -> dict[str, Any]:
    """Return the reply to a command that apply refuses with this error."""
    return {"status": "error", "error": {**to_wire(error), "outcome": "not_applied"}}


def mismatch(batch: Batch, refused: Mapping[int, int]) -> SequenceMismatch:
    """Return the error of the first refused position: the key has another last seq."""
    position, actual = next(iter(refused.items()))
    expected = (batch.expects or ())[position]
    return SequenceMismatch(
        f"the key's last seq is {actual}, not {expected}",
        key=batch.keys[position], expected=expected, actual=actual,
    )  # fmt: skip
