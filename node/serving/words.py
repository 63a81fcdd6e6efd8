"""The words of what the metadata keep as codes. They may be changed at any time, in any version."""

from collections.abc import Mapping, Sequence
from typing import Final

from ...partitions import reasons
from ...partitions.model import Cause
from ...partitions.spans import printable

CAUSES: Final[Mapping[int, str]] = {
    reasons.MOVED: "an operator moves the range from node {} to node {}",
    reasons.SPLIT: "an operator splits the range at key {}",
    reasons.RECOVERED: "an operator recovers the range from node {} alone",
    reasons.MERGED: "an operator merges the range with range {} at key {}",
    reasons.GIVEN_UP: "given up: not all ranges were sealed and held in time",
    reasons.MEMBERS_KEPT: "the members stay: the planned members were not ready in time",
}
"""Each cause, with places for its values."""


def of_reason(text: str, causes: Sequence[Cause]) -> str:
    """Return the whole reason of an operation: the text of its command, then its causes."""
    return "; ".join(filter(None, (text, *map(_of_cause, causes))))


def _of_cause(cause: Cause) -> str:
    shown = [printable(each) if isinstance(each, bytes) else each for each in cause.values]
    words = CAUSES.get(cause.code)
    if words is None:  # a later version of the cluster
        return f"cause {cause.code} ({', '.join(map(str, shown))})"
    return words.format(*shown)
