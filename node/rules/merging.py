"""Which files of a range become one file, and which go without another.

The plan follows from a replica's durable base: its manifest and its removal state. Removals since
then do not count, because a restart applies them once more. So members with the same files reach
the same files.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...statemachine.merge_plan import is_oldest, plan
from ...statemachine.range_state import Base
from ...statemachine.rules import of_tables
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.visibility import Rules

Span = tuple[bytes, bytes | None]


class Merge(NamedTuple):
    """Files of a base that are replaced."""

    inputs: Sequence[SegmentInfo]
    rules: Rules
    """What of the inputs is visible, by the removals that the base has."""
    writes: bool
    """Whether a file with the visible entries takes their place."""
    oldest: bool
    """Whether no earlier file of the base has a key of the inputs."""
    value_gain: int
    """How the file keeps values, by the level of the base."""


def due(
    base: Base, span: Span, *, ended: bool, stays: Callable[[str], bool] = lambda _: True
) -> Merge | None:
    """Return the merge that the durable base of a range asks for, or None.

    Files without visible entries go first. `ended`: the range's generation has ended, so that the
    next generation takes the files over as they are. `stays`: whether a file is on the disk of
    this node and stays there, by content id. Only such files are merged; the others do not count.
    """
    if ended:
        return None
    rules, value_gain = Rules.of(base.tables, *span), of_tables(base.tables).value_gain
    gone = [info for info in base.manifest if rules.unneeded(info)]
    if gone:
        return Merge(gone, rules, writes=False, oldest=False, value_gain=value_gain)
    planned = plan(base.manifest, rules, stays)
    if planned is None:
        return None
    inputs = base.manifest[slice(*planned)]
    oldest = is_oldest(base.manifest, planned[0])
    return Merge(inputs, rules, writes=True, oldest=oldest, value_gain=value_gain)
