"""The base that a generation begins with: its part of the state of its parents at their ends.

The base is the same on every member.
"""

from collections.abc import Sequence

from ...partitions.lineage import FIRST_APPLIED, recovered, successor
from ...partitions.model import Descriptor
from ...statemachine import tails
from ...statemachine.clip import clipped
from ...statemachine.range_state import Base
from ...statemachine.unite import Parent, united


def first_base(
    range_: Descriptor, ends: Sequence[Base], *, lost: bool = False, has_partitions: bool = False
) -> Base:
    """Return the base with which a generation begins.

    `ends` are its parents' bases at their seals, in the order of its lineage; a new range has no
    parents. `lost`: entries may be lost, by unsafe recovery. `has_partitions`: the log of a new
    range has Kafka partitions.
    """
    if not ends:
        return Base(tables={tails.TABLE: [[], []]} if has_partitions else {})
    if len(ends) > 1:
        spans = range_.spans_of_parents()
        parents = [Parent(*span, end) for span, end in zip(spans, ends, strict=True)]
        return united(parents, *FIRST_APPLIED)
    (end,) = ends
    follow = recovered if lost else successor
    base = Base(*FIRST_APPLIED, list(end.manifest), follow(end.tables))
    return clipped(base, *range_.span)
