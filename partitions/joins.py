"""A merge: the one range that replaces two neighbours, or why they cannot be joined.

The merged range keeps the id of the left one. Its generation is above both generations (x26), and
no entry is copied (docs/design/ranges.md#seal-decide-install). Both neighbours must have the same
members: moves arrange this before the merge.
"""

from collections.abc import Sequence
from itertools import pairwise

from ..client.protocol.errors import Conflict, InvalidArgument
from .locks import check_free
from .model import Descriptor, Output, Span
from .spans import printable


def neighbours(ranges: Sequence[Descriptor], at: bytes) -> tuple[Descriptor, Descriptor]:
    """Return the two ranges that meet at a key. `ranges` are all ranges of a log, in key order.

    Raises InvalidArgument when no range begins at the key, or no range ends there.
    """
    for left, right in pairwise(ranges):
        if right.span.start == at:
            return left, right
    met = [printable(range_.span.start) for range_ in ranges[1:]]
    has = f"the ranges meet at {_some(met)}" if met else "the log has only one range"
    raise InvalidArgument(
        f"no two ranges of the log meet at key {printable(at)}; {has}: give the first key of "
        "the right range", what="at",
    )  # fmt: skip


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:5]) + (f" and {len(keys) - 5} other keys" if len(keys) > 5 else "")


def joined(left: Descriptor, right: Descriptor) -> Output:
    """Return the merged range. Raises OperationInProgress, and Conflict when the members differ."""
    for range_ in (left, right):
        check_free(range_)
    if left.members != right.members:
        raise Conflict(
            f"range {left.range_id} is on nodes {_listed(left)}, range {right.range_id} on "
            f"{_listed(right)}; move replicas until both ranges are on the same nodes: "
            "`lognode range move`"
        )
    generation = 1 + max(left.generation, right.generation)
    span = Span(left.span.start, right.span.end)
    return Output(left.range_id, generation, span, left.members)


def _listed(range_: Descriptor) -> str:
    return ", ".join(map(str, range_.members))
