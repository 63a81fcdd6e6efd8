"""The rules of ranges that may change with a feature level of the cluster.

Members of a group may run programs of two versions, and must apply each entry alike. So a rule that
a later version changes is not a constant of the program: it belongs to a level, and every program
keeps the rules of all levels that it knows. A range begins at the level of its parents, or at 1,
and its LEVEL command raises the level at one entry of its own log, for all members
(docs/design/levels.md). Apply never looks at the level of the metadata.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..client.protocol import limits
from ..client.protocol.errors import Unsupported
from ..client.protocol.levels import LEVEL_MIN, missing


class Rules(NamedTuple):
    """The limits by which apply refuses commands, each per range, and how files are made."""

    leases_max: int
    """Leases."""
    lease_ms_max: int
    """Milliseconds of log time after which a lease ends, unless it is renewed."""
    floors_max: int
    """Keys with a floor, and the floors that leases keep."""
    lineage_spans_max: int
    """Spans of keys that have their own removal mark."""
    producers_max: int
    """Producers with a row."""
    remembered_numbers_max: int
    """Numbers of unsettled records, above which the largest producers are refused."""
    batch_weight_max: int | None
    """What a batch of consecutive numbers counts of these at most; None: each number counts, also
    those that the producer has just settled."""
    cursors_max: int
    """Cursors; 0 before the level that has cursors."""
    cursor_spans_max: int
    """Spans of keys in which a cursor has a position, over all cursors."""
    cursor_keys_max: int
    """Keys with a position of their own, over all cursors."""
    groups_max: int
    """Consumer groups; 0 where members may not know the commands of groups."""
    value_gain: int
    """Files keep values compressed where this saves one part in so many of the bytes."""
    sha_256: bool
    """Whether the running hash over the entries is SHA-256, and not BLAKE2b."""


_FIRST: Final = Rules(
    leases_max=limits.leases_max,
    lease_ms_max=limits.lease_ms_max,
    floors_max=limits.floors_max,
    lineage_spans_max=limits.lineage_spans_max,
    producers_max=limits.producers_per_range_max,
    remembered_numbers_max=limits.remembered_numbers_max,
    batch_weight_max=None,
    cursors_max=0,
    cursor_spans_max=0,
    cursor_keys_max=0,
    groups_max=0,
    value_gain=limits.value_gain_level_1,
    sha_256=False,
)
_SECOND: Final = _FIRST._replace(leases_max=limits.leases_level_2_max)
_FOURTH: Final = _SECOND._replace(
    cursors_max=limits.cursors_max,
    cursor_spans_max=limits.cursor_spans_max,
    cursor_keys_max=limits.cursor_keys_max,
    groups_max=limits.groups_max,
)
_FIFTH: Final = _FOURTH._replace(batch_weight_max=limits.batch_weight_max)
_SIXTH: Final = _FIFTH._replace(value_gain=limits.value_gain, sha_256=True)
BY_LEVEL: Final[Mapping[int, Rules]] = {
    1: _FIRST, 2: _SECOND, 3: _SECOND, 4: _FOURTH, 5: _FIFTH, 6: _SIXTH, 7: _SIXTH,
}  # fmt: skip
"""The rules of each level that this program knows. The rules of a level never change again."""


def of_level(level: int) -> Rules:
    """Return the rules of a level. Raises Unsupported for a level that this program lacks."""
    found = BY_LEVEL.get(level)
    if found is None:
        raise Unsupported(missing(level) or f"no level {level}")
    return found


def of_tables(tables: Mapping[str, Any]) -> Rules:
    """Return the rules of the level in the tables of a base. Raises Unsupported."""
    return of_level(tables.get("level", LEVEL_MIN))
